"""Compressors that round every entry at random: natural compression and dithering (B.3.1)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import PackedCodes, broadcastable
from secure_fl.federation.codes import LINEAR, POWERS, decoded
from secure_fl.trainers.fednl.compressors import Class, Compressed, Compressor, LazyRng
from secure_fl.trainers.fednl.problem import Support
from secure_fl.trainers.fednl.triangles import packed_size

Array = NDArray[Any]


@dataclass(frozen=True)
class _Quantiser(Compressor):
    @property
    def entry_bits(self) -> int:
        """Of an entry, its sign included."""
        raise NotImplementedError

    def codes(self, v: Array, norm: float, rng: np.random.Generator) -> tuple[Array, float, str]:
        """Codes of a vector with that norm, their scale, and what they stand for."""
        raise NotImplementedError

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """Rounded at random, with the vector as its mean."""
        return decoded(*self.codes(v, float(np.linalg.norm(v)), rng))

    def compress_vector(
        self, v: Array, rng: np.random.Generator, draw: int, sparse: bool
    ) -> Compressed:
        """The codes, where sums take them."""
        if not sparse:
            return super().compress_vector(v, rng, draw, sparse)
        codes, scale, kind = self.codes(v, float(np.linalg.norm(v)), rng)
        message = PackedCodes.of(codes, self.entry_bits, scale, kind)
        return Compressed(message, decoded(codes, scale, kind))

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """As `vector`, with the Frobenius norm of the full matrix."""
        return decoded(*self.codes(values, _frobenius(values, support), rng()))

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """The codes of the whole triangle, where sums take them."""
        if not sparse:
            return super().compress(values, support, rng, draw, sparse)
        codes, scale, kind = self.codes(values, _frobenius(values, support), rng())
        message = PackedCodes.of(support.dense(codes), self.entry_bits, scale, kind)
        return Compressed(message, decoded(codes, scale, kind))


def _frobenius(values: Array, support: Support) -> float:
    return float(np.sqrt(support.weights @ values**2))


@broadcastable
@dataclass(frozen=True)
class Natural(_Quantiser):
    """Random rounding to a power of 2 (Horvath et al. 2019): unbiased with omega 1/8.

    Numbers below the smallest normal one, 2^-1022, become 0: they have no exponent of 11 bits.
    """

    def on_matrices(self, d: int) -> Class:
        """Unbiased."""
        return Class(None, 1 / 8)

    on_vectors = on_matrices

    @property
    def entry_bits(self) -> int:
        """A sign and 11 bits of exponent."""
        return 12

    def matrix_bits(self, d: int) -> float:
        """Sign and 11 bits of exponent each."""
        return 12.0 * packed_size(d)

    def vector_bits(self, d: int) -> float:
        """Sign and 11 bits of exponent each."""
        return 12.0 * d

    def codes(self, v: Array, norm: float, rng: np.random.Generator) -> tuple[Array, float, str]:
        """Rounded up or down with the probability that keeps the mean."""
        fraction, exponent = np.frexp(v)  # |fraction| in [1/2, 1)
        up = rng.random(len(v)) < 2.0 * np.abs(fraction) - 1.0
        power = exponent - 1 + up
        codes = np.where((v == 0) | (power < -1022), 0, np.minimum(power, 1023) + 1023)
        return np.sign(v) * codes, 1.0, POWERS


@broadcastable
@dataclass(frozen=True)
class Dithering(_Quantiser):
    """Random dithering with s levels in the Euclidean norm (eqs. 14 and 15)."""

    levels: int

    def __post_init__(self) -> None:
        if not 1 <= self.levels < 2**16:
            raise ValueError(f"levels {self.levels}: expected 1 to 65,535")

    def on_matrices(self, d: int) -> Class:
        """Unbiased, as on the vector of the d^2 entries."""
        return self.on_vectors(d * d)

    def on_vectors(self, d: int) -> Class:
        """Unbiased with min(d/s^2, sqrt(d)/s) (Alistarh et al. 2017)."""
        return Class(None, min(d / self.levels**2, d**0.5 / self.levels))

    @property
    def entry_bits(self) -> int:
        """A sign and a level."""
        return 1 + self.levels.bit_length()

    def _bits(self, count: int) -> float:
        return 64.0 + count * self.entry_bits

    def matrix_bits(self, d: int) -> float:
        """A norm, and a sign and level each."""
        return self._bits(packed_size(d))

    def vector_bits(self, d: int) -> float:
        """A norm, and a sign and level each."""
        return self._bits(d)

    def codes(self, v: Array, norm: float, rng: np.random.Generator) -> tuple[Array, float, str]:
        """Levels of the norm."""
        # Rounding must not lift an entry as long as the vector above the last level.
        level = np.abs(v) * (self.levels / norm) if norm else np.zeros_like(v)
        level = np.minimum(level, self.levels)
        lower = np.floor(level)
        codes = np.sign(v) * (lower + (rng.random(len(v)) < level - lower))
        return codes, norm / self.levels, LINEAR
