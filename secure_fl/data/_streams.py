"""Bytes of a file, decompressed, with a cap: a small file may unpack to more than the memory."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from secure_fl.data.naming import compression
from secure_fl.errors import FormatError

MAX_BYTES = 4 * 2**30
"""Decompressed bytes a reader accepts by default: 8 million records of 128 float32 features."""
_CHUNK = 2**20
_DICTIONARY = 2**28
"""Bytes that an .xz file may ask for to be unpacked; `xz -9` asks for 2**26."""
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
_MARK = b"\xef\xbb\xbf"
_FOREIGN_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Byte-order marks of UTF-16 and UTF-32."""


def read_capped(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The file's content, decompressed where its name ends in .bz2, .gz or .xz, in any case.

    An archive is one or more streams, perhaps padded with zeros; anything else after them is
    damage, for all kinds.

    Args:
        path: the file.
        max_bytes: cap on the decompressed size.

    Raises:
        FormatError: absent, not a file, over the cap, or a damaged or truncated archive.
    """
    chunks: list[bytes] = []
    total = 0
    try:
        for chunk in _chunks(path):
            total += len(chunk)
            if total > max_bytes:
                raise FormatError(
                    f"{path}: more than {max_bytes:,} bytes unpacked; split the file or raise"
                    " max_bytes"
                )
            chunks.append(chunk)
    except FormatError:
        raise
    except _DAMAGED as error:
        raise _damaged(path, error) from None
    except OSError as error:
        raise unreadable(path, error) from None
    return b"".join(chunks)


def read_unmarked(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of a text file, without UTF-8's byte-order mark.

    Raises:
        FormatError: as `read_capped`, or with the mark of another encoding.
    """
    content = read_capped(path, max_bytes)
    if content.startswith(_FOREIGN_MARKS):
        raise FormatError(f"{path}: line 1 is not UTF-8; convert the file to UTF-8")
    return content.removeprefix(_MARK)


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """The file as UTF-8 text, without a byte-order mark.

    Raises:
        FormatError: as `read_unmarked`, or not UTF-8.
    """
    content = read_unmarked(path, max_bytes)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{path}: line {line} is not UTF-8; convert the file to UTF-8") from None


def _damaged(path: Path, error: Exception) -> FormatError:
    """The one-line error for an archive that its format's library refuses."""
    if isinstance(error, lzma.LZMAError) and "memory" in str(error).lower():
        return FormatError(
            f"{path}: needs more than {_DICTIONARY:,} bytes of memory to be unpacked; pack it with"
            " a smaller dictionary, e.g. xz -9"
        )
    return FormatError(f"{path}: damaged or truncated archive; copy the file again")


def unreadable(path: Path, error: OSError) -> FormatError:
    """The one-line error for a file that the system, or its archive format, refuses."""
    if isinstance(error, FileNotFoundError):
        return FormatError(f"{path}: no such file; check the path")
    if error.strerror is None:
        # bz2 reports a damaged stream as an OSError without a number.
        return FormatError(f"{path}: damaged or truncated archive; copy the file again")
    return FormatError(f"{path}: {error.strerror.lower()}; check the path and its permissions")


def beginning(path: Path) -> bytes:
    """The first megabyte of a text file, without UTF-8's byte-order mark.

    Raises:
        FormatError: absent, not a file, or a damaged archive.
    """
    try:
        return next(iter(_chunks(path)), b"").removeprefix(_MARK)
    except _DAMAGED as error:
        raise _damaged(path, error) from None
    except OSError as error:
        raise unreadable(path, error) from None


def _chunks(path: Path) -> Iterator[bytes]:
    """The unpacked content, piece by piece, none larger than `_CHUNK`."""
    packed = compression(path)
    if packed and path.is_file() and path.stat().st_size == 0:
        raise EOFError
    if packed in _DECOMPRESSORS:
        yield from _unpacked(path, _DECOMPRESSORS[packed])
        return
    with gzip.open(path, "rb") if packed else path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_DICTIONARY)


_DECOMPRESSORS: dict[str, Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]] = {
    ".bz2": bz2.BZ2Decompressor,
    ".xz": _xz,
}


def _unpacked(
    path: Path, new: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]
) -> Iterator[bytes]:
    # bz2.open and lzma.open ignore whatever follows the first stream and is none, or take it for
    # one cut short; gzip.open does not.
    with path.open("rb") as file:
        pieces = iter(partial(file.read, _CHUNK), b"")
        data = next(pieces, b"")
        while data:
            decompressor = new()
            while not decompressor.eof:
                if chunk := decompressor.decompress(data, _CHUNK):
                    yield chunk
                data = b""
                if decompressor.needs_input:
                    data = next(pieces, b"")
                    if not data:
                        raise EOFError
            data = decompressor.unused_data.lstrip(b"\0")
            while not data and (more := next(pieces, b"")):
                data = more.lstrip(b"\0")
