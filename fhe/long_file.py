"""Envelope files that are written in parts: what is in them need never be in memory at once."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .envelope import PUBLIC, head_of, write_atomic_parts
from .errors import LibraryError


def write_in_parts(
    path: Path,
    kind: str,
    header: Mapping[str, Any],
    parts: Iterable[bytes],
    size: int,
    *,
    mode: int = PUBLIC,
) -> int:
    """Writes an envelope file whole or not at all; returns its size in bytes.

    Args:
        path, kind, header, mode: as `fhe.envelope.write_envelope`.
        parts: of the payload, one after the other.
        size: of all of them, which the file says before the first.

    Raises:
        InputError, StorageError: as `fhe.envelope.write_envelope`.
        LibraryError: the parts have another size; there is no file.
    """
    head = head_of(kind, header, size)
    write_atomic_parts(path, _whole(path, head, parts, size), mode=mode)
    return len(head) + size + hashlib.sha256().digest_size


def _whole(path: Path, head: bytes, parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The envelope's head, the parts of its payload, and the digest of both."""
    digest, made = hashlib.sha256(), 0
    for part in itertools.chain((head,), parts):
        digest.update(part)
        made += len(part)
        yield part
    if made != len(head) + size:
        raise LibraryError(f"{path}: {made} bytes, expected {len(head) + size}")
    yield digest.digest()
