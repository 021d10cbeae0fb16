"""Folders that appear whole or not at all, room for them on the disk, and JSON files of others.

For single files see `fhe.envelope.write_atomic`. What the operating system refuses becomes an error
of one line here: `InputError` where the place cannot be used, `StorageError` where it is full.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from dp.storage import FULL, aside_of, sync_folder
from fhe.envelope import load_json
from fhe.errors import StorageError
from secure_fl.errors import InputError

_CANNOT_ALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_BLOCK = bytes(1 << 20)


def place_error(path: Path, problem: OSError) -> InputError | StorageError:
    """What the operating system refused: that file if it names one, else `path`."""
    kind = StorageError if problem.errno in FULL else InputError
    where = problem.filename if isinstance(problem.filename, str) else path
    return kind(f"{where}: cannot be used: {problem.strerror or problem}")


@contextlib.contextmanager
def placed(path: Path) -> Iterator[None]:
    """Turns what the operating system refuses inside into `place_error`; networks' errors pass."""
    try:
        yield
    except (ConnectionError, TimeoutError, InterruptedError):
        raise
    except OSError as problem:
        if problem.errno is None:
            raise
        raise place_error(path, problem) from problem


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_existing(path: Path) -> None:
    """Raises InputError if a new folder cannot take this name; asked before anything is spent."""
    with placed(path):
        taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    if taken:
        raise InputError(f"{path}: exists already; choose another folder or remove it first")


def refuse_existing_file(path: Path) -> None:
    """Raises InputError if a new file cannot take this name."""
    if path.exists():
        raise InputError(f"{path}: exists already; choose another file")


def make_folder(path: Path, mode: int = 0o777) -> None:
    """A folder with its parents, unless it is there.

    Raises:
        InputError: the place cannot be used.
        StorageError: the disk is full.
    """
    with placed(path):
        path.mkdir(parents=True, exist_ok=True, mode=mode)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder that appears under its name only when the block ends without an error.

    Args:
        path: must not exist, or be an empty folder; its parents are made.

    Yields:
        The folder to fill, beside `path`.

    Raises:
        InputError: `path` is a file, or a folder with something in it, or cannot be made; or what
            the block writes cannot be.
        StorageError: the disk is full.
    """
    refuse_existing(path)
    target = Path(os.path.realpath(path))
    make_folder(target.parent)
    with placed(path):
        # A name that the file system does not take shows now, not after the work.
        target.lstat() if os.path.lexists(target) else _try_name(target)
        aside = aside_of(target)
        aside.mkdir()
    try:
        with placed(path):
            yield aside
            sync_folder(aside)
            aside.replace(target)
            sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


@contextlib.contextmanager
def new_files(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """New files that appear in a folder together, when the block ends without an error.

    Args:
        folder: made with its parents where it is absent.
        names: of the files; none may be there.

    Yields:
        A folder aside, to write all of them in.

    Raises:
        InputError: a file is there already, or the place cannot be used.
        StorageError: the disk is full.
    """
    with placed(folder):
        for name in names:
            if (folder / name).exists():
                raise InputError(
                    f"{folder / name}: exists already; remove it or choose another folder"
                )
        made = not folder.exists()
    make_folder(folder)
    aside = folder / f".{secrets.token_hex(4)}.tmp"
    done: list[Path] = []
    try:
        with placed(folder):
            aside.mkdir()
            yield aside
            for name in names:
                (aside / name).replace(folder / name)
                done.append(folder / name)
            aside.rmdir()
            sync_folder(folder)
    except BaseException:
        for path in done:
            path.unlink(missing_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


COMMITTED = ".committed"
"""Folder of files that are decided on and only have to be moved to their places."""
_CHANGE = ".change-"


@contextlib.contextmanager
def changing(folder: Path) -> Iterator[Path]:
    """Files of a folder that get their new content together, whatever kills the process.

    Others that change the folder wait. What the block writes becomes the folder's files when the
    block ends without an error; before that moment nothing of it does, after it everything,
    and a kill in between is made up for by `finish_change`, which readers call first.

    Args:
        folder: exists.

    Yields:
        A folder aside, for the new files under the names of those that they replace.

    Raises:
        InputError: the place cannot be used.
        StorageError: the disk is full.
    """
    with placed(folder):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with placed(folder):
            fcntl.flock(handle, fcntl.LOCK_EX)
            finish_change(folder)
            for left in folder.glob(f"{_CHANGE}*"):
                shutil.rmtree(left)
            aside = folder / f"{_CHANGE}{secrets.token_hex(4)}"
            aside.mkdir(mode=0o700)
        try:
            with placed(folder):
                yield aside
                sync_folder(aside)
                aside.replace(folder / COMMITTED)
                sync_folder(folder)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        finish_change(folder)
    finally:
        os.close(handle)


def finish_change(folder: Path) -> None:
    """Moves what a `changing` decided on to its place, where it was killed before it could.

    Raises:
        InputError: the place cannot be used.
    """
    committed = folder / COMMITTED
    with placed(folder):
        try:
            files = sorted(committed.iterdir())
        except FileNotFoundError:
            return
        for path in files:
            # Another process may be doing the same.
            with contextlib.suppress(FileNotFoundError):
                path.replace(folder / path.name)
        sync_folder(folder)
        with contextlib.suppress(FileNotFoundError):
            committed.rmdir()


def reserve(folder: Path, sizes: Sequence[int]) -> Callable[[], None]:
    """Takes room on the disk for files that will be written in a folder.

    Args:
        folder: exists; of a `new_folder`, say.
        sizes: bytes that each of the files will have at most.

    Returns:
        What gives the room back; to be called just before they are written.

    Raises:
        InputError: the folder cannot be written.
        StorageError: there is not so much room.
    """
    kept: list[Path] = []

    def free() -> None:
        for path in kept:
            path.unlink(missing_ok=True)

    try:
        with placed(folder):
            for size in sizes:
                path = folder / f".{secrets.token_hex(8)}.room"
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                kept.append(path)
                try:
                    _allocate(handle, size)
                finally:
                    os.close(handle)
    except BaseException:
        free()
        raise
    return free


def prove_writable(path: Path, size: int) -> None:
    """Raises what writing a file of that size would, and leaves nothing there.

    Args:
        path: of a file that is replaced later; its folder must exist.
        size: bytes that it will have at most.

    Raises:
        InputError: the place cannot be used.
        StorageError: there is not so much room.
    """
    target = Path(os.path.realpath(path))
    with placed(path):
        if target.is_dir():
            raise InputError(f"{path}: is a folder, expected a file's name")
        if not os.path.lexists(target):
            _try_name(target)
    reserve(target.parent, [size])()


def _try_name(target: Path) -> None:
    """Raises OSError if the file system does not take the name.

    In a folder of its own: a process that is killed here must not leave a file that is empty.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".", suffix=".room", dir=target.parent) as folder:
            (Path(folder) / target.name).touch(exist_ok=False)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(target)) from problem


def _allocate(handle: int, size: int) -> None:
    if size <= 0:
        return
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, size)
            return
        except OSError as problem:
            if problem.errno not in _CANNOT_ALLOCATE:
                raise
    for start in range(0, size, len(_BLOCK)):
        block = memoryview(_BLOCK)[: size - start]
        while block:
            block = block[os.write(handle, block) :]
    os.fsync(handle)


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
