"""The evaluator's memory of the batches it answered, so that a replayed one is refused.

One line a batch in the file `answered` beside the evaluation key. The names are digests: the file
says nothing about queries.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from .envelope import write_atomic
from .errors import ContributionError, InputError
from .messages import Message, Sent

FILE = "answered"


def refuse_answered(folder: Path, contributions: Sequence[Sent]) -> None:
    """Refuses contributions to a batch that was answered before.

    Raises:
        ContributionError: so; names the contributor.
        InputError: the memory cannot be read.
    """
    answered = _read(folder)
    for each in contributions:
        if _name(each) in answered:
            raise ContributionError(
                f"contributor {each.name!r}: query batch {each.batch!r:.80} was answered before"
                f" ({folder / FILE}); encrypt again for a new batch"
            )


@contextlib.contextmanager
def recorded(folder: Path, message: Message) -> Iterator[None]:
    """Adds a batch to the memory, and takes it out again if the block that delivers it fails.

    No other process reads or writes the memory meanwhile, so of two that evaluated the same batch
    one delivers. A batch stands in the memory before its answer is anywhere: a kill in between
    leaves a batch that is refused, never an answer that nobody remembers.

    Args:
        folder: of the evaluation key.
        message: the answer that the block delivers.

    Raises:
        ContributionError: another process answered the batch since `refuse_answered`.
        InputError: the folder cannot be locked or written, or the memory cannot be read.
        StorageError: the disk is full.
    """
    name = _name(message)
    with _alone(folder):
        before = _read(folder)
        if name in before:
            raise ContributionError(
                f"query batch {message.batch!r:.80} was answered by another process meanwhile"
                f" ({folder / FILE}); encrypt again for a new batch"
            )
        _write(folder, before | {name})
        try:
            yield
        except BaseException:
            _write(folder, before)
            raise


def refuse_unwritable(folder: Path) -> None:
    """Raises what `recorded` would of the folder, before an evaluation that takes minutes.

    Raises:
        InputError, StorageError: as `recorded`.
    """
    with _alone(folder):
        _write(folder, _read(folder))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps other processes from the memory; the lock is the folder's, for the file is replaced."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{folder}: cannot be opened ({error.strerror})") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be locked ({error.strerror}); use a folder of a local disk"
            ) from error
        yield
    finally:
        os.close(handle)


def _name(message: Message) -> str:
    facts = "\0".join((message.key, message.federation, message.batch))
    return hashlib.sha256(facts.encode()).hexdigest()


def _write(folder: Path, lines: set[str]) -> None:
    write_atomic(folder / FILE, "".join(f"{line}\n" for line in sorted(lines)).encode())


def _read(folder: Path) -> set[str]:
    path = folder / FILE
    try:
        return set(path.read_text(encoding="ascii").splitlines()) if path.exists() else set()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); restore or remove it") from error
