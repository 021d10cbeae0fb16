"""Fixed-point numbers in the integers modulo 2^bits, sized so that no sum can wrap.

A value x becomes round(x 2^e) as a signed integer of `bits` bits. The exponent e is the largest for
which n values at the clip, and the room asked for noise, stay below half of the modulus; so the
signed sum is the sum of the signed values, exactly.
"""

import math
from typing import Any, Literal

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from secure_fl.errors import FederationError

Words = NDArray[Any]
"""Unsigned integers modulo 2^32 or 2^64: uint32 or uint64."""

MOST_PRECISE = 52
"""A double carries no more bits below the clip."""


@frozen
class FixedPoint:
    """The encoding that all clients of a round share.

    Attributes:
        clip: largest magnitude of one entry, above 0.
        clients: values that may be added, at least 1.
        bits: of the modulus, 32 or 64.
        outside: what happens to a larger value: "clip" moves it to the clip and counts it,
            "error" raises.

    Raises:
        FederationError: an attribute out of range, or a modulus too small for the clip.
    """

    clip: float
    clients: int
    bits: int = 64
    outside: Literal["clip", "error"] = "clip"

    def __attrs_post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise FederationError(f"clip: found {self.clip}, expected a finite number above 0")
        if self.bits not in (32, 64):
            raise FederationError(f"bits: found {self.bits}, expected 32 or 64")
        if self.clients < 1:
            raise FederationError(f"clients: found {self.clients}, expected at least 1")
        if self.outside not in ("clip", "error"):
            raise FederationError(f'outside: found {self.outside!r}, expected "clip" or "error"')
        if self.largest < 1:
            raise FederationError(
                f"bits: {self.clients} clients leave nothing of a modulus of {self.bits} bits;"
                " take 64"
            )

    @property
    def largest(self) -> int:
        """Magnitude of the code of the clip, so that `clients` of them cannot wrap."""
        room = (2 ** (self.bits - 1) - 1) // self.clients
        return min(2 ** (room.bit_length() - 1) if room else 0, 2**MOST_PRECISE)

    @property
    def step(self) -> float:
        """Distance of two neighbouring values; every entry is off by at most half of it."""
        return self.clip / self.largest

    def encode(self, values: NDArray[np.float64]) -> tuple[Words, int]:
        """The codes of values, and how many were moved to the clip.

        Args:
            values: shape (d,), finite.

        Raises:
            FederationError: a value outside the clip, where that is an error.
        """
        with np.errstate(over="ignore"):  # an infinite one ends at the clip like any large one
            scaled = values * (self.largest / self.clip)
        outside = int(np.count_nonzero(np.abs(values) > self.clip))
        if outside and self.outside == "error":
            raise FederationError(
                f"{outside} of {len(values)} values lie outside the clip {self.clip:g} (largest"
                f" {np.abs(values).max():g}); raise the clip of the secure aggregation"
            )
        np.rint(scaled, out=scaled)
        np.clip(scaled, -self.largest, self.largest, out=scaled)
        return self.wrap(scaled.astype(np.int64)), outside

    def wrap(self, codes: NDArray[np.int64]) -> Words:
        """Signed codes as residues."""
        return codes.view(np.uint64) if self.bits == 64 else codes.astype(np.uint32)

    def unwrap(self, total: Words) -> NDArray[np.int64]:
        """The signed sum of which `total` is the residue."""
        return total.view(np.int64) if self.bits == 64 else total.view(np.int32).astype(np.int64)

    def decode(self, total: Words) -> NDArray[np.float64]:
        """The values of a sum of codes, shape (d,)."""
        return self.unwrap(total) * (self.clip / self.largest)
