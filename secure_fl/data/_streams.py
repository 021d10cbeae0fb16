"""Bytes of a file, decompressed, with a cap: a small file may unpack to more than the memory."""

import bz2
import gzip
import zlib
from pathlib import Path
from typing import IO

from secure_fl.errors import FormatError

MAX_BYTES = 4 * 2**30
"""Decompressed bytes a reader accepts by default: 8 million records of 128 float32 features."""
_CHUNK = 2**20
COMPRESSED = (".bz2", ".gz")


def read_capped(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The file's content, decompressed where its name ends in .bz2 or .gz.

    Args:
        path: the file.
        max_bytes: cap on the decompressed size.

    Raises:
        FormatError: absent, not a file, over the cap, or a damaged or truncated archive.
    """
    chunks: list[bytes] = []
    total = 0
    try:
        with _open(path) as stream:
            while chunk := stream.read(_CHUNK):
                total += len(chunk)
                if total > max_bytes:
                    raise FormatError(
                        f"{path}: more than {max_bytes:,} bytes unpacked; split the file or raise"
                        " max_bytes"
                    )
                chunks.append(chunk)
    except FormatError:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise FormatError(f"{path}: damaged or truncated archive; copy the file again") from None
    except OSError as error:
        raise unreadable(path, error) from None
    return b"".join(chunks)


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """The file as UTF-8 text, without a byte order mark.

    Raises:
        FormatError: as `read_capped`, or not UTF-8.
    """
    content = read_capped(path, max_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{path}: line {line} is not UTF-8; convert the file to UTF-8") from None


def unreadable(path: Path, error: OSError) -> FormatError:
    """The one-line error for a file that the system, or its archive format, refuses."""
    if isinstance(error, FileNotFoundError):
        return FormatError(f"{path}: no such file; check the path")
    if error.strerror is None:
        # bz2 reports a damaged stream as an OSError without a number.
        return FormatError(f"{path}: damaged or truncated archive; copy the file again")
    return FormatError(f"{path}: {error.strerror.lower()}; check the path and its permissions")


def _open(path: Path) -> IO[bytes] | gzip.GzipFile | bz2.BZ2File:
    if path.suffix == ".bz2":
        return bz2.open(path, "rb")
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return path.open("rb")
