"""Machines of equal size, fitted and evaluated together from inner products alone.

Write g = X x for the inner products of a query with a machine's N records, U S V^T for the centred
records, and k for the kernel values. Everything eq. (102) needs is then small:

- exponents (147), up to what all records of a query share: B g + c,
  B = (N-1)/k U S^-2 U^T over the kept directions, c = -B X mu - diag(U U^T) (N-1)/(2k);
- memberships (155): u = R k with R = (K + lambda* I)^-1, and their sum s = (R 1)^T k;
- <x, A(x)> = (R g)^T k / s and |A(x)|^2 = k^T (R G R) k / s^2 with G = X X^T;
- |x - A(x)|^2 from the three of them.

So a query costs two products with N x N matrices per machine and nothing of size d.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kahm._typing import Array, IntArray
from kahm.machine import MAX_DIRECTIONS, MIN_RANGE, RANK_TOLERANCE, nonzero
from kahm.measures import Measure, combine, half_sine_sq

_BISECTIONS = 64
"""Halvings of [0, tau/2]; the interval is then below the rounding of lambda* >= tau."""


@dataclass(frozen=True)
class Stack:
    """m machines of N records each.

    Attributes:
        score: rows [B; R], shape (m, 2N, N).
        offset: c, shape (m, N, 1).
        gram: rows [R G R; (R 1)^T], shape (m, N + 1, N).
    """

    score: Array
    offset: Array
    gram: Array

    @property
    def n_machines(self) -> int:
        """m."""
        return len(self.score)

    @property
    def size(self) -> int:
        """N."""
        return int(self.score.shape[2])

    def astype(self, dtype: type) -> "Stack":
        """The same machines with another floating-point type."""
        return Stack(
            self.score.astype(dtype, copy=False),
            self.offset.astype(dtype, copy=False),
            self.gram.astype(dtype, copy=False),
        )

    def __getitem__(self, machines: slice | IntArray | list[int]) -> "Stack":
        return Stack(self.score[machines], self.offset[machines], self.gram[machines])


def join_stacks(stacks: Sequence[Stack]) -> Stack:
    """One stack of all machines of stacks of equal size."""
    if len(stacks) == 1:
        return stacks[0]
    return Stack(
        np.concatenate([stack.score for stack in stacks]),
        np.concatenate([stack.offset for stack in stacks]),
        np.concatenate([stack.gram for stack in stacks]),
    )


def kept_directions(singular: Array, U: Array) -> NDArray[np.bool_]:
    """Which principal directions Algorithm 1 keeps, as a mask of shape (m, r).

    Args:
        singular: singular values of the centred records, shape (m, r), descending.
        U: left singular vectors, shape (m, N, r).
    """
    n_records = U.shape[1]
    spread = np.ptp(U * singular[:, None, :], axis=1) >= MIN_RANGE
    real = np.square(singular) > RANK_TOLERANCE * np.square(singular[:, :1])
    kept = np.logical_and.accumulate(spread & real, axis=1)
    kept[:, min(MAX_DIRECTIONS, n_records - 1) :] = False
    return kept


def _regularisation(eigenvalues: Array, eigenvectors: Array, G: Array, n_features: int) -> Array:
    """lambda* of eq. (149) for every machine, shape (m,), by bisection of eq. (150)."""
    n_values = G.shape[1] * n_features
    energies = np.einsum("mni,mnk,mki->mi", eigenvectors, G, eigenvectors, optimize=True)
    energies = np.maximum(energies, 0.0) / n_values
    upper = energies.sum(axis=1)
    tau = 2.0 * np.trace(G, axis1=1, axis2=2) / n_values
    low, high = np.zeros_like(upper), upper
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        shift = (middle + tau)[:, None]
        above = np.sum(np.square(shift / (eigenvalues + shift)) * energies, axis=1) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return 0.5 * (low + high) + tau


def fit_stack(records: Array) -> tuple[Stack, NDArray[np.bool_]]:
    """Fits machines of equal size.

    Args:
        records: shape (m, N, d), float64.

    Returns:
        The stack, and a mask (m,) of the machines whose records do not spread; their rows of the
        stack are meaningless, for such a machine folds everything onto its mean.
    """
    n_machines, n_records, n_features = records.shape
    G = records @ records.transpose(0, 2, 1)
    if n_records == 1:
        one = np.ones((n_machines, 1, 1))
        score = np.concatenate([0 * one, one], axis=1)
        return Stack(score, 0 * one, np.concatenate([G, one], axis=1)), np.zeros(n_machines, bool)
    centred = records - records.mean(axis=1, keepdims=True)
    U, singular, _ = np.linalg.svd(centred, full_matrices=False)
    kept = kept_directions(singular, U)
    n_kept = kept.sum(axis=1)
    flat = n_kept == 0
    factor = (n_records - 1) / np.maximum(n_kept, 1)
    U = U * (kept * np.sqrt(factor)[:, None])[:, None, :]
    inverse = np.divide(1.0, singular, out=np.zeros_like(singular), where=kept)
    scaled = U * inverse[:, None, :]
    B = scaled @ scaled.transpose(0, 2, 1)
    inner = U @ U.transpose(0, 2, 1)
    norms = np.diagonal(inner, axis1=1, axis2=2)
    K = np.exp(np.minimum(inner - 0.5 * (norms[:, :, None] + norms[:, None, :]), 0.0))
    eigenvalues, vectors = np.linalg.eigh(K)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    lam = np.where(flat, 1.0, _regularisation(eigenvalues, vectors, G, n_features))
    R = (vectors / (eigenvalues + lam[:, None])[:, None, :]) @ vectors.transpose(0, 2, 1)
    offset = -(B @ G.mean(axis=2, keepdims=True)) - 0.5 * norms[:, :, None]
    gram = np.concatenate([R @ G @ R, R.sum(axis=1, keepdims=True)], axis=1)
    return Stack(np.concatenate([B, R], axis=1), offset, gram), flat


@dataclass
class Workspace:
    """Scratch memory of one thread, so that blocks do not pay for fresh pages."""

    scores: Array
    kernel: Array
    grams: Array

    @classmethod
    def allocate(cls, n_values: int, dtype: type) -> "Workspace":
        """Room for blocks of up to `n_values` = machines x (N + 1) x queries."""
        return cls(*(np.empty(2 * n_values, dtype) for _ in range(3)))


def _view(flat: Array, *shape: int) -> Array:
    return flat[: int(np.prod(shape))].reshape(shape)


def image_norms(stack: Stack, g: Array, work: Workspace) -> tuple[Array, Array]:
    """<x, A(x)> and |A(x)|^2 for every machine and query.

    Args:
        stack: m machines of N records.
        g: inner products of records and queries, shape (m, N, q).
        work: scratch memory with room for m (N + 1) q values.

    Returns:
        Two arrays of shape (m, q).
    """
    m, n, q = g.shape
    scores = np.matmul(stack.score, g, out=_view(work.scores, m, 2 * n, q))
    k, projected = scores[:, :n], scores[:, n:]
    k += stack.offset
    k -= k.max(axis=1, keepdims=True)
    kernel = np.exp(k, out=_view(work.kernel, m, n, q))
    grams = np.matmul(stack.gram, kernel, out=_view(work.grams, m, n + 1, q))
    total = nonzero(grams[:, n])
    projected *= kernel
    kernel *= grams[:, :n]
    inner = projected.sum(axis=1) / total
    # Rounding can push the square of a norm below 0.
    image_sq = np.maximum(kernel.sum(axis=1) / np.square(total), 0.0)
    return inner, image_sq


def measure_stack(
    stack: Stack, g: Array, query_sq: Array, measure: Measure, work: Workspace, closeness: float
) -> tuple[Array, NDArray[np.bool_]]:
    """The measure of every machine at every query, shape (m, q), and where to distrust it.

    The second array marks pairs where a small difference of large numbers decides: |x - A(x)|^2
    below `closeness` times the norms, an angle that close to 0 or pi, or a value that is not
    finite. The caller computes those from the records.
    """
    inner, image_sq = image_norms(stack, g, work)
    size = query_sq + image_sq
    distance_sq = size - 2.0 * inner
    distrusted = ~(distance_sq > closeness * size) | ~np.isfinite(size)
    np.maximum(distance_sq, 0.0, out=distance_sq)
    half = half_sine_sq(distance_sq, query_sq, image_sq)
    distrusted |= np.abs(half - 0.5) > 0.5 - 0.1 * closeness
    return combine(distance_sq, half, measure), distrusted
