"""Queries that are nearly the same: with them a querier walks along one contributor's code.

A querier with a contributor on its side repeats one query; the accomplice sends a code of its
choice each time, and the answers say whether the others' smallest code lies below. A thousand
copies read it exactly, whoever evaluates. Contributors see queries in the clear, so each can
refuse copies by itself.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK, _ACROSS = 256, 4096
"""Rows that are compared at once, and with how many, which bounds the memory."""
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
    points, pairs = np.asarray(queries, np.float64), []
    for rows, columns in _bands(points, points, near):
        found = nearly_equal(points[rows], points[columns], near)
        # Each pair once, and nobody with itself.
        found &= rows[:, None] < columns
        pairs += [(int(i), int(j)) for i, j in _first(found, rows, columns)]
    return min(pairs, default=None)


def _first(found: NDArray[np.bool_], rows: Ints, columns: Ints) -> Ints:
    """The first of the pairs that were found, by position; shape (0 or 1, 2)."""
    i, j = np.nonzero(found)
    pairs = np.stack([rows[i], columns[j]], axis=1)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))[:1]]


def count_before(
    queries: NDArray[np.floating[Any]], earlier: Iterable[NDArray[np.floating[Any]]], near: float
) -> NDArray[np.int64]:
    """How often each query was asked before, nearly the same; shape (n,).

    Args:
        queries: shape (n, d).
        earlier: batches, each of shape (m, d).
        near: as `nearly_equal`.
    """
    points = np.asarray(queries, np.float64)
    counts = np.zeros(len(points), np.int64)
    for batch in earlier:
        others = np.asarray(batch, np.float64)
        for rows, columns in _bands(points, others, near):
            counts[rows] += nearly_equal(points[rows], others[columns], near).sum(axis=1)
    return counts


def _bands(left: Floats, right: Floats, near: float) -> Iterator[tuple[Ints, Ints]]:
    """Rows of both, by position, such that all pairs that are nearly the same are in one of them.

    Two that are near each other are near along every direction. So both are sorted along one, and
    of a batch of thousands, all pairs of which would take minutes, most are never compared.
    """
    if not len(left) or not len(right):
        return
    norms = max(np.linalg.norm(each, axis=1).max() for each in (left, right))
    # Any direction is right, and this one is no feature's; the last term is of rounding.
    direction = np.random.default_rng(0).normal(size=left.shape[1])
    direction /= np.linalg.norm(direction)
    reach = (near + 8 * (left.shape[1] + 4) * np.finfo(np.float64).eps) * norms
    ours, theirs = left @ direction, right @ direction
    order, others = np.argsort(ours, kind="stable"), np.argsort(theirs, kind="stable")
    ours, theirs = ours[order], theirs[others]
    for start in range(0, len(left), _BLOCK):
        stop = min(start + _BLOCK, len(left))
        first = np.searchsorted(theirs, ours[start] - reach, side="left")
        last = np.searchsorted(theirs, ours[stop - 1] + reach, side="right")
        for column in range(int(first), int(last), _ACROSS):
            yield order[start:stop], others[column : min(column + _ACROSS, int(last))]
