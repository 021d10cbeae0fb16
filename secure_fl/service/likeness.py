"""Queries that are nearly the same: with them a querier walks along one contributor's code.

A querier with a contributor on its side repeats one query; the accomplice sends a code of its
choice each time, and the answers say whether the others' smallest code lies below. A thousand
copies read it exactly, whoever evaluates. Contributors see queries in the clear, so each can
refuse copies by itself.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Floats = NDArray[np.float64]

_BLOCK = 256
"""Rows compared at once, which bounds the memory."""
_MANY = 0.01
"""Share of all pairs from which on it is cheaper to take all differences."""


def nearly_equal(
    queries: NDArray[np.floating[Any]], others: NDArray[np.floating[Any]], near: float
) -> NDArray[np.bool_]:
    """Which pairs are nearly the same.

    Two are, if their Euclidean distance is at most `near` times the larger norm of both. Distances
    are taken of differences, not of products, which lose small ones.

    Args:
        queries: shape (n, d).
        others: shape (m, d).
        near: at least 0; 0 finds equal ones.

    Returns:
        Shape (n, m).
    """
    left, right = np.asarray(queries, np.float64), np.asarray(others, np.float64)
    lengths = np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1)
    bounds = near * np.maximum.outer(*lengths)
    # One product is faster than all differences, and mostly leaves few pairs to take them of.
    may = _may_be_near(left, right, lengths, near)
    if may.sum() > _MANY * may.size:
        return cdist(left, right) <= bounds
    found = np.zeros(bounds.shape, np.bool_)
    rows, columns = np.nonzero(may)
    apart = np.linalg.norm(left[rows] - right[columns], axis=1)
    found[rows, columns] = apart <= bounds[rows, columns]
    return found


def _may_be_near(left: Floats, right: Floats, lengths: tuple[Floats, Floats], near: float) -> Any:
    """Pairs that are nearly the same or that rounding might hide; shape (n, m)."""
    squares = np.add.outer(*(each**2 for each in lengths))
    # Of the sum of d products, of two squared norms, and of what is done with them.
    slack = 8 * (left.shape[1] + 4) * np.finfo(np.float64).eps
    return squares - 2 * (left @ right.T) <= (near**2 + slack) * squares


def first_pair(queries: NDArray[np.floating[Any]], near: float) -> tuple[int, int] | None:
    """The first two of a batch that are nearly the same, by position; None without."""
    for start in range(0, len(queries), _BLOCK):
        rows = queries[start : start + _BLOCK]
        found = nearly_equal(rows, queries, near)
        # Each pair once, and nobody with itself.
        found &= np.arange(len(queries)) > np.arange(start, start + len(rows))[:, None]
        if found.any():
            i, j = np.argwhere(found)[0]
            return start + int(i), int(j)
    return None


def count_before(
    queries: NDArray[np.floating[Any]], earlier: Iterable[NDArray[np.floating[Any]]], near: float
) -> NDArray[np.int64]:
    """How often each query was asked before, nearly the same; shape (n,).

    Args:
        queries: shape (n, d).
        earlier: batches, each of shape (m, d).
        near: as `nearly_equal`.
    """
    counts = np.zeros(len(queries), np.int64)
    for batch in earlier:
        for start in range(0, len(queries), _BLOCK):
            rows = slice(start, start + _BLOCK)
            counts[rows] += nearly_equal(queries[rows], batch, near).sum(axis=1)
    return counts
