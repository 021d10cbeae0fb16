"""The one file format of the project: a versioned, length-capped envelope.

Layout, integers little-endian:

    8  magic            89 53 46 4C 0D 0A 1A 0A (as PNG's: survives no text-mode transfer)
    4  format version   1, or 3
    4  header length    at most 1 MiB
    8  payload length   at most what the reader allows
    .  header           a JSON object in UTF-8; its member "kind" says what the file is
    .  payload          safetensors, the FHE library's own bytes, or nothing
    .  digest           of everything before it: 1: SHA-256, 32 bytes; 3: AES-GMAC under a public
                        key, 16 bytes

The digest finds damage, not forgery: whoever can edit a file can also renew its digest. What must
not be forged is bound by other means (fingerprints in the header, authenticated encryption). So
messages of megabytes that are written to be read once have version 3, whose digest takes a
twentieth of the time and misses damage that knows nothing of the key with a probability below
2^-100 up to the largest payload. Files have version 1. Version 2 had Poly1305 for a digest.

Of the standard library, but for AES-GMAC, so that every package can write its artifacts with it.
"""

import functools
import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dp.storage import FULL, PRIVATE, sync_folder, write_parts_aside

from .errors import FormatError, InputError, StorageError, VersionError
from .payload import Payload
from .strict_json import load_json

__all__ = [
    "FORMAT_VERSION",
    "MAGIC",
    "MAX_PAYLOAD",
    "PRIVATE",
    "PUBLIC",
    "Envelope",
    "Payload",
    "head_of",
    "load_json",
    "pack",
    "read_envelope",
    "read_header",
    "read_in_parts",
    "unpack",
    "unpack_view",
    "write_atomic",
    "write_envelope",
    "write_error",
]

MAGIC = b"\x89SFL\r\n\x1a\n"
FORMAT_VERSION = 1
FAST_VERSION = 3
MAX_HEADER = 1 << 20
# Evaluation keys of the largest circuits are near 100 MB; nothing legitimate comes close to this.
MAX_PAYLOAD = 1 << 30
PUBLIC = 0o644

_JSON = json.JSONEncoder(allow_nan=False, sort_keys=True)
_FRAME = struct.Struct("<8sIIQ")
_DIGEST = hashlib.sha256().digest_size
_TAG = 16
# Public: it makes a polynomial for each bit pattern of a message, and keeps nothing from anybody.
_FAST_KEY = hashlib.sha256(b"securefl envelope, version 3").digest()
_NONCE = bytes(12)


@dataclass(frozen=True)
class Envelope:
    """What a file carries.

    Attributes:
        kind: what the file is, e.g. "fhe public key".
        header: the JSON object, without its "kind".
        payload: raw bytes.
    """

    kind: str
    header: Mapping[str, Any]
    payload: bytes


def pack(
    kind: str, header: Mapping[str, Any], payload: bytes = b"", *, fast: bool = False
) -> bytes:
    """The bytes of an envelope.

    Args:
        kind: what it is; not empty.
        header: JSON types only, no NaN or infinity, no member "kind"; at most 1 MiB as text.
        payload: raw bytes.
        fast: version 3, for messages that are read once; only `unpack` reads it.

    Raises:
        InputError: a header that JSON cannot hold or that is too long, or an empty kind.
    """
    version = FAST_VERSION if fast else FORMAT_VERSION
    head = head_of(kind, header, len(payload), fast=fast)
    whole = bytearray().join((head, payload))
    whole += _digest_of(whole, version)
    return bytes(whole)


def head_of(kind: str, header: Mapping[str, Any], size: int, *, fast: bool = False) -> bytes:
    """What stands before a payload of so many bytes; arguments and errors as `pack`."""
    if not kind or "kind" in header:
        raise InputError("an envelope needs a kind, and its header may not hold one of its own")
    try:
        text = _JSON.encode({"kind": kind, **header})
    except (TypeError, ValueError) as problem:
        raise InputError(f"header of {kind!r}: {problem}; use JSON types only") from problem
    head = text.encode()
    if fast:
        # Numbers of the payload stand at multiples of their size, and can be used where they are.
        head += b" " * (-(_FRAME.size + len(head)) % 8)
    if len(head) > MAX_HEADER:
        raise InputError(f"header of {kind!r}: {len(head)} bytes, the limit is {MAX_HEADER}")
    version = FAST_VERSION if fast else FORMAT_VERSION
    return _FRAME.pack(MAGIC, version, len(head), size) + head


def _digest_of(body: bytes | bytearray | memoryview, version: int) -> bytes:
    if version == FORMAT_VERSION:
        return hashlib.sha256(body).digest()
    return _fast_digest().encrypt(_NONCE, b"", body)


@functools.cache
def _fast_digest() -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(_FAST_KEY)


def unpack(
    data: bytes,
    kind: str | Iterable[str] | None = None,
    *,
    source: str | Path = "the data",
    max_payload: int = MAX_PAYLOAD,
) -> Envelope:
    """Reads an envelope from bytes, refusing everything that is not exactly one.

    Args:
        data: the bytes.
        kind: the kind (or kinds) expected; None takes any.
        source: the file's name, for messages.
        max_payload: bytes a payload may have, at least 0.

    Raises:
        VersionError: another format version; names the source and both versions.
        FormatError: not an envelope, truncated, longer than it says, over a cap, damaged, or of
            another kind.
    """
    found, header, payload = unpack_view(data, kind, source=source, max_payload=max_payload)
    return Envelope(found, header, bytes(payload))


def unpack_view(
    data: bytes,
    kind: str | Iterable[str] | None = None,
    *,
    source: str | Path = "the data",
    max_payload: int = MAX_PAYLOAD,
    parse: Callable[[bytes], Any] | None = None,
) -> tuple[str, dict[str, Any], memoryview]:
    """As `unpack`, kind, header and payload, which is not copied.

    Args:
        data, kind, source, max_payload: as `unpack`.
        parse: in place of `load_json`, which it calls; what it gives is not written to.

    Raises:
        VersionError, FormatError: as `unpack`.
    """
    versions = (FORMAT_VERSION, FAST_VERSION)
    head_length, payload_length = _frame(data[: _FRAME.size], source, max_payload, versions)
    version = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little")
    size = _TAG if version == FAST_VERSION else _DIGEST
    expected = _FRAME.size + head_length + payload_length + size
    if len(data) != expected:
        state = "truncated" if len(data) < expected else "too long"
        raise FormatError(
            f"{source}: {state}, {len(data)} bytes where its frame says {expected}; get it again"
        )
    if _digest_of(memoryview(data)[:-size], version) != data[-size:]:
        raise FormatError(f"{source}: its digest does not fit its content; get it again")
    start = _FRAME.size + head_length
    found, header = _header(data[_FRAME.size : start], source, parse or load_json)
    _check_kind(found, kind, source)
    return found, header, memoryview(data)[start : start + payload_length]


def read_envelope(
    path: str | Path, kind: str | Iterable[str] | None = None, *, max_payload: int = MAX_PAYLOAD
) -> Envelope:
    """Reads an envelope file; the lengths are checked before anything large is read.

    Raises:
        InputError: the file cannot be read.
        VersionError, FormatError: as `unpack`.
    """
    with _open(path) as file:
        frame = file.read(_FRAME.size)
        head_length, payload_length = _frame(frame, path, max_payload)
        # One byte more than it should have, so that an overlong file is seen without reading it.
        rest = file.read(head_length + payload_length + _DIGEST + 1)
    return unpack(frame + rest, kind, source=path, max_payload=max_payload)


def read_in_parts(
    path: str | Path, kind: str | Iterable[str] | None = None, *, max_payload: int = MAX_PAYLOAD
) -> tuple[str, dict[str, Any], Payload]:
    """Kind, header and payload of a file; digest and length are checked, the payload stays there.

    Raises:
        InputError: the file cannot be read.
        VersionError, FormatError: as `unpack`.
    """
    digest = hashlib.sha256()
    with _open(path) as file:
        frame = file.read(_FRAME.size)
        head_length, payload_length = _frame(frame, path, max_payload)
        text = file.read(head_length)
        digest.update(frame + text)
        left = payload_length
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
        rest = file.read(_DIGEST + 1)
    if left or len(rest) != _DIGEST:
        state = "too long" if len(rest) > _DIGEST else "truncated"
        raise FormatError(f"{path}: {state}; get it again")
    if digest.digest() != rest:
        raise FormatError(f"{path}: its digest does not fit its content; get it again")
    found, header = _header(text, path, load_json)
    _check_kind(found, kind, path)
    return found, header, Payload(Path(path), _FRAME.size + head_length, payload_length)


def read_header(
    path: str | Path, kind: str | Iterable[str] | None = None
) -> tuple[str, dict[str, Any], int]:
    """Kind, header and payload length of a file, without its payload; the digest is not checked.

    Raises:
        InputError: the file cannot be read.
        VersionError, FormatError: as `unpack`, except for damage further in.
    """
    with _open(path) as file:
        head_length, payload_length = _frame(file.read(_FRAME.size), path, MAX_PAYLOAD)
        found, header = _header(file.read(head_length), path, load_json)
    _check_kind(found, kind, path)
    return found, header, payload_length


def write_envelope(
    path: str | Path,
    kind: str,
    header: Mapping[str, Any],
    payload: bytes = b"",
    *,
    mode: int = PUBLIC,
) -> int:
    """Writes an envelope file whole or not at all; returns its size in bytes.

    Raises:
        InputError: as `pack`, or the file cannot be written.
        StorageError: the disk is full.
    """
    data = pack(kind, header, payload)
    write_atomic(path, data, mode=mode)
    return len(data)


def write_atomic(path: str | Path, data: bytes, *, mode: int = PUBLIC) -> None:
    """As `write_atomic_parts`, of one part."""
    write_atomic_parts(path, (data,), mode=mode)


def write_atomic_parts(path: str | Path, parts: Iterable[bytes], *, mode: int = PUBLIC) -> None:
    """Writes a file whole or not at all: aside, to disk, then renamed into place.

    The file never exists with wider access than `mode`, not even for a moment. Where `path` is a
    symbolic link, the file that it leads to is replaced and the link stays.

    Args:
        path: where; its folder must exist.
        parts: of the content, one after the other.
        mode: permission bits.

    Raises:
        InputError: the folder is absent or not writable, or the name cannot be.
        StorageError: the disk is full.
    """
    target = Path(os.path.realpath(path))
    try:
        aside = write_parts_aside(target, parts, mode)
        try:
            aside.replace(target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
    except OSError as problem:
        raise write_error(path, problem) from problem


def write_error(path: str | Path, problem: OSError) -> InputError | StorageError:
    """What the operating system refused, as an error of one line: the place, or its storage."""
    kind = StorageError if problem.errno in FULL else InputError
    return kind(f"{path}: cannot be written: {problem.strerror or problem}")


def _open(path: str | Path) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror or problem}") from problem


def _frame(
    frame: bytes,
    source: str | Path,
    max_payload: int,
    versions: tuple[int, ...] = (FORMAT_VERSION,),
) -> tuple[int, int]:
    if frame[: len(MAGIC)] != MAGIC[: len(frame)] or not frame:
        raise FormatError(f"{source}: not a securefl file (its first bytes are {frame[:8]!r})")
    if len(frame) < _FRAME.size:
        raise FormatError(f"{source}: truncated after {len(frame)} bytes; get it again")
    _, version, head_length, payload_length = _FRAME.unpack(frame)
    if version not in versions:
        reads = " and ".join(map(str, versions))
        raise VersionError(
            f"{source}: format version {version}, this package reads version {reads}; "
            "use the securefl release that wrote it, or write it again with this one"
        )
    if head_length > MAX_HEADER:
        raise FormatError(f"{source}: header of {head_length} bytes, the limit is {MAX_HEADER}")
    if payload_length > max_payload:
        raise FormatError(
            f"{source}: payload of {payload_length} bytes, the limit is {max_payload}"
        )
    return head_length, payload_length


def _header(
    text: bytes, source: str | Path, parse: Callable[[bytes], Any]
) -> tuple[str, dict[str, Any]]:
    try:
        header = parse(text)
    except ValueError as problem:
        raise FormatError(f"{source}: its header is not JSON; get it again") from problem
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise FormatError(f'{source}: its header is not an object with a "kind"; get it again')
    return header["kind"], {key: value for key, value in header.items() if key != "kind"}


def _check_kind(found: str, wanted: str | Iterable[str] | None, source: str | Path) -> None:
    if wanted is None:
        return
    kinds = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if found not in kinds:
        raise FormatError(
            f"{source}: this is a {found!r}, expected {' or '.join(map(repr, kinds))}"
        )
