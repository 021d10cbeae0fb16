"""Small files that are always whole: locked, replaced or made, several of them together.

What is replaced is the file itself, wherever a symbolic link to it stands, and its lock is on the
file too: two names of one book lead to one book.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from dp.errors import InputError, StorageError
from dp.storage import FULL, PRIVATE, sync_folder, write_aside


def write_error(path: Path, error: OSError) -> InputError | StorageError:
    """A failure of the operating system as this package's error: the place, or its storage."""
    kind = StorageError if error.errno in FULL else InputError
    return kind(f"{path}: cannot be written ({error.strerror or error})")


def real(path: Path) -> Path:
    """Where the file lies, links followed; it need not exist."""
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Holds an exclusive lock on an existing file; other processes wait.

    Yields:
        Where the file lies.

    Raises:
        InputError: it is missing, cannot be written, or has a second name that would keep the old
            content when this one is replaced.
    """
    target = real(path)
    handle = _lock(target)
    try:
        yield target
    finally:
        os.close(handle)


def _lock(target: Path) -> int:
    while True:
        try:
            handle = os.open(target, os.O_RDWR)
        except OSError as error:
            raise write_error(target, error) from None
        fcntl.flock(handle, fcntl.LOCK_EX)
        held = os.fstat(handle)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(held, target.stat()):
                if held.st_nlink == 1:
                    return handle
                os.close(handle)
                raise InputError(
                    f"{target}: has {held.st_nlink} names (hard links), of which only one would get"
                    " the event; keep one and remove the others, or copy the file"
                )
        # Somebody replaced it while this process waited: lock what is there now.
        os.close(handle)


def create(path: Path, content: bytes) -> None:
    """Makes a file, whole or not at all, and never over one that is there.

    Raises:
        FileExistsError: it is there.
        InputError: the place cannot be written.
        StorageError: the disk is full.
    """
    target = real(path)
    aside = None
    try:
        aside = write_aside(target, content, PRIVATE)
        os.link(aside, target)
        sync_folder(target.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise write_error(target, error) from None
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


def replace(contents: Mapping[Path, tuple[bytes, bytes]]) -> None:
    """Gives each of several files its new content: all of them, or none.

    Everything is on the disk before the first name changes, so a full disk changes nothing; what
    fails later is undone.

    Args:
        contents: old and new content, by real path of files that are locked.

    Raises:
        InputError: a place cannot be written.
        StorageError: the disk is full.
    """
    new: dict[Path, Path] = {}
    old: dict[Path, Path] = {}
    replaced: list[Path] = []
    path = next(iter(contents))
    try:
        for path, (before, after) in contents.items():
            new[path] = write_aside(path, after, PRIVATE)
            if len(contents) > 1:
                old[path] = write_aside(path, before, PRIVATE)
        for path, aside in new.items():
            aside.replace(path)
            replaced.append(path)
        for path in contents:
            sync_folder(path.parent)
    except BaseException as error:
        for each in replaced:
            if each in old:
                old[each].replace(each)
        if isinstance(error, OSError):
            raise write_error(path, error) from None
        raise
    finally:
        for aside in (*new.values(), *old.values()):
            aside.unlink(missing_ok=True)
