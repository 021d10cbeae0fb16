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

_BLOCK = 256
"""Rows compared at once, which bounds the memory."""


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
    scale = np.maximum.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))
    return cdist(left, right) <= near * scale


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
