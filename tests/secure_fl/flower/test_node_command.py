"""`securefl flower node` where it cannot work: one line that says what to do."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower` (pip install securefl[flower])")

import httpx

from secure_fl.demo.credentials import write_certificates, write_ssh_key
from secure_fl.errors import AwayError, InputError
from secure_fl.flower.settings import read_config
from secure_fl.flower.superlink.refusals import ForgottenError, RunOverError, refusal
from tests.cli.command import refused, run
from tests.secure_fl.flower.consortium import write_parties
from tests.secure_fl.flower.here import Here


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parties")
    write_parties(folder)
    return folder


@pytest.fixture(scope="module")
def encrypted(parties: Path) -> Iterator[Here]:
    """A SuperLink with TLS that knows its nodes by their keys."""
    made = write_certificates(parties)
    found = Here(tls=(made.certificate, made.key))
    yield found
    found.close()


def node(parties: Path, address: str, *options: Any) -> tuple[Any, ...]:
    config = f'data="{parties}/clients/c0.npz" state="{parties}/state"'
    return "flower", "node", "--superlink", address, "--node-config", config, *options


def failed(*arguments: Any) -> str:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert "Traceback" not in err
    return str(err.strip().splitlines()[-1])


# ------------------------------------------------------------------------------------- settings


def test_settings_are_read_as_flower_reads_them(tmp_path: Path) -> None:
    from flwr.common.config import parse_config_args

    line = "data=\"/my data/c0.npz\" secure=true noise=1.5 cohorts=2 name='c0'"
    assert read_config(line) == parse_config_args([line])
    file = tmp_path / "north.toml"
    file.write_text('data = "/my data/c0.npz"\nsecure = true\n')
    assert read_config(str(file)) == parse_config_args([str(file)])


@pytest.mark.parametrize("text", ["data", "data=", "data=x y", 'data="a" and more', "a.b.c=,"])
def test_settings_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--node-config.*expected NAME=VALUE.*\.toml"):
        read_config(text)


def test_a_settings_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.toml: cannot be used: No such file"):
        read_config(str(tmp_path / "no.toml"))


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ('data="d.npz"', "--node-config state: missing; see docs/deploy.md"),
        ('data="d" state="s" colour=1', "--node-config colour: no setting of a node;"),
        ('data="d.npz" state="s" cohorts=0', "cohorts: found 0, expected at least 1"),
        ('data="d.npz" state="s" noise="much"', "--node-config noise: found 'much', expected a"),
        ('data="d.npz" state="s" noise=nan', "--node-config noise: found nan, expected a number"),
        ('data="d.npz" state="s" sums=inf', "--node-config sums: found inf, expected a whole"),
        ('data="d.npz" state="s" sums=true', "--node-config sums: found True, expected a whole"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(config: str, line: str) -> None:
    found = refused("flower", "node", "--superlink", "h:1", "--node-config", config, "--insecure")
    assert line in found


def test_records_that_cannot_be_read_are_refused_before_anybody_is_called(parties: Path) -> None:
    config = f'data="{parties}/absent.npz" state="{parties}/none"'
    found = refused("flower", "node", "--superlink", "h:1", "--node-config", config, "--insecure")
    assert "absent.npz" in found


@pytest.mark.parametrize("address", ["server.example", "server.example:", ":8000", "h:99999", ""])
def test_an_address_without_host_or_port_is_refused(parties: Path, address: str) -> None:
    found = refused(*node(parties, address, "--insecure"))
    assert found == f"error: --superlink {address}: expected HOST:PORT"


# ------------------------------------------------------------------------------ lines and keys


def test_a_key_that_is_none_is_refused(parties: Path) -> None:
    key = parties / "c0.key"
    found = refused(*node(parties, "h:1", "--auth-supernode-private-key", key))
    assert found.startswith(f"error: {key}: no private key of a node; securefl identity new makes")


def test_an_untrusted_certificate_is_said_at_once(parties: Path, encrypted: Here) -> None:
    found = failed(*node(parties, encrypted.address))
    assert "its certificate is not trusted" in found
    assert "(--root-certificates)" in found


def test_plain_http_against_tls_is_said_at_once(parties: Path, encrypted: Here) -> None:
    found = failed(*node(parties, encrypted.address, "--insecure"))
    assert "it speaks TLS on this port; leave out --insecure" in found


def test_tls_against_plain_http_is_said_at_once(parties: Path) -> None:
    plain = Here()
    try:
        found = failed(*node(parties, plain.address))
    finally:
        plain.close()
    assert "it does not speak TLS on this port; start this node with --insecure" in found


def test_a_key_that_nobody_registered_is_refused_with_what_to_do(
    parties: Path, encrypted: Here
) -> None:
    key = write_ssh_key(parties, "stranger")
    options = "--root-certificates", parties / "ca.pem", "--auth-supernode-private-key", key
    found = failed(*node(parties, encrypted.address, *options))
    assert f"does not take the key of {key}; register its public half" in found


def test_a_node_without_a_key_is_told_that_it_needs_one(parties: Path, encrypted: Here) -> None:
    found = failed(*node(parties, encrypted.address, "--root-certificates", parties / "ca.pem"))
    assert "knows its nodes by their keys" in found


# ----------------------------------------------------------------------------------- refusals


def answer(status: int, ahead: float = 0.0, **body: Any) -> httpx.Response:
    date = format_datetime(datetime.now(UTC) - timedelta(seconds=ahead), usegmt=True)
    return httpx.Response(status, headers={"date": date}, json=body)


@pytest.mark.parametrize(("ahead", "side"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_clock_that_is_an_hour_off_is_named(ahead: float, side: str) -> None:
    found = refusal("SuperLink h:1", answer(401, ahead))
    assert isinstance(found, ForgottenError)
    assert "this machine's clock is 3" in str(found)
    assert f"s {side} the SuperLink's, mend it" in str(found)


def test_a_clock_that_is_right_is_not_blamed() -> None:
    assert "clock" not in str(refusal("SuperLink h:1", answer(401)))


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (answer(403, code=2007, detail="over"), RunOverError),
        (answer(503), AwayError),
        (answer(429), AwayError),
        (answer(401), ForgottenError),
    ],
)
def test_refusals_say_whether_waiting_helps(response: httpx.Response, kind: type) -> None:
    assert type(refusal("SuperLink h:1", response)) is kind
