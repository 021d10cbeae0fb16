"""Folders that appear whole or not at all, and JSON files of others.

For single files see `fhe.envelope.write_atomic`.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fhe.envelope import load_json
from secure_fl.errors import InputError


def refuse_existing(path: Path) -> None:
    """Raises InputError if a new folder cannot take this name; asked before anything is spent."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path}: exists already; choose another folder or remove it first")


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
    refuse_existing(path)
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


@contextlib.contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that its owner alone may read, on the disk when the block ends.

    Args:
        path: must not exist; meant for a folder that `new_folder` yields.

    Raises:
        OSError: the file exists, or the folder is absent, full or not writable.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def read_json_object(path: Path, max_bytes: int, what: str) -> dict[str, Any]:
    """The object in a JSON file that anybody may have written.

    Args:
        path: of the file.
        max_bytes: that it may have.
        what: the file is expected to be, for messages.

    Raises:
        InputError: missing, too large, not readable as JSON, or not an object.
    """
    try:
        if path.stat().st_size > max_bytes:
            raise InputError(f"{path}: larger than {max_bytes} bytes, not a {what}")
        content = load_json(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path}: not found; expected a {what}") from error
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({type(error).__name__})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds {type(content).__name__}, expected a JSON object")
    return content


def _aside(path: Path) -> Path:
    # Beside the target: a rename is atomic only within one file system.
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
