"""`securefl doctor`: one line a thing, and what to mend."""

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower` (pip install securefl[flower])")

from secure_fl.crypto.identities import Members, write_identity
from secure_fl.demo.credentials import write_certificates, write_ssh_key
from tests.cli.command import run
from tests.secure_fl.flower.consortium import write_parties
from tests.secure_fl.flower.here import Here


@pytest.fixture
def party(tmp_path: Path) -> dict[str, str]:
    """The settings of c0, whose things are all right."""
    write_parties(tmp_path)
    return {
        "data": str(tmp_path / "clients" / "c0.npz"),
        "state": str(tmp_path / "state"),
        "identity": str(tmp_path / "c0.key"),
        "directory": str(tmp_path / "members.json"),
        "ledger": str(tmp_path / "books"),
    }


def findings(party: dict[str, str], *options: object) -> tuple[int, dict[str, tuple[bool, str]]]:
    config = " ".join(f'{name}="{value}"' for name, value in party.items())
    code, out, _ = run("doctor", "--node-config", config, *options, "--json")
    found = json.loads(out)["findings"]
    return code, {each["what"]: (each["fine"], each["found"]) for each in found}


def test_a_party_whose_things_are_right_is_told_so_and_nothing_is_made(
    party: dict[str, str], tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, found = findings(party)
    assert code == 0
    assert all(fine for fine, _ in found.values())
    assert list(found) == ["versions", "settings", "records", "folder", "keys", "ledger"]
    assert "every update is masked" in found["settings"][1]
    assert 'client "c0": 30 records of 6 features' in found["records"][1]
    assert sorted(tmp_path.rglob("*")) == before


def test_the_fingerprint_is_of_names_and_keys_and_not_of_their_order() -> None:
    keys = {"a": bytes(32), "b": bytes([1]) * 32}
    same = Members(dict(reversed(keys.items()))).fingerprint
    assert Members(keys).fingerprint == same
    assert Members({"a": keys["b"], "b": keys["a"]}).fingerprint != same
    assert len(same) == 16


def test_each_thing_that_is_wrong_has_its_line_and_the_others_are_looked_at(
    party: dict[str, str], tmp_path: Path
) -> None:
    write_identity(tmp_path / "other.key")
    (tmp_path / "state").mkdir(mode=0o755)
    (tmp_path / "state").chmod(0o755)
    (tmp_path / "books").write_text("no ledger\n")
    wrong = {**party, "identity": str(tmp_path / "other.key"), "data": "absent.npz", "name": "c0"}
    code, found = findings(wrong)
    assert code == 1
    assert [what for what, (fine, _) in found.items() if not fine] == [
        *("records", "folder", "keys", "ledger"),
    ]
    assert "absent.npz" in found["records"][1]
    assert "run chmod 700 on it" in found["folder"][1]
    assert 'has another key for "c0"' in found["keys"][1]


def test_a_superlink_is_looked_at_from_here(party: dict[str, str], tmp_path: Path) -> None:
    made = write_certificates(tmp_path)
    key = write_ssh_key(tmp_path, "node")
    here = Here(tls=(made.certificate, made.key))
    try:
        place = ("--superlink", here.address, "--auth-supernode-private-key", key)
        key.chmod(0o600)
        code, found = findings(party, *place, "--root-certificates", made.authority)
        distrustful, untrusted = findings(party, *place)
    finally:
        here.close()
    assert code == 0
    assert list(found)[-4:] == ["node key", "port", "certificate", "clock"]
    assert "trusted, ends in 0 days" in found["certificate"][1]
    assert "s behind the SuperLink's" in found["clock"][1] or "ahead" in found["clock"][1]
    assert distrustful == 1
    assert "not trusted" in untrusted["certificate"][1]
    assert "clock" not in untrusted
    gone, absent = findings(party, *place)
    assert gone == 1
    assert "cannot be reached" in absent["port"][1]


def test_people_read_one_line_a_thing(party: dict[str, str]) -> None:
    config = " ".join(f'{name}="{value}"' for name, value in party.items())
    code, out, _ = run("doctor", "--node-config", config)
    assert code == 0
    assert [line[:5] for line in out.splitlines()] == ["ok   "] * 6
