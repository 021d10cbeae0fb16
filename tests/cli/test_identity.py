"""`securefl identity`: a party's folder, and one list of members for all that it takes part in."""

import json
import stat
from pathlib import Path

import pytest

from secure_fl.crypto.identities import read_directory, read_members
from secure_fl.heads.manifest import load_manifest, make_manifest, save_manifest
from secure_fl.service.members import read_member
from tests.cli.command import refused, run, securefl

NAMES = ("north", "south", "server", "querier", "evaluator")


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with those of all parties, and their list."""
    folder = tmp_path_factory.mktemp("parties")
    for name in NAMES:
        securefl("identity", "new", folder / name)
    cards = [folder / name / f"{name}.member" for name in NAMES]
    securefl("identity", "gather", folder / "members.json", *cards)
    return folder


def copied(parties: Path, name: str, folder: Path) -> Path:
    """A party's folder once more, with everybody's list."""
    own = folder / name
    own.mkdir(mode=0o700)
    for path in (*(parties / name).iterdir(), parties / "members.json"):
        (own / path.name).write_bytes(path.read_bytes())
        (own / path.name).chmod(path.stat().st_mode)
    return own


def findings(*arguments: object) -> tuple[int, dict[str, tuple[bool, str]]]:
    code, out, _ = run("doctor", *arguments, "--json")
    found = json.loads(out)["findings"]
    return code, {each["what"]: (each["fine"], each["found"]) for each in found}


def test_secrets_stay_and_what_is_handed_out_holds_none(parties: Path) -> None:
    own = parties / "north"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in own.iterdir()}
    assert modes.keys() == {"identity", "node", "north.member", "north.pub"}
    assert (modes["identity"], modes["node"], stat.S_IMODE(own.stat().st_mode)) == (
        *(0o600, 0o600, 0o700),
    )
    secret = (own / "identity").read_bytes()
    assert secret.hex() not in (own / "north.member").read_text()
    assert (own / "north.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    # Neither secret says anything of the other.
    other = parties / "again"
    securefl("identity", "new", other, "--name", "north", "--keep", own / "identity")
    assert (other / "identity").read_bytes() == secret
    assert (other / "north.pub").read_text() != (own / "north.pub").read_text()


def test_one_list_serves_training_and_answering(parties: Path, tmp_path: Path) -> None:
    members = parties / "members.json"
    facts = make_manifest(classes=("x", "y"), clients=NAMES[:2], n_features=3, bits=8)
    save_manifest(tmp_path, facts)
    securefl("serve", "enrol", tmp_path, "--members", members)
    manifest = load_manifest(tmp_path)
    for name in ("north", "querier", "evaluator"):
        found = read_member(parties / name / "identity", name, manifest)
        assert found.identity.public == read_directory(members)[name]
    assert "server" not in dict(manifest.members)


def test_a_list_of_parties_that_only_train_is_read_and_cannot_answer(
    parties: Path, tmp_path: Path
) -> None:
    listed = {
        name: keys.hex() for name, keys in read_members(parties / "members.json").listed.items()
    }
    before = tmp_path / "before.json"
    before.write_text(json.dumps({name: keys[:64] for name, keys in listed.items()}))
    assert read_directory(before) == read_directory(parties / "members.json")
    facts = make_manifest(classes=("x", "y"), clients=NAMES[:2], n_features=3, bits=8)
    save_manifest(tmp_path, facts)
    line = refused("serve", "enrol", tmp_path, "--members", before)
    assert '"north" has 64 digits' in line
    assert "identity new --keep" in line
    # Whoever sends its whole card is whole in the next list.
    card = parties / "north" / "north.member"
    securefl("identity", "gather", tmp_path / "after.json", before, card)
    after = read_members(tmp_path / "after.json").listed
    assert (after["north"].hex(), after["south"].hex()) == (listed["north"], listed["south"][:64])


def test_a_list_with_two_keys_of_a_name_or_two_names_of_a_key_is_not_made(
    parties: Path, tmp_path: Path
) -> None:
    securefl("identity", "new", tmp_path / "false", "--name", "north")
    own = tmp_path / "own"
    securefl("identity", "new", own, "--name", "west", "--keep", parties / "north" / "identity")
    whole = parties / "members.json"
    out = tmp_path / "members.json"
    line = refused("identity", "gather", out, whole, tmp_path / "false" / "north.member")
    assert 'has other keys for "north"' in line
    line = refused("identity", "gather", out, whole, own / "west.member")
    assert '"north" and "west" have the same key' in line
    assert not out.exists()
    assert "exists already" in refused("identity", "gather", whole, whole)


def test_a_name_that_no_file_can_have_makes_nothing(tmp_path: Path) -> None:
    assert "a/b" in refused("identity", "new", tmp_path / "own", "--name", "a/b")
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_looks_at_one_folder(parties: Path, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="needs the extra `flower`")
    from secure_fl.demo.credentials import write_certificates

    own = copied(parties, "north", tmp_path)
    write_certificates(own)
    code, found = findings(own)
    assert code == 0, found
    assert list(found) == ["identity", "members", "node key", "ca.pem", "server.pem"]
    assert read_members(own / "members.json").fingerprint in found["members"][1]
    assert found["server.pem"][1].startswith("for 127.0.0.1; ends in 0 days")
    assert "with its key" in found["server.pem"][1]


def test_the_doctor_says_what_to_mend_in_a_folder(parties: Path, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="needs the extra `flower`")
    from secure_fl.demo.credentials import write_certificates

    own = copied(parties, "north", tmp_path)
    made = write_certificates(own)
    made.key.write_bytes((own / "node").read_bytes())
    (own / "ca.pem").write_text("none\n")
    (own / "node").chmod(0o644)
    secret = (parties / "south" / "identity").read_bytes()
    (own / "identity").write_bytes(secret)
    code, found = findings(own)
    assert code == 1
    assert not any(fine for fine, _ in found.values())
    assert "north.member: not of" in found["identity"][1]
    assert 'has another key for "north"' in found["members"][1]
    assert "run chmod 600" in found["node key"][1]
    assert "no certificate in PEM" in found["ca.pem"][1]
    assert "not the key of" in found["server.pem"][1]
