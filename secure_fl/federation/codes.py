"""PackedCodes vectors as messages: whole numbers of a few bits each, packed end to end."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import FederationError

Array = NDArray[Any]

LINEAR, POWERS = "linear", "powers"
"""A code c stands for scale * c, or for sign(c) * scale * 2^(|c| - 1023) and 0 for c = 0."""


@dataclass(frozen=True, eq=False)
class PackedCodes:
    """A vector whose entries are a few bits each; in sums it is the vector.

    Attributes:
        data: the codes, sign first, `bits` bits each, packed; uint8.
        bits: of a code with its sign, 2 to 17.
        size: length of the vector.
        scale: finite.
        kind: "linear" or "powers".

    Raises:
        FederationError: the parts do not fit together.
    """

    data: NDArray[np.uint8]
    bits: int
    size: int
    scale: float
    kind: str = LINEAR

    def __post_init__(self) -> None:
        wanted = -(-self.bits * self.size // 8)
        fits = self.data.dtype == np.uint8 and self.data.shape == (wanted,)
        if not (fits and 2 <= self.bits <= 17 and self.size >= 0 and self.kind in (LINEAR, POWERS)):
            raise FederationError(
                f"quantised: found {self.data.dtype}{self.data.shape}, {self.bits} bits, size"
                f" {self.size}, {self.kind!r}; expected {wanted} bytes of 2 to 17 bits an entry"
            )

    @staticmethod
    def of(codes: Array, bits: int, scale: float, kind: str = LINEAR) -> "PackedCodes":
        """Packs whole numbers of magnitude below 2^(bits - 1), shape (size,)."""
        whole = codes.astype(np.int64)
        unsigned = np.abs(whole) | (np.int64(whole < 0) << (bits - 1))
        each = (unsigned[:, None] >> np.arange(bits - 1, -1, -1)) & 1
        return PackedCodes(np.packbits(each.astype(np.uint8)), bits, len(codes), float(scale), kind)

    def dense(self) -> Array:
        """The vector, shape (size,), float64."""
        each = np.unpackbits(self.data, count=self.size * self.bits).reshape(self.size, self.bits)
        size = each[:, 1:].astype(np.int64) @ (1 << np.arange(self.bits - 2, -1, -1))
        return decoded(np.where(each[:, 0] == 1, -size, size), self.scale, self.kind)


def decoded(codes: Array, scale: float, kind: str) -> Array:
    """What codes stand for, float64."""
    if kind == LINEAR:
        return scale * codes.astype(np.float64)
    power = np.ldexp(1.0, np.abs(codes).astype(np.int64) - 1023)
    return np.where(codes == 0, 0.0, np.sign(codes) * scale * power)
