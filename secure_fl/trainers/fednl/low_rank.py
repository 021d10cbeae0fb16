"""Compressors of low rank: truncated eigen-decomposition and one power iteration (B.3.2, B.5)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import LowRank, broadcastable
from secure_fl.trainers.fednl.compressors import Class, Compressed, Compressor, LazyRng
from secure_fl.trainers.fednl.problem import Support
from secure_fl.trainers.fednl.triangles import diagonal_places, entries_of, pack, packed_size

Array = NDArray[Any]


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

    def factors(self, values: Array, support: Support) -> tuple[Array, Array]:
        """Eigenvalues, shape (R,), and eigenvectors, shape (R, d).

        A feature that stands on the diagonal alone is an eigenvector; it is not mixed with the
        others, so that the outer products stay on the support.
        """
        rows, columns = entries_of(support.index)
        off = rows != columns
        present = np.unique(np.concatenate([rows[off], columns[off]]))
        where = np.full(support.d, -1)
        where[present] = np.arange(len(present))
        inside = (where[rows] >= 0) & (where[columns] >= 0)
        M = np.zeros((len(present), len(present)))
        M[where[rows[inside]], where[columns[inside]]] = values[inside]
        M[where[columns[inside]], where[rows[inside]]] = values[inside]
        found = np.empty(0)
        vectors = np.zeros((0, support.d))
        if len(present):
            found, inner = leading_eigenpairs(M, self.rank)
            vectors = np.zeros((len(found), support.d))
            vectors[:, present] = inner.T
        axes = np.eye(support.d)[rows[~inside]]
        found = np.concatenate([found, values[~inside]])
        vectors = np.concatenate([vectors, axes])
        kept = np.argsort(-np.abs(found), kind="stable")[: self.rank]
        return found[kept], vectors[kept]

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """Truncated eigen-decomposition, on the support."""
        return _on_support(*self.factors(values, support), support)

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """The eigenpairs, where sums take them and they are less than the triangle."""
        if not sparse or self.rank * (support.d + 1) >= packed_size(support.d):
            return super().compress(values, support, rng, draw, sparse)
        found, vectors = self.factors(values, support)
        return Compressed(LowRank(found, vectors), _on_support(found, vectors, support))


def _on_support(values: Array, vectors: Array, support: Support) -> Array:
    rows, columns = entries_of(support.index)
    out = np.zeros(len(rows))
    for value, vector in zip(values, vectors, strict=True):
        out += value * vector[rows] * vector[columns]
    return out


LANCZOS_FROM = 100
"""Order from which Lanczos is tried; below it a full decomposition takes about a millisecond."""

LANCZOS_RESTARTS = 30
"""A spectrum that needs more has nearly equal magnitudes; the full decomposition is faster then."""


def leading_eigenpairs(M: Array, rank: int) -> tuple[Array, Array]:
    """The eigenpairs of a symmetric matrix with the largest magnitudes."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    n = len(M)
    if rank == 1:
        from secure_fl.trainers.fednl.lanczos import leading_pair

        order = np.arange(n, dtype=np.int64)
        starts, diagonal = order * (order + 1) // 2, diagonal_places(n)
        value, vector = leading_pair(pack(M), starts, diagonal.copy(), order, 0.0)
        return np.array([value]), vector[:, None]
    if n >= LANCZOS_FROM and 10 * rank <= n and np.any(M):
        try:
            # A start with a part in every direction, the same on every run.
            start = np.random.default_rng(0).standard_normal(n)
            values, vectors = eigsh(M, rank, which="LM", v0=start, maxiter=LANCZOS_RESTARTS)
            return values, vectors
        except ArpackNoConvergence:
            pass  # nearly equal magnitudes; the full decomposition tells them apart
    values, vectors = eigh(M, driver="evd")
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

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """The approximation on the support, computed among the features present."""
        if self.rank >= support.d:
            return values.copy()
        return _on_support(*self.factors(values, support, rng), support)

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """The factors, where sums take them and they are less than the triangle."""
        if not sparse or 2 * self.rank * (support.d + 1) >= packed_size(support.d):
            return super().compress(values, support, rng, draw, sparse)
        found, vectors = self.factors(values, support, rng)
        return Compressed(LowRank(found, vectors), _on_support(found, vectors, support))

    def factors(self, values: Array, support: Support, rng: LazyRng) -> tuple[Array, Array]:
        """Numbers, shape (2 R,), and vectors, shape (2 R, d), whose outer products it sums."""
        rows, columns = entries_of(support.index)
        off = rows != columns
        reached = np.unique(np.concatenate([rows[off], columns[off]]))
        # Features that occur alone stand on the diagonal only; they count where they are not 0.
        reached = np.union1d(reached, rows[(~off) & (values != 0)])
        where = np.full(support.d, -1)
        where[reached] = np.arange(len(reached))
        inside = (where[rows] >= 0) & (where[columns] >= 0)
        r, c = where[rows[inside]], where[columns[inside]]
        M = np.zeros((len(reached), len(reached)))
        M[r, c] = values[inside]
        M[c, r] = values[inside]
        numbers, vectors = np.zeros(2 * self.rank), np.zeros((2 * self.rank, support.d))
        found, inner = self._of(M, rng)
        numbers[: len(found)] = found
        vectors[: len(found), reached] = inner
        return numbers, vectors

    def _of(self, M: Array, rng: LazyRng) -> tuple[Array, Array]:
        if self.rank >= len(M):
            exact, axes = np.linalg.eigh(M)
            return exact, axes.T
        Q = rng().standard_normal((len(M), self.rank))
        P, _ = np.linalg.qr(M @ Q)
        # The symmetric part of P W^T, as a difference of squares of vectors that are alike in
        # length: of unlike ones the small part would drown in the rounding of the large one.
        W = M @ P
        length = np.sqrt(np.linalg.norm(W, axis=0))
        p = (P * length).T
        w = np.divide(W, length, out=np.zeros_like(W), where=length > 0).T
        quarters = np.repeat([0.25, -0.25], self.rank)
        return quarters, np.concatenate([p + w, p - w])
