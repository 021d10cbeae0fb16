"""Reading and replacing a small file under a lock, so that it is always whole."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from dp.errors import InputError


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock beside `path`; other processes wait.

    Raises:
        InputError: the folder is missing or cannot be written.
    """
    try:
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise InputError(f"{path}: its folder cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def replace(path: Path, content: bytes) -> None:
    """Writes aside, syncs, renames: a reader or a crash sees the old file or the new one."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    handle = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
