"""Writing that leaves nothing half-written: write aside, fsync, rename."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from secure_fl.errors import InputError


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file so that a reader sees all of it or none.

    Args:
        path: replaced if it exists; its folder must exist.
        content: the whole file.

    Raises:
        OSError: the folder is absent, full or not writable.
    """
    aside = _aside(path)
    try:
        with aside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder that appears under its name only when the block ends without an error.

    Args:
        path: must not exist, or be an empty folder; its parents are made.

    Yields:
        The folder to fill, beside `path`.

    Raises:
        InputError: `path` is a file, or a folder with something in it.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path}: exists already; choose another folder or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(path)
    aside.mkdir()
    try:
        yield aside
        _sync_folder(aside)
        aside.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _aside(path: Path) -> Path:
    # Beside the target: a rename is atomic only within one file system.
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
