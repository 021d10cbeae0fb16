"""Whether a client's machine is ready to train over a network. Looks, and changes nothing.

What a node would refuse when it starts, and what it could not know: whether the others have this
client's key under its name, whether the clock is right, and when the server's certificate ends.
"""

import functools
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

import dp
from secure_fl.crypto.identities import Members, public_of, read_identity, read_members
from secure_fl.crypto.party import IDENTITY, MEMBERS, NODE
from secure_fl.data import Columns, ReadOptions, read_client
from secure_fl.data.naming import stem
from secure_fl.errors import InputError
from secure_fl.flower.settings import check_names, policy_of
from secure_fl.flower.superlink import AHEAD, BEHIND, check_flwr, private_key
from secure_fl.reaching import tls_context

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_PATIENCE = 10.0
"""Seconds that a server gets to answer."""
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


@frozen
class Door:
    """What a party calls.

    Attributes:
        whose: it is, in words.
        address: HOST:PORT.
        authority: PEM file of who signed its certificate; None trusts the system's.
        insecure: it speaks plain HTTP.
        ahead: seconds that this machine's clock may be ahead of the other's.
        behind: seconds that it may be behind.
    """

    whose: str
    address: str
    authority: Path | None
    insecure: bool
    ahead: float
    behind: float


def superlink(address: str, authority: Path | None, insecure: bool) -> Door:
    """A SuperLink at HOST:PORT."""
    return Door("SuperLink", address, authority, insecure, AHEAD, BEHIND)


def check_door(door: Door) -> Iterator[Finding]:
    """Looks at who is called, from here."""
    host, _, port = door.address.rpartition(":")
    if not host or not port.isdigit():
        yield Finding("port", False, f"{door.address}: expected HOST:PORT")
        return
    place = host.strip("[]"), int(port)
    reached = _tried("port", lambda: _port(door, place))
    yield reached
    if not reached.fine:
        return
    if not door.insecure:
        trusted = _tried("certificate", lambda: _certificate(place, door.authority))
        yield trusted
        if not trusted.fine:
            return
    yield _tried("clock", lambda: _clock(door))


def check_folder(folder: Path) -> Iterator[Finding]:
    """Looks at a party's folder (`secure_fl.crypto.party`), and at what others gave to it."""
    cards = sorted(folder.glob("*.member"))
    secret = folder / IDENTITY
    yield _tried("identity", lambda: _identity(folder, cards))
    if len(cards) == 1:
        yield _tried("members", lambda: _same_role(cards[0], secret, folder / MEMBERS))
    if (folder / NODE).exists():
        yield check_node_key(folder / NODE)
    for path in sorted(folder.glob("*.pem")):
        yield _tried(path.name, functools.partial(_own_certificate, path))


def check_node_key(path: Path) -> Finding:
    """Looks at the key by which a SuperLink knows this node."""

    def look() -> str:
        private_key(path.read_bytes(), path)
        if path.stat().st_mode & 0o077:
            raise InputError(f"{path}: others may read it; run chmod 600 on it")
        return f"{path}: a node's key; its public half must be registered at the SuperLink"

    return _tried("node key", look)


def _tried(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, look())
    except (InputError, dp.LedgerError) as error:
        return Finding(what, False, str(error))
    except OSError as error:
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return Finding(what, False, f"{where}cannot be used: {error.strerror or error}")


def _identity(folder: Path, cards: Sequence[Path]) -> str:
    secret = folder / IDENTITY
    public = public_of(secret)
    if len(cards) != 1:
        raise InputError(f"{folder}: {len(cards)} files *.member, expected the party's own alone")
    (card,) = cards
    read = read_members(card)
    if read != Members({card.stem: bytes.fromhex(public)}, read.marked):
        raise InputError(f"{card}: not of {secret}; make one with securefl identity new --keep")
    does = ", a querier" if read.queriers else ""
    return f'"{card.stem}"{does}, by {secret}'


def _own_certificate(path: Path) -> str:
    """Until when it is good; and, where its key lies beside it, whether they belong together."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        certificate = load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise InputError(f"{path}: no certificate in PEM") from None
    ends = certificate.not_valid_after_utc
    found = f"{_named(certificate)}{_ends(ends.timestamp())}"
    if ends < datetime.now(UTC):
        raise InputError(f"{path}: {found}")
    key = path.with_suffix(".key")
    if not key.exists():
        return found
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, key)
    except ssl.SSLError as error:
        raise InputError(f"{key}: not the key of {path} ({error.reason})") from None
    return f"{found}; with its key"


def _named(certificate: "Certificate") -> str:
    """What callers may call it: a SuperLink's own processes call it 127.0.0.1."""
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except (ExtensionNotFound, ValueError):
        return ""
    return f"for {', '.join(str(each.value) for each in names)[:200]}; "


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
    return _listed(name, Path(str(own["identity"])), Path(str(own["directory"])))


def _same_role(card: Path, secret: Path, path: Path) -> str:
    """As `_listed`, and whether it is a querier to everybody if it is one by its own card."""
    found, listed = _listed(card.stem, secret, path), read_members(path)
    if listed.queriers.count(card.stem) != len(read_members(card).queriers):
        raise InputError(
            f'{path}: "{card.stem}" is a querier in it or in {card}, and not in the other; gather'
            " the list anew"
        )
    return found


def _listed(name: str, secret: Path, path: Path) -> str:
    """Whether everybody has this party's own keys, and the right ones for what it does."""
    identity, members = read_identity(secret), read_members(path)
    if name not in members.listed:
        listed = ", ".join(sorted(members.listed))
        raise InputError(f'{path}: has no "{name}", only {listed}; set name, or add its line')
    keys = members.listed[name].hex()
    # A list of parties that only train has the first half.
    if not keys or not public_of(secret).startswith(keys):
        raise InputError(
            f'{path}: has another key for "{name}" than {secret}, whose public half is'
            f" {identity.public.hex()}; have everybody put that in"
        )
    return (
        f"{len(members.listed)} members, this one by its own key; fingerprint"
        f" {members.fingerprint}, the same by telephone at all of them?"
    )


def _ledger(path: Path) -> str:
    if not path.exists():
        return f"{path}: will be made"
    ledger = dp.Ledger.open(path)
    return f"{path}: whole, {len(ledger.events)} events"


def _port(door: Door, place: tuple[str, int]) -> str:
    try:
        with socket.create_connection(place, timeout=_PATIENCE):
            return f"{place[0]}:{place[1]} listens"
    except OSError as error:
        raise InputError(
            f"{place[0]}:{place[1]}: cannot be reached ({error.strerror or error}); is the"
            f" {door.whose} running, and is the way to it open?"
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
            " (--root-certificates, --authority), or the name that it is for"
        ) from None
    except ssl.SSLError as error:
        raise InputError(f"no TLS on this port ({error.reason}); --insecure is plain") from None
    assert found is not None
    return f"trusted, {_ends(ssl.cert_time_to_seconds(str(found['notAfter'])))}"


def _ends(when: float) -> str:
    ends = datetime.fromtimestamp(when, UTC)
    left = (ends - datetime.now(UTC)).days
    soon = ", renew it" if left < _SOON else ""
    return f"ends in {left} days ({ends:%Y-%m-%d}){soon}"


def _clock(door: Door) -> str:
    import httpx

    verify = False if door.insecure else tls_context(door.authority)
    url = f"{'http' if door.insecure else 'https'}://{door.address}/"
    try:
        with httpx.Client(verify=verify, timeout=_PATIENCE, trust_env=False) as client:
            told = client.get(url).headers["date"]
        ahead = (datetime.now(UTC) - parsedate_to_datetime(told)).total_seconds()
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise InputError(f"{url}: says no time ({type(error).__name__})") from None
    side = "ahead of" if ahead > 0 else "behind"
    text = f"{abs(ahead):.0f} s {side} the {door.whose}'s"
    if not -door.behind < ahead < door.ahead:
        raise InputError(
            f"{text}, which refuses keys beyond {door.ahead:.0f} s and {door.behind:.0f} s"
        )
    return text
