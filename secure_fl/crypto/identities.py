"""Files of a node's lasting signature key, and of everybody's public halves."""

import os
from pathlib import Path

from fhe.envelope import PRIVATE, load_json, write_atomic
from secure_fl.crypto.keys import KEY, Directory, Identity
from secure_fl.errors import InputError


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


def read_directory(path: Path) -> Directory:
    """Public signature keys by client, from a JSON object of hexadecimal strings.

    Raises:
        InputError: it cannot be read or holds something else.
    """
    try:
        found = load_json(path.read_bytes())
        keys = {str(name): bytes.fromhex(key) for name, key in found.items()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, AttributeError):
        raise InputError(
            f'{path}: not a directory; expected {{"client": "64 hexadecimal digits", ...}}'
        ) from None
    for name, key in keys.items():
        if len(key) != KEY:
            raise InputError(f'{path}: the key of "{name}" has {len(key)} bytes, expected {KEY}')
    return keys
