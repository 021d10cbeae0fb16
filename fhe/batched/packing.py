"""Residues in as few bits as their primes have: the library writes 64 a residue.

A polynomial modulo a prime of w bits is w planes of n / 64 words. Residue i = 64-bit lane j, word r
(i = j n / 64 + r) takes the bits j w..(j + 1) w - 1 of the w words that the planes have at r, least
significant first. So every step works on n / 64 residues at once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fhe.errors import FormatError

Residues = np.ndarray[Any, np.dtype[np.uint64]]
_LANES = 64


def packed_bytes(primes: Sequence[int], degree: int, polynomials: int) -> int:
    """Bytes of polynomials modulo all the primes."""
    return sum(prime.bit_length() for prime in primes) * degree // 8 * polynomials


def pack(residues: Residues, primes: Sequence[int]) -> bytes:
    """Residues, shape (polynomials, primes, n), prime by prime: what fewer primes need comes first.

    Every residue must be below its prime.
    """
    return b"".join(_packed(residues[:, j], prime.bit_length()) for j, prime in enumerate(primes))


def _packed(residues: Residues, width: int) -> bytes:
    polynomials, degree = residues.shape
    lanes = residues.reshape(polynomials, _LANES, degree // _LANES)
    planes = np.zeros((polynomials, width, degree // _LANES), np.uint64)
    for j in range(_LANES):
        plane, shift = divmod(j * width, 64)
        planes[:, plane] |= lanes[:, j] << np.uint64(shift)
        if shift + width > 64:
            planes[:, plane + 1] |= lanes[:, j] >> np.uint64(64 - shift)
    return planes.astype("<u8").tobytes()


def unpack(data: bytes, primes: Sequence[int], degree: int, polynomials: int) -> Residues:
    """What `pack` made, shape (polynomials, primes, n).

    Args:
        data: exactly `packed_bytes` long.
        primes: of the modulus.
        degree: n.
        polynomials: how many.

    Raises:
        FormatError: another length, or a residue that is not below its prime.
    """
    expected = packed_bytes(primes, degree, polynomials)
    if len(data) != expected:
        raise FormatError(f"{len(data)} bytes of residues, expected {expected}")
    found = np.empty((polynomials, len(primes), degree), np.uint64)
    start = 0
    for j, prime in enumerate(primes):
        size = packed_bytes((prime,), degree, polynomials)
        found[:, j] = _unpacked(data[start : start + size], prime.bit_length(), polynomials)
        if int(found[:, j].max()) >= prime:
            raise FormatError("a residue that is not below its prime")
        start += size
    return found


def _unpacked(data: bytes, width: int, polynomials: int) -> Residues:
    planes = np.frombuffer(data, "<u8").astype(np.uint64).reshape(polynomials, width, -1)
    mask = np.uint64((1 << width) - 1)
    lanes = np.empty((polynomials, _LANES, planes.shape[2]), np.uint64)
    for j in range(_LANES):
        plane, shift = divmod(j * width, 64)
        lane = planes[:, plane] >> np.uint64(shift)
        if shift + width > 64:
            lane |= planes[:, plane + 1] << np.uint64(64 - shift)
        lanes[:, j] = lane & mask
    return lanes.reshape(polynomials, -1)
