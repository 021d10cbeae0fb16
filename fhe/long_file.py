"""Envelope files that are written in parts: what is in them need never be in memory at once."""

import hashlib
import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dp.storage import aside_of, sync_folder

from .envelope import PUBLIC, head_of, write_error
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
    target, digest = Path(os.path.realpath(path)), hashlib.sha256()
    aside, head, made = aside_of(target), head_of(kind, header, size), 0
    try:
        handle = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                for part in itertools.chain((head,), parts):
                    digest.update(part)
                    made += file.write(part)
                if made != len(head) + size:
                    raise LibraryError(f"{path}: {made} bytes, expected {len(head) + size}")
                made += file.write(digest.digest())
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            aside.replace(target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
    except OSError as problem:
        raise write_error(path, problem) from problem
    return made
