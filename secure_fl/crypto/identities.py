"""Files of a party's lasting secret, and the list of everybody's public halves.

The secret is 32 bytes of the operating system's randomness: the Ed25519 key that signs. The X25519
key that queries are sealed to follows from it by HKDF under a label of its own, so that a party has
one file to keep, whatever it takes part in.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fhe.envelope import PRIVATE, load_json, write_atomic
from secure_fl.crypto.keys import KEY, Directory, Identity, derive
from secure_fl.errors import InputError

QUERIER, EVALUATOR = "querier", "evaluator"
NOT_CLIENTS = ("server", QUERIER, EVALUATOR)
"""Parties that are no clients: who leads a training, who asks, and who answers on ciphertexts."""
MARK = "querier:"
"""Stands before the keys of a party that asks and is not called "querier"."""


def write_identity(path: Path) -> str:
    """Makes a signature key (Ed25519), mode 0600; returns its public half, hexadecimal.

    Raises:
        InputError: the file exists.
    """
    if path.exists():
        raise InputError(f"{path}: exists already; a client keeps its identity for good")
    secret = os.urandom(KEY)
    write_atomic(path, secret, mode=PRIVATE)
    return Identity(lambda _: secret).public.hex()


def read_identity(path: Path) -> Identity:
    """The signature key in a file.

    Raises:
        InputError: it cannot be read, others may read it, or it holds something else.
    """
    try:
        mode, secret = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if mode & 0o077:
        raise InputError(f"{path}: others may read it; run chmod 600 on it")
    if len(secret) != KEY:
        raise InputError(f"{path}: found {len(secret)} bytes, expected {KEY} of an identity")
    return Identity(lambda _: secret)


def sealing_of(path: Path) -> X25519PrivateKey:
    """The key that opens what is sealed to the party of a secret file.

    Raises:
        InputError: as `read_identity`.
    """
    read_identity(path)
    return X25519PrivateKey.from_private_bytes(derive(path.read_bytes(), b"sealing key"))


def public_of(path: Path) -> str:
    """Both public keys of a secret file, 128 hexadecimal digits: signing, then sealing.

    Raises:
        InputError: as `read_identity`.
    """
    sealing = sealing_of(path).public_key().public_bytes_raw()
    return (read_identity(path).public + sealing).hex()


@frozen
class Members:
    """Everybody's public keys, as members.json lists them.

    Attributes:
        listed: by name; 64 bytes, or the first 32 in lists of parties that only train.
        marked: names of parties that ask, beside "querier": what a name says of nobody else.
    """

    listed: Mapping[str, bytes]
    marked: frozenset[str] = frozenset()

    @property
    def directory(self) -> Directory:
        """The keys that check signatures."""
        return {name: keys[:KEY] for name, keys in self.listed.items()}

    @property
    def clients(self) -> Directory:
        """Those keys of clients alone: nobody else has a part in their sums."""
        others = self.marked.union(NOT_CLIENTS)
        return {name: key for name, key in self.directory.items() if name not in others}

    @property
    def queriers(self) -> tuple[str, ...]:
        """Names of parties that ask, in the list's order."""
        return tuple(name for name in self.listed if name == QUERIER or name in self.marked)

    def asking(self, names: Collection[str]) -> tuple[str, ...]:
        """These queriers, or all of the list where none is named.

        Raises:
            InputError: one is no querier in the list: to those who train by it it is a client.
        """
        for name in names:
            if name not in self.queriers:
                raise InputError(
                    f'members: "{name}" is no querier in the list, which has'
                    f" {', '.join(self.queriers) or 'none'}; it is made with securefl identity new"
                    " --querier"
                )
        return tuple(names) or self.queriers

    @property
    def said(self) -> dict[str, str]:
        """Keys as texts: hexadecimal digits, behind a mark where a party asks."""
        marks = dict.fromkeys(self.marked, MARK)
        return {name: marks.get(name, "") + keys.hex() for name, keys in self.listed.items()}

    @property
    def fingerprint(self) -> str:
        """Digest of names, keys and who asks, 16 hexadecimal digits, to compare by telephone."""
        lines = json.dumps(sorted(self.said.items()))
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    def of(self, names: Collection[str]) -> dict[str, str]:
        """What a manifest lists of these parties, as far as they are members.

        Raises:
            InputError: one has no key to seal to.
        """
        found = {name: self.listed[name].hex() for name in names if name in self.listed}
        for name, keys in found.items():
            if len(keys) != 4 * KEY:
                raise InputError(
                    f'members: "{name}" has 64 digits, of a party that only trains; expected 128,'
                    " as securefl identity new --keep makes them of its key"
                )
        return found

    def to_json(self) -> bytes:
        """The file."""
        return (json.dumps(self.said, indent=1, ensure_ascii=False) + "\n").encode()


def marked_of(names: Iterable[str]) -> frozenset[str]:
    """Names of queriers that a list marks: all but "querier", which says it by itself.

    Raises:
        InputError: a name says that its party does something else.
    """
    found = frozenset(names) - {QUERIER}
    for name in sorted(found.intersection(NOT_CLIENTS)):
        raise InputError(f'members: "{name}" is marked as a querier, and is none by its name')
    return found


def read_members(path: Path) -> Members:
    """Public keys by name, from a JSON object of hexadecimal strings.

    Raises:
        InputError: it cannot be read or holds something else.
    """
    try:
        found = load_json(path.read_bytes())
        keys = {str(name): bytes.fromhex(key.removeprefix(MARK)) for name, key in found.items()}
        asking = [str(name) for name, key in found.items() if key.startswith(MARK)]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, AttributeError):
        raise InputError(
            f'{path}: not a list of members; expected {{"client": "128 hexadecimal digits", ...}}'
        ) from None
    for name, key in keys.items():
        if len(key) not in (KEY, 2 * KEY):
            raise InputError(
                f'{path}: the key of "{name}" has {len(key)} bytes, expected {2 * KEY}, or {KEY} of'
                " a party that only trains"
            )
    return Members(keys, marked_of(asking))


def read_directory(path: Path) -> Directory:
    """The keys of a list of members that check signatures.

    Raises:
        InputError: as `read_members`.
    """
    return read_members(path).directory
