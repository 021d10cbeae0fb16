"""Bodies of a hundred megabytes as files beside a database that holds their digests.

A body is written to a file aside while it arrives, and gets its name, the SHA-256 of its content,
when all of it is there and on the disk. So a file with a name is whole, whatever killed a process.
Files are not overwritten when they are erased: they are ciphertexts, which none of the evaluator's
keys opens.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from dp.storage import sync_folder
from fhe.envelope import PRIVATE, write_error
from secure_fl.files import digest_of, make_folder
from secure_fl.service.slices import is_digest

_ASIDE = ".part"
BLOCK = 1 << 20
"""Bytes that are read and written at once."""


class Arrival:
    """A body that arrives; gone again at the end of the block unless it is kept.

    Args:
        folder: where it is to stay.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._hashed = folder, hashlib.sha256()
        self.path = folder / f"{secrets.token_hex(8)}{_ASIDE}"
        self.size = 0

    def __enter__(self) -> Self:
        """The body, empty.

        Raises:
            InputError, StorageError: the file cannot be made.
        """
        with self._writing():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self.path, flags, PRIVATE), "wb", buffering=0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Removes what was not kept."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    @property
    def digest(self) -> str:
        """SHA-256 of what arrived, 64 hexadecimal digits."""
        return self._hashed.hexdigest()

    def write(self, piece: bytes) -> None:
        """Takes the next piece.

        Raises:
            InputError, StorageError: it cannot be written, or the disk is full.
        """
        with self._writing():
            left = memoryview(piece)
            while left:
                left = left[self._file.write(left) :]
        self._hashed.update(piece)
        self.size += len(piece)

    def keep(self) -> Path:
        """Gives the file its name; all of it is on the disk when this returns.

        Raises:
            InputError, StorageError: it cannot be written.
        """
        with self._writing():
            os.fsync(self._file.fileno())
            named = self.path.replace(self._folder / self.digest)
            sync_folder(self._folder)
        return named

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise write_error(self._folder, problem) from problem


class Blobs:
    """A folder of such files.

    Args:
        folder: made where absent, mode 0700.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder, mode=0o700)
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Where the file of a digest is."""
        return self.folder / digest

    def arriving(self) -> Arrival:
        """A new file."""
        return Arrival(self.folder)

    def made(self, write: Callable[[Path], object]) -> str:
        """The digest of a file that `write` makes at a place it is told."""
        aside = self.folder / f"{secrets.token_hex(8)}{_ASIDE}"
        try:
            write(aside)
            digest = digest_of(aside)
            aside.replace(self.path(digest))
        finally:
            aside.unlink(missing_ok=True)
        sync_folder(self.folder)
        return digest

    def clean(self) -> None:
        """Removes what a killed process was writing; for who holds the folder alone."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif not is_digest(path.name):
                path.unlink(missing_ok=True)

    def sweep(self, kept: Callable[[], Collection[str]]) -> None:
        """Removes all whole files but those that are to be kept.

        Args:
            kept: gives their digests; not asked where there are no files.
        """
        names = [path.name for path in self.folder.iterdir() if is_digest(path.name)]
        for name in set(names).difference(kept() if names else ()):
            self.path(name).unlink(missing_ok=True)
