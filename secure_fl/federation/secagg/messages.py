"""The protocol's messages: encoded by `wire`, checked field by field when read."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fhe.errors import FormatError, VersionError
from secure_fl.errors import FederationError, ProtocolError
from secure_fl.federation import wire
from secure_fl.federation.secagg.parameters import PROTOCOL

ADVERTISE = "secure sum: advertisement"
ADVERTISED = "secure sum: advertisements"
SHARE = "secure sum: shares"
SHARED = "secure sum: shares for one client"
MASK = "secure sum: masked vector"
MASKED = "secure sum: survivors"
CONFIRM = "secure sum: confirmation"
CONFIRMED = "secure sum: confirmations"
UNMASK = "secure sum: opened shares"


def pack(kind: str, context: bytes, fields: Mapping[str, Any]) -> bytes:
    """A message of one sum."""
    whole = {"protocol": PROTOCOL, "context": blob(context), **fields}
    # Seals and the context's keys bind what must not be forged; SHA-256 of megabytes adds nothing.
    return wire.encode(whole, kind=kind, fast=True)


def unpack(kind: str, context: bytes, data: bytes, source: str) -> "Fields":
    """The fields of a message.

    Raises:
        ProtocolError: damaged, of another kind or version of the protocol, or of another sum
            (session, round, call, or what clients must have been told alike).
    """
    try:
        value = wire.decode(data, kind=kind, source=source, in_place=True)
    except (FormatError, VersionError, FederationError) as error:
        raise ProtocolError(str(error)) from error
    if not isinstance(value, dict):
        raise ProtocolError(f"{source}: {kind} without fields")
    check_version(value.get("protocol", 1), source)
    fields = Fields(value, f"{source}: {kind}")
    if fields.fixed("context", 32) != context:
        raise ProtocolError(
            f"{source}: {kind} of another session, round or call, or of clients"
            " that were told otherwise; not used"
        )
    return fields


def check_version(found: object, source: str) -> None:
    """Raises ProtocolError where the other side speaks another version of the protocol."""
    if found != PROTOCOL:
        raise ProtocolError(
            f"{source}: speaks version {found} of secure sums, this side version {PROTOCOL};"
            " install the same securefl on every machine"
        )


class Fields:
    """A message's fields, each read with the type it must have.

    Every reader raises ProtocolError where the field is absent or something else.
    """

    def __init__(self, value: Mapping[str, Any], where: str) -> None:
        self._value = value
        self._where = where

    def fixed(self, name: str, size: int) -> bytes:
        """A field of so many bytes."""
        return self._array(name, (size,)).tobytes()

    def byte_rows(self, name: str, rows: int, size: int) -> list[bytes]:
        """A field of so many rows of so many bytes."""
        whole = self._array(name, (rows, size)).tobytes()
        return [whole[i * size : (i + 1) * size] for i in range(rows)]

    def rows(self, name: str, rows: int, size: int) -> Any:
        """As `byte_rows`, an array that lies where the message does."""
        return self._array(name, (rows, size))

    def names(self, name: str) -> tuple[str, ...]:
        """A list of clients without repetition."""
        found = self._value.get(name)
        if not isinstance(found, list) or not set(map(type, found)) <= {str}:
            raise ProtocolError(f"{self._where}: {name} is not a list of clients")
        if len(set(found)) != len(found):
            raise ProtocolError(f"{self._where}: {name} names a client twice")
        return tuple(found)

    def text(self, name: str) -> str:
        """A string."""
        found = self._value.get(name)
        if not isinstance(found, str):
            raise ProtocolError(f"{self._where}: {name} is not a text")
        return found

    def vector(self, name: str, bits: int) -> Any:
        """A vector of unsigned integers of that many bits."""
        found = self._value.get(name)
        if not isinstance(found, np.ndarray) or found.ndim != 1:
            raise ProtocolError(f"{self._where}: {name} is not a vector")
        if found.dtype != np.dtype(f"u{bits // 8}"):
            raise ProtocolError(
                f"{self._where}: {name} has type {found.dtype}, expected {bits} bits"
            )
        return found

    def _array(self, name: str, shape: tuple[int, ...]) -> Any:
        found = self._value.get(name)
        if not isinstance(found, np.ndarray) or found.dtype != np.uint8 or found.shape != shape:
            raise ProtocolError(f"{self._where}: {name} is not {' x '.join(map(str, shape))} bytes")
        return found


def blob(data: bytes) -> Any:
    """Bytes as an array that a message can carry."""
    return np.frombuffer(data, np.uint8)


def blobs(rows: Sequence[bytes], size: int) -> Any:
    """Rows of `size` bytes as an array that a message can carry."""
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), size)
