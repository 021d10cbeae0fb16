"""Compressors of symmetric matrices and of vectors (FedNL, Definitions 3.2 and 3.3, B.3).

A matrix is compressed on its lower triangle, so what comes out is symmetric. Each compressor says
which class it belongs to: contractive with delta (eq. 4) or unbiased with omega (eq. 3), in the
Frobenius norm of the full matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import SparseArray, Tree, broadcastable
from secure_fl.trainers.fednl.problem import Support
from secure_fl.trainers.fednl.triangles import pack, packed_size, unpack

Array = NDArray[Any]


@dataclass(frozen=True)
class Class:
    """The class of a compressor.

    Attributes:
        delta: contraction, E|C(M) - M|^2 <= (1 - delta) |M|^2 and |C(M)| <= |M|, in [0, 1]; None
            where it is not contractive.
        omega: E C(M) = M and E|C(M) - M|^2 <= omega |M|^2; None where it is biased.
    """

    delta: float | None = None
    omega: float | None = None


@dataclass(frozen=True)
class Compressed:
    """A compressed difference of Hessians, or a compressed vector.

    Attributes:
        message: the leaf that goes into the sum.
        values: the same on the client's support, shape (p,); of a vector the whole, shape (d,).
    """

    message: Tree
    values: Array


@dataclass(frozen=True)
class Compressor:
    """What every compressor can do.

    `entrywise` compressors leave zeros zero, so a sparse client keeps a sparse estimate.
    `summable` ones put the same entries at every client, so that messages add up as plain arrays.
    """

    @property
    def entrywise(self) -> bool:
        """Whether zeros stay zeros."""
        return True

    @property
    def summable(self) -> bool:
        """Whether the message is an array whose entries mean the same at every client."""
        return False

    def on_matrices(self, d: int) -> Class:
        """The class on symmetric (d, d) matrices."""
        raise NotImplementedError

    def on_vectors(self, d: int) -> Class:
        """The class on vectors of length d."""
        raise NotImplementedError

    def matrix_bits(self, d: int) -> float:
        """Bits of one message: 64 a float, 32 an index; none where a shared seed tells them."""
        raise NotImplementedError

    def vector_bits(self, d: int) -> float:
        """Bits of one compressed vector."""
        raise NotImplementedError

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """The compressed vector, shape (d,)."""
        raise NotImplementedError

    def compress_vector(
        self, v: Array, rng: np.random.Generator, draw: int, sparse: bool
    ) -> "Compressed":
        """Compresses a vector and makes the message of it; arguments as of `compress`."""
        kept = self.vector(v, rng, draw)
        return Compressed(kept, kept)

    def values(self, values: Array, support: Support, rng: "LazyRng", draw: int) -> Array:
        """The compressed values on a support that holds all entries other than 0."""
        raise NotImplementedError

    def compress(
        self, values: Array, support: Support, rng: "LazyRng", draw: int, sparse: bool
    ) -> Compressed:
        """Compresses a difference and makes the message of it.

        Args:
            values: on the support; not changed.
            support: of the client.
            rng: makes the client's generator when called.
            draw: the round, from which shared randomness follows.
            sparse: whether sums take sparse arrays.
        """
        kept = self.values(values, support, rng, draw)
        if not sparse:
            return Compressed(support.dense(kept), kept)
        nonzero = np.flatnonzero(kept)
        message = SparseArray(support.index[nonzero], kept[nonzero], packed_size(support.d))
        return Compressed(message, kept)

    def expand(self, total: Array, d: int, draw: int) -> Array:
        """The packed triangle of a sum of messages."""
        return total

    def matrix(self, M: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """The compressed symmetric matrix, shape (d, d)."""
        support = Support.full(len(M))
        return unpack(self.values(pack(M), support, lambda: rng, draw), len(M))


LazyRng = Callable[[], np.random.Generator]
INDEX_BITS = 32


@broadcastable
@dataclass(frozen=True)
class Identity(Compressor):
    """Sends everything: FedNL with it, H^0 = 0 and alpha = 1 is Newton's method a round late."""

    def on_matrices(self, d: int) -> Class:
        """Both classes at once."""
        return Class(1.0, 0.0)

    on_vectors = on_matrices

    def matrix_bits(self, d: int) -> float:
        """The triangle."""
        return 64.0 * packed_size(d)

    def vector_bits(self, d: int) -> float:
        """All floats."""
        return 64.0 * d

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """A copy."""
        return v.copy()

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """A copy."""
        return values.copy()


@broadcastable
@dataclass(frozen=True)
class Scaled(Compressor):
    """C / (omega + 1): an unbiased compressor made contractive with delta 1/(omega + 1).

    The bound holds in the mean over the draws, as in Beznosikov et al. 2020.
    """

    inner: Compressor

    @property
    def entrywise(self) -> bool:
        """As the inner one."""
        return self.inner.entrywise

    @property
    def summable(self) -> bool:
        """As the inner one."""
        return self.inner.summable

    def on_matrices(self, d: int) -> Class:
        """Contractive."""
        return Class(1.0 / (1.0 + _omega(self.inner, self.inner.on_matrices(d))))

    def on_vectors(self, d: int) -> Class:
        """Contractive."""
        return Class(1.0 / (1.0 + _omega(self.inner, self.inner.on_vectors(d))))

    def matrix_bits(self, d: int) -> float:
        """As the inner one."""
        return self.inner.matrix_bits(d)

    def vector_bits(self, d: int) -> float:
        """As the inner one."""
        return self.inner.vector_bits(d)

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """The inner one's, scaled."""
        return self.inner.vector(v, rng, draw) * (self.on_vectors(len(v)).delta or 0.0)

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """The inner one's, scaled."""
        scale = self.on_matrices(support.d).delta or 0.0
        return self.inner.values(values, support, rng, draw) * scale

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """The inner one's, scaled."""
        scale = self.on_matrices(support.d).delta or 0.0
        found = self.inner.compress(values * scale, support, rng, draw, sparse)
        return found

    def expand(self, total: Array, d: int, draw: int) -> Array:
        """As the inner one."""
        return self.inner.expand(total, d, draw)


def _omega(compressor: Compressor, found: Class) -> float:
    if found.omega is None:
        raise ValueError(f"{compressor}: not unbiased, so it cannot be scaled")
    return found.omega


def learning_rate(rate: str | float, compressor: Compressor, d: int) -> float:
    """alpha (Assumption 3.4 and 3.5).

    Args:
        rate: "one"; "contractive", 1 - sqrt(1 - delta); "unbiased", 1/(omega + 1); or a number;
            "auto" takes 1 for a contractive compressor and 1/(omega + 1) otherwise.
        compressor: of the Hessians.
        d: order of the matrix.

    Raises:
        ValueError: an unknown name, a negative number, or a rate of the other class.
    """
    if isinstance(rate, (int, float)):
        if not (np.isfinite(rate) and rate >= 0):
            raise ValueError(f"learning rate {rate}: expected a finite number of at least 0")
        return float(rate)
    found = compressor.on_matrices(d)
    if rate == "one" or (rate == "auto" and found.delta is not None):
        return 1.0
    if rate == "contractive" and found.delta is not None:
        return 1.0 - (1.0 - found.delta) ** 0.5
    if rate in ("unbiased", "auto") and found.omega is not None:
        return 1.0 / (found.omega + 1.0)
    raise ValueError(f"learning rate {rate!r}: not for {compressor}, whose class is {found}")
