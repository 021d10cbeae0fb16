"""Compressors that round every entry at random: natural compression and dithering (B.3.1)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import broadcastable
from secure_fl.fednl.compressors import Class, Compressor, LazyRng
from secure_fl.fednl.problem import Support
from secure_fl.fednl.triangles import packed_size

Array = NDArray[Any]


@broadcastable
@dataclass(frozen=True)
class Natural(Compressor):
    """Random rounding to a power of 2 (Horvath et al. 2019): unbiased with omega 1/8."""

    def on_matrices(self, d: int) -> Class:
        """Unbiased."""
        return Class(None, 1 / 8)

    on_vectors = on_matrices

    def matrix_bits(self, d: int) -> float:
        """Sign and 11 bits of exponent each."""
        return 12.0 * packed_size(d)

    def vector_bits(self, d: int) -> float:
        """Sign and 11 bits of exponent each."""
        return 12.0 * d

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """Rounded up or down with the probability that keeps the mean."""
        fraction, exponent = np.frexp(v)  # |fraction| in [1/2, 1)
        up = rng.random(len(v)) < 2.0 * np.abs(fraction) - 1.0
        return np.where(v == 0, 0.0, np.ldexp(np.sign(fraction) * 0.5, exponent + up))

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """As `vector`."""
        return self.vector(values, rng(), draw)


@broadcastable
@dataclass(frozen=True)
class Dithering(Compressor):
    """Random dithering with s levels in the Euclidean norm (eqs. 14 and 15)."""

    levels: int

    def __post_init__(self) -> None:
        if self.levels < 1:
            raise ValueError(f"levels {self.levels}: expected at least 1")

    def on_matrices(self, d: int) -> Class:
        """Unbiased, as on the vector of the d^2 entries."""
        return self.on_vectors(d * d)

    def on_vectors(self, d: int) -> Class:
        """Unbiased with min(d/s^2, sqrt(d)/s) (Alistarh et al. 2017)."""
        return Class(None, min(d / self.levels**2, d**0.5 / self.levels))

    def _bits(self, count: int) -> float:
        return 64.0 + count * (1 + np.ceil(np.log2(self.levels + 1)))

    def matrix_bits(self, d: int) -> float:
        """A norm, and a sign and level each."""
        return self._bits(packed_size(d))

    def vector_bits(self, d: int) -> float:
        """A norm, and a sign and level each."""
        return self._bits(d)

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """Levels of the vector's norm."""
        return self._dither(v, float(np.linalg.norm(v)), rng)

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """Levels of the full matrix's Frobenius norm."""
        norm = float(np.sqrt(support.weights @ values**2))
        return self._dither(values, norm, rng())

    def _dither(self, v: Array, norm: float, rng: np.random.Generator) -> Array:
        if norm == 0:
            return np.zeros_like(v)
        level = np.abs(v) * (self.levels / norm)
        lower = np.floor(level)
        return np.sign(v) * (norm / self.levels) * (lower + (rng.random(len(v)) < level - lower))
