"""Compressors of symmetric matrices and of vectors (FedNL, Definitions 3.2 and 3.3, B.3).

A matrix is compressed on its lower triangle, so what comes out is symmetric. Each compressor says
which class it belongs to: contractive with delta (eq. 4) or unbiased with omega (eq. 3), in the
Frobenius norm of the full matrix.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import SparseArray, Tree, broadcastable
from secure_fl.fednl.problem import Support
from secure_fl.fednl.triangles import entries_of, pack, packed_size, unpack

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
    """A compressed difference of Hessians.

    Attributes:
        message: the leaf that goes into the sum.
        values: the same on the client's support, shape (p,).
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


@dataclass(frozen=True)
class _Sparsifier(Compressor):
    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k = {self.k}: a sparse message needs at least 1 entry")

    def matrix_bits(self, d: int) -> float:
        """k floats and k indices, or the triangle where that is less."""
        size = packed_size(d)
        return min((64.0 + INDEX_BITS) * min(self.k, size), 64.0 * size)

    def vector_bits(self, d: int) -> float:
        """k floats and k indices, or the vector where that is less."""
        return min((64.0 + INDEX_BITS) * min(self.k, d), 64.0 * d)


def _largest(values: Array, k: int) -> NDArray[np.int64]:
    if k >= len(values):
        return np.arange(len(values), dtype=np.int64)
    from secure_fl.fednl import kernels

    size = np.abs(values)
    threshold = np.partition(size, len(size) - k)[len(size) - k]
    out = np.empty(k, np.int64)
    kernels.largest(values, float(threshold), int((size > threshold).sum()), k, out)
    return out


@broadcastable
@dataclass(frozen=True)
class TopK(_Sparsifier):
    """The k entries of largest magnitude of the lower triangle (B.3.3); exactly k, ties in order.

    delta = k/d^2 on matrices: a kept entry may stand on the diagonal, a dropped one counts twice.
    """

    def on_matrices(self, d: int) -> Class:
        """Contractive."""
        return Class(1.0 if self.k >= packed_size(d) else self.k / d**2)

    def on_vectors(self, d: int) -> Class:
        """Contractive with k/d."""
        return Class(min(self.k / d, 1.0))

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """The largest entries."""
        out = np.zeros_like(v)
        kept = _largest(v, self.k)
        out[kept] = v[kept]
        return out

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """The largest entries."""
        return self.vector(values, None)  # type: ignore[arg-type]  # nothing random in it

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """See `Compressor.compress`."""
        if not sparse:
            return super().compress(values, support, rng, draw, sparse)
        places = _largest(values, self.k)
        kept = np.zeros_like(values)
        kept[places] = values[places]
        size = packed_size(support.d)
        return Compressed(SparseArray(support.index[places], values[places], size), kept)


@broadcastable
@dataclass(frozen=True)
class RandK(_Sparsifier):
    """k entries of the lower triangle at random, scaled to be unbiased (eq. 20).

    The entries are drawn from the whole triangle, so omega = T/k - 1 with T = d(d+1)/2.
    """

    def on_matrices(self, d: int) -> Class:
        """Unbiased."""
        return Class(None, max(packed_size(d) / self.k - 1, 0.0))

    def on_vectors(self, d: int) -> Class:
        """Unbiased with d/k - 1."""
        return Class(None, max(d / self.k - 1, 0.0))

    def chosen(self, size: int, rng: LazyRng, draw: int) -> NDArray[np.int64]:
        """Ascending places of the entries sent."""
        if self.k >= size:
            return np.arange(size, dtype=np.int64)
        return np.sort(rng().choice(size, self.k, replace=False, shuffle=False))

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """Random entries times d/k."""
        out = np.zeros_like(v)
        kept = self.chosen(len(v), lambda: rng, draw)
        out[kept] = v[kept] * (len(v) / len(kept))
        return out

    def picked(
        self, values: Array, support: Support, rng: LazyRng, draw: int
    ) -> tuple[NDArray[np.int64], Array, Array]:
        """Places, scaled entries at them, and the same on the support."""
        from secure_fl.fednl import kernels

        size = packed_size(support.d)
        places = self.chosen(size, rng, draw)
        sent = np.empty(len(places))
        kept = np.zeros(len(values))
        kernels.take_and_learn(support.index, values, places, size / len(places), 1.0, kept, sent)
        return places, sent, kept

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """Random entries times T/k."""
        return self.picked(values, support, rng, draw)[2]

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """See `Compressor.compress`."""
        places, sent, kept = self.picked(values, support, rng, draw)
        if not sparse:
            return Compressed(support.dense(kept), kept)
        return Compressed(SparseArray(places, sent, packed_size(support.d)), kept)


@functools.lru_cache(maxsize=4)
def _shared_places(seed: int, draw: int, size: int, k: int) -> NDArray[np.int64]:
    rng = np.random.default_rng([seed, draw])
    places = np.sort(rng.choice(size, k, replace=False, shuffle=False))
    places.setflags(write=False)
    return places


@broadcastable
@dataclass(frozen=True)
class SharedRandK(RandK):
    """Rand-K whose entries everybody derives from a public seed and the round.

    Indices cost nothing, and as they are the same at every client the values add up: the one sparse
    compressor that secure aggregation can sum.

    Attributes:
        k: entries, at least 1.
        seed: public; not a secret.
    """

    seed: int = 0

    @property
    def summable(self) -> bool:
        """The same entries everywhere."""
        return True

    def matrix_bits(self, d: int) -> float:
        """k floats."""
        return 64.0 * min(self.k, packed_size(d))

    def vector_bits(self, d: int) -> float:
        """k floats."""
        return 64.0 * min(self.k, d)

    def chosen(self, size: int, rng: LazyRng, draw: int) -> NDArray[np.int64]:
        """Places that follow from seed and draw."""
        return _shared_places(self.seed, draw, size, min(self.k, size))

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """Values alone, shape (k,)."""
        _, sent, kept = self.picked(values, support, rng, draw)
        return Compressed(sent, kept)

    def expand(self, total: Array, d: int, draw: int) -> Array:
        """Puts the summed values at their places."""
        out = np.zeros(packed_size(d))
        out[self.chosen(len(out), np.random.default_rng, draw)] = total
        return out


@dataclass(frozen=True)
class _LowRank(Compressor):
    rank: int

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank {self.rank}: expected at least 1")

    @property
    def entrywise(self) -> bool:
        """An outer product fills every entry."""
        return False

    def low_rank(self, M: Array, rng: LazyRng) -> Array:
        """The approximation of a symmetric matrix."""
        raise NotImplementedError

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """The approximation on the support, computed among the features present."""
        rows, columns = entries_of(support.index)
        off = rows != columns
        reached = np.unique(np.concatenate([rows[off], columns[off]]))
        # Features that occur alone stand on the diagonal only; they count where they are not 0.
        lone = rows[(~off) & (values != 0)]
        reached = np.union1d(reached, lone)
        if len(reached) == 0:
            return np.zeros_like(values)
        where = np.full(support.d, -1)
        where[reached] = np.arange(len(reached))
        inside = (where[rows] >= 0) & (where[columns] >= 0)
        r, c = where[rows[inside]], where[columns[inside]]
        M = np.zeros((len(reached), len(reached)))
        M[r, c] = values[inside]
        M[c, r] = values[inside]
        out = np.zeros_like(values)
        out[inside] = self.low_rank(M, rng)[r, c]
        return out

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """Low rank is for matrices.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{type(self).__name__} compresses matrices; take TopK for vectors")


@broadcastable
@dataclass(frozen=True)
class RankR(_LowRank):
    """The R eigenpairs of largest magnitude (eq. 17); Lanczos where R is small against d."""

    def on_matrices(self, d: int) -> Class:
        """Contractive with R/d."""
        return Class(min(self.rank / d, 1.0))

    def matrix_bits(self, d: int) -> float:
        """R vectors and eigenvalues, or the triangle where that is less."""
        return 64.0 * min(self.rank * (d + 1), packed_size(d))

    def low_rank(self, M: Array, rng: LazyRng) -> Array:
        """Truncated eigen-decomposition."""
        values, vectors = leading_eigenpairs(M, self.rank)
        return (vectors * values) @ vectors.T


LANCZOS_FROM = 100
"""Order from which Lanczos is tried; below it a full decomposition takes about a millisecond."""

LANCZOS_RESTARTS = 30
"""A spectrum that needs more has nearly equal magnitudes; the full decomposition is faster then."""


def leading_eigenpairs(M: Array, rank: int) -> tuple[Array, Array]:
    """The eigenpairs of a symmetric matrix with the largest magnitudes."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    n = len(M)
    if n >= LANCZOS_FROM and 10 * rank <= n and np.any(M):
        try:
            # A start with a part in every direction, the same on every run.
            start = np.random.default_rng(0).standard_normal(n)
            values, vectors = eigsh(M, rank, which="LM", v0=start, maxiter=LANCZOS_RESTARTS)
            return values, vectors
        except ArpackNoConvergence:
            pass  # nearly equal magnitudes; the full decomposition tells them apart
    values, vectors = eigh(M)
    kept = np.argsort(-np.abs(values), kind="stable")[:rank]
    return values[kept], vectors[:, kept]


@broadcastable
@dataclass(frozen=True)
class PowerSGD(_LowRank):
    """One power iteration of rank R (Vogels et al. 2019), made symmetric.

    P spans M Q for a random Gaussian Q; the result is the symmetric part of P P^T M, so it is no
    longer than M and no farther from it than 0 is. That is all that holds for every draw: delta 0.
    """

    def on_matrices(self, d: int) -> Class:
        """Contractive, with no delta above 0 for certain; exact where R >= d."""
        return Class(1.0 if self.rank >= d else 0.0)

    def matrix_bits(self, d: int) -> float:
        """Two (d, R) factors, or the triangle where that is less."""
        return 64.0 * min(2 * self.rank * d, packed_size(d))

    def low_rank(self, M: Array, rng: LazyRng) -> Array:
        """One power iteration."""
        if self.rank >= len(M):
            return M
        Q = rng().standard_normal((len(M), self.rank))
        P, _ = np.linalg.qr(M @ Q)
        near = P @ (P.T @ M)
        return 0.5 * (near + near.T)


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
