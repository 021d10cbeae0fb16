"""A party's folder, which is the same whatever the party does: train, lead, answer or ask.

    identity       signs, and opens what is sealed to it; see `secure_fl.crypto.identities`
    node           by which a SuperLink knows its node: ECDSA P-384, drawn by itself, as SSH has it
    NAME.member    for everybody: its line of the list of members
    NAME.pub       for whoever runs a SuperLink: the public half of `node`

What others give to it lies beside: members.json, and the authority that certificates are of.
"""

from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fhe.envelope import PRIVATE, write_atomic
from secure_fl.crypto.identities import (
    Members,
    marked_of,
    public_of,
    read_identity,
    read_members,
    write_identity,
)
from secure_fl.errors import InputError
from secure_fl.files import new_folder

IDENTITY, NODE, MEMBERS = "identity", "node", "members.json"


def new_node_key() -> bytes:
    """A node's private key, PEM, as `ssh-keygen -t ecdsa -b 384` makes it."""
    return ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def public_half(key: bytes) -> bytes:
    """The public half of a node's private key, as a SuperLink registers it."""
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return serialization.load_ssh_private_key(key, None).public_key().public_bytes(*form)


def make_party(folder: Path, name: str, kept: Path | None = None, *, asks: bool = False) -> Members:
    """Makes a party's folder, mode 0700.

    Args:
        folder: absent or empty.
        name: of the party, as everybody lists it.
        kept: secret file that the party has already; None draws one.
        asks: whether it is a querier, as everybody lists it; one called "querier" is.

    Returns:
        What it hands out.

    Raises:
        InputError: the name cannot be one of a file, the folder has something in it, or the secret
            file cannot be used.
    """
    if Path(name).name != name or not name.isprintable():
        raise InputError(f"name {name[:80]!r}: expected one that a file can have")
    marked = marked_of([name] if asks else [])
    with new_folder(folder) as aside:
        aside.chmod(0o700)
        secret = aside / IDENTITY
        if kept is None:
            write_identity(secret)
        else:
            read_identity(kept)
            write_atomic(secret, kept.read_bytes(), mode=PRIVATE)
        node = new_node_key()
        write_atomic(aside / NODE, node, mode=PRIVATE)
        write_atomic(aside / f"{name}.pub", public_half(node) + b"\n")
        made = Members({name: bytes.fromhex(public_of(secret))}, marked)
        write_atomic(aside / f"{name}.member", made.to_json())
    return made


def gather(files: Sequence[Path]) -> Members:
    """One list of what parties handed out, or of lists.

    Raises:
        InputError: a file cannot be used, two have other keys or another role for one name, or two
            names one key.
    """
    found: dict[str, bytes] = {}
    marked: set[str] = set()
    for path in files:
        read = read_members(path)
        for name, keys in read.listed.items():
            if name in found and (name in marked) != (name in read.marked):
                raise InputError(
                    f'{path}: "{name}" is a querier in one of the files and none in another; ask'
                    " it which it is"
                )
            before = found.get(name, b"")
            # A list of parties that only train has the first half.
            if not (keys.startswith(before) or before.startswith(keys)):
                raise InputError(
                    f'{path}: has other keys for "{name}" than a file before it; ask it by another'
                    " way which are its own"
                )
            found[name] = max(before, keys, key=len)
        marked |= read.marked
    owners: dict[bytes, str] = {}
    for name, key in Members(found).directory.items():
        if owners.setdefault(key, name) != name:
            raise InputError(
                f'members: "{owners[key]}" and "{name}" have the same key; each makes its own'
            )
    return Members(found, frozenset(marked))
