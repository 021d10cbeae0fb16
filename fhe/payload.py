"""Payloads that are read in parts, wherever they lie."""

from dataclasses import dataclass
from pathlib import Path

from .errors import InputError


@dataclass(frozen=True)
class Payload:
    """A payload that is read in parts: of a file, or of bytes in memory.

    Attributes:
        source: the file, or the bytes.
        start: where the payload begins in it.
        size: its bytes.
    """

    source: Path | bytes
    start: int
    size: int

    def read(self, start: int, size: int) -> bytes:
        """Bytes of the payload from a place on; fewer at its end.

        Raises:
            InputError: the file cannot be read.
        """
        size = max(0, min(size, self.size - start))
        start += self.start
        if isinstance(self.source, bytes):
            return self.source[start : start + size]
        try:
            with self.source.open("rb") as file:
                file.seek(start)
                return file.read(size)
        except OSError as problem:
            raise InputError(
                f"{self.source}: cannot be read: {problem.strerror or problem}"
            ) from problem
