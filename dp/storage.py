"""Files that appear whole or not at all; what the ledger, the envelopes and run folders share.

It stands in the lowest package that writes files, so that there is one such function.
"""

import errno
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What the storage refuses although the place is right."""

PRIVATE = 0o600
"""Permission bits of what its owner alone may read."""


def aside_of(path: Path) -> Path:
    """A new name beside `path`: a rename is atomic only within one file system."""
    # Only the start of the name: it may be as long as a name can be.
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.tmp")


def write_aside(path: Path, content: bytes, mode: int) -> Path:
    """As `write_parts_aside`, of one part."""
    return write_parts_aside(path, (content,), mode)


def write_parts_aside(path: Path, parts: Iterable[bytes], mode: int) -> Path:
    """A new file beside `path` with that content, on the disk; to be renamed over `path`.

    The file never exists with wider access than `mode`, not even for a moment.

    Args:
        path: the file that is to be replaced or made; its folder must exist.
        parts: of the content, one after the other.
        mode: permission bits.

    Returns:
        Where the file is. It is gone again when an error is raised.

    Raises:
        OSError: as the operating system says.
    """
    aside = aside_of(path)
    handle = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return aside


def sync_folder(folder: Path) -> None:
    """Puts a folder's names on the disk, so that a rename in it outlives a power cut.

    Raises:
        OSError: as the operating system says.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
