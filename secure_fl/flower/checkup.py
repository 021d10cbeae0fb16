"""Whether a client's machine is ready to train over a network. Looks, and changes nothing.

What a node would refuse when it starts, and what it could not know: whether the others have this
client's key under its name, whether the clock is right, and when the SuperLink's certificate ends.
"""

import hashlib
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attrs import frozen

import dp
from secure_fl.crypto.identities import read_directory, read_identity
from secure_fl.crypto.keys import Directory, Identity
from secure_fl.data import Columns, ReadOptions, read_client
from secure_fl.data.naming import stem
from secure_fl.errors import InputError
from secure_fl.flower.settings import check_names, policy_of
from secure_fl.flower.superlink import AHEAD, BEHIND, check_flwr, private_key
from secure_fl.reaching import tls_context

_PATIENCE = 10.0
"""Seconds that a SuperLink gets to answer."""
_SOON = 14
"""Days before a certificate's end in which it is said."""


@frozen
class Finding:
    """One thing that was looked at.

    Attributes:
        what: it is.
        fine: whether training can go on with it.
        found: in words, with what to do where it is not fine.
    """

    what: str
    fine: bool
    found: str


def check_party(own: Mapping[str, Any]) -> Iterator[Finding]:
    """Looks at what a node's owner has on this machine.

    Args:
        own: `--node-config`; see `secure_fl.flower.settings.Owner`.
    """
    yield _tried("versions", _versions)
    yield _tried("settings", lambda: _settings(own))
    if "data" not in own or "state" not in own:
        return
    data = Path(str(own["data"]))
    name = str(own.get("name", stem(data)))
    yield _tried("records", lambda: _records(name, data, str(own.get("label-column", "label"))))
    yield _tried("folder", lambda: _folder(Path(str(own["state"]))))
    if "identity" in own or "directory" in own:
        yield _tried("keys", lambda: _keys(name, own))
    if "ledger" in own:
        yield _tried("ledger", lambda: _ledger(Path(str(own["ledger"]))))


def check_superlink(address: str, authority: Path | None, insecure: bool) -> Iterator[Finding]:
    """Looks at a SuperLink from here.

    Args:
        address: HOST:PORT.
        authority: PEM file of who signed its certificate; None trusts the system's.
        insecure: it speaks plain HTTP.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        yield Finding("port", False, f"{address}: expected HOST:PORT")
        return
    place = host.strip("[]"), int(port)
    reached = _tried("port", lambda: _port(place))
    yield reached
    if not reached.fine:
        return
    if not insecure:
        trusted = _tried("certificate", lambda: _certificate(place, authority))
        yield trusted
        if not trusted.fine:
            return
    yield _tried("clock", lambda: _clock(address, authority, insecure))


def check_node_key(path: Path) -> Finding:
    """Looks at the key by which a SuperLink knows this node."""

    def look() -> str:
        private_key(path.read_bytes(), path)
        if path.stat().st_mode & 0o077:
            raise InputError(f"{path}: others may read it; run chmod 600 on it")
        return f"{path}: a node's key; its public half must be registered at the SuperLink"

    return _tried("node key", look)


def fingerprint(directory: Directory) -> str:
    """Digest of everybody's keys, 16 hexadecimal digits: what the parties compare by telephone."""
    lines = json.dumps(sorted((name, key.hex()) for name, key in directory.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _tried(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, look())
    except (InputError, dp.LedgerError) as error:
        return Finding(what, False, str(error))
    except OSError as error:
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return Finding(what, False, f"{where}cannot be used: {error.strerror or error}")


def _versions() -> str:
    check_flwr()
    return f"securefl {version('securefl')} with flwr {version('flwr')}; the same on every machine"


def _settings(own: Mapping[str, Any]) -> str:
    check_names(own)
    terms = policy_of(own)
    masked = terms.masks_all or "ledger" in own
    return "every update is masked" if masked else "updates may leave unmasked (secure)"


def _records(name: str, data: Path, column: str) -> str:
    found = read_client(data, ReadOptions(columns=Columns(column)))
    return f'client "{name}": {len(found)} records of {found.X.shape[1]} features in {data}'


def _folder(state: Path) -> str:
    if not state.exists():
        above = next(each for each in state.absolute().parents if each.exists())
        if not os.access(above, os.W_OK | os.X_OK):
            raise InputError(f"{state}: cannot be made, {above} is closed to this user")
        return f"{state}: will be made"
    if not state.is_dir() or not os.access(state, os.W_OK | os.X_OK):
        raise InputError(f"{state}: no folder that this user can write to")
    if state.stat().st_mode & 0o077:
        raise InputError(f"{state}: others may look into it; run chmod 700 on it")
    return f"{state}: private and writable"


def _keys(name: str, own: Mapping[str, Any]) -> str:
    for needed in ("identity", "directory"):
        if needed not in own:
            raise InputError(f"{needed}: missing; masked sums need identity and directory")
    identity: Identity = read_identity(Path(str(own["identity"])))
    path = Path(str(own["directory"]))
    directory = read_directory(path)
    if name not in directory:
        listed = ", ".join(sorted(directory))
        raise InputError(f'{path}: has no "{name}", only {listed}; set name, or add its line')
    if directory[name] != identity.public:
        raise InputError(
            f'{path}: has another key for "{name}" than {own["identity"]}, whose public half is'
            f" {identity.public.hex()}; have everybody put that in"
        )
    return (
        f"{len(directory)} clients, this one by its own key; fingerprint {fingerprint(directory)},"
        " the same by telephone at all of them?"
    )


def _ledger(path: Path) -> str:
    if not path.exists():
        return f"{path}: will be made"
    ledger = dp.Ledger.open(path)
    return f"{path}: whole, {len(ledger.events)} events"


def _port(place: tuple[str, int]) -> str:
    try:
        with socket.create_connection(place, timeout=_PATIENCE):
            return f"{place[0]}:{place[1]} listens"
    except OSError as error:
        raise InputError(
            f"{place[0]}:{place[1]}: cannot be reached ({error.strerror or error}); is the"
            " SuperLink running, and is the way to it open?"
        ) from None


def _certificate(place: tuple[str, int], authority: Path | None) -> str:
    context = tls_context(authority)
    try:
        with (
            socket.create_connection(place, timeout=_PATIENCE) as line,
            context.wrap_socket(line, server_hostname=place[0]) as encrypted,
        ):
            found = encrypted.getpeercert()
    except ssl.SSLCertVerificationError as error:
        raise InputError(
            f"not trusted ({error.verify_message}); name the PEM file of who signed it"
            " (--root-certificates), or the name that it is for (--superlink)"
        ) from None
    except ssl.SSLError as error:
        raise InputError(f"no TLS on this port ({error.reason}); --insecure is plain") from None
    assert found is not None
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(found["notAfter"])), UTC)
    left = (ends - datetime.now(UTC)).days
    soon = ", renew it" if left < _SOON else ""
    return f"trusted, ends in {left} days ({ends:%Y-%m-%d}){soon}"


def _clock(address: str, authority: Path | None, insecure: bool) -> str:
    import httpx

    verify = False if insecure else tls_context(authority)
    url = f"{'http' if insecure else 'https'}://{address}/"
    try:
        with httpx.Client(verify=verify, timeout=_PATIENCE, trust_env=False) as client:
            told = client.get(url).headers["date"]
        ahead = (datetime.now(UTC) - parsedate_to_datetime(told)).total_seconds()
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise InputError(f"{url}: says no time ({type(error).__name__})") from None
    side = "ahead of" if ahead > 0 else "behind"
    text = f"{abs(ahead):.0f} s {side} the SuperLink's"
    if not -BEHIND < ahead < AHEAD:
        raise InputError(f"{text}, which refuses keys beyond {AHEAD:.0f} s and {BEHIND:.0f} s")
    return text
