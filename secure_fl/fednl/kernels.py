"""Compiled loops over a client's sparse rows; they release the interpreter's lock.

Import this module late: loading the compiler takes longer than the command line may.
All rows are CSR with ascending columns; `position` holds, for each row's pairs of entries (a, b)
with b <= a in order, the place of that pair in the values of the client's support.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]


@njit(nogil=True, cache=True)
def evaluate(
    indptr: Array,
    indices: Array,
    data: Array,
    targets: Array,
    x: Array,
    gradient: Array,
    curvature: Array,
) -> float:
    """Mean logistic loss; fills its gradient and each row's curvature / m, in one pass."""
    m = len(targets)
    gradient[:] = 0.0
    loss = 0.0
    for r in range(m):
        start, end = indptr[r], indptr[r + 1]
        dot = 0.0
        for e in range(start, end):
            dot += data[e] * x[indices[e]]
        term, wrong, bend = logistic(targets[r] * dot)
        loss += term
        curvature[r] = bend / m
        pull = -targets[r] * wrong / m
        for e in range(start, end):
            gradient[indices[e]] += pull * data[e]
    return loss / m


@njit(nogil=True, cache=True)
def logistic(margin: float) -> tuple[float, float, float]:
    """log(1 + exp(-margin)), the same's slope times -1, and its second derivative."""
    # exp of a negative number only: margins of any size neither overflow nor cancel.
    small = np.exp(-abs(margin))
    share = 1.0 / (1.0 + small)
    return (
        np.log1p(small) + max(-margin, 0.0),
        (small if margin >= 0.0 else 1.0) * share,
        small * share * share,
    )


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def evaluate_dense(
    rows: Array, targets: Array, x: Array, gradient: Array, curvature: Array
) -> float:
    """`evaluate` on contiguous rows, shape (m, d)."""
    m, d = rows.shape
    gradient[:] = 0.0
    loss = 0.0
    for r in range(m):
        row = rows[r]
        dot = 0.0
        for j in range(d):
            dot += row[j] * x[j]
        term, wrong, bend = logistic(targets[r] * dot)
        loss += term
        curvature[r] = bend / m
        pull = -targets[r] * wrong / m
        for j in range(d):
            gradient[j] += pull * row[j]
    return loss / m


@njit(nogil=True, cache=True)
def loss_only(indptr: Array, indices: Array, data: Array, targets: Array, x: Array) -> float:
    """Mean logistic loss."""
    loss = 0.0
    for r in range(len(targets)):
        dot = 0.0
        for e in range(indptr[r], indptr[r + 1]):
            dot += data[e] * x[indices[e]]
        margin = targets[r] * dot
        loss += np.log1p(np.exp(-abs(margin))) + max(-margin, 0.0)
    return loss / len(targets)


@njit(nogil=True, cache=True)
def pair_places(indptr: Array, indices: Array, out: Array) -> None:
    """Packed places of all pairs of entries, row by row."""
    e = 0
    for r in range(len(indptr) - 1):
        for a in range(indptr[r], indptr[r + 1]):
            i = np.int64(indices[a])
            base = i * (i + 1) // 2
            for b in range(indptr[r], a + 1):
                out[e] = base + indices[b]
                e += 1


@njit(nogil=True, cache=True)
def outer_products(
    indptr: Array, data: Array, curvature: Array, position: Array, out: Array
) -> None:
    """Sum over rows of curvature times outer product, on the support."""
    out[:] = 0.0
    e = 0
    for r in range(len(indptr) - 1):
        start, end = indptr[r], indptr[r + 1]
        c = curvature[r]
        for a in range(start, end):
            ca = c * data[a]
            for b in range(start, a + 1):
                out[position[e]] += ca * data[b]
                e += 1


@njit(nogil=True, cache=True)
def equal_outer_products(
    indptr: Array, curvature: Array, position: Array, value: float, out: Array
) -> None:
    """`outer_products` of rows whose entries all have one value: half of the memory traffic."""
    out[:] = 0.0
    e = 0
    for r in range(len(indptr) - 1):
        k = indptr[r + 1] - indptr[r]
        c = curvature[r] * value * value
        for _ in range(k * (k + 1) // 2):
            out[position[e]] += c
            e += 1


@njit(nogil=True, cache=True)
def subtract(values: Array, estimate: Array, diagonal: Array) -> float:
    """values -= estimate; returns the squared Frobenius norm of the symmetric difference."""
    total = 0.0
    for p in range(len(values)):
        v = values[p] - estimate[p]
        values[p] = v
        total += v * v
    twice = 2.0 * total
    for p in diagonal:
        twice -= values[p] * values[p]
    return twice


@njit(nogil=True, cache=True)
def take_and_learn(
    index: Array,
    values: Array,
    positions: Array,
    scale: float,
    rate: float,
    estimate: Array,
    out: Array,
) -> None:
    """out = scale * values at the packed positions; estimate += rate * out there.

    Both index and positions ascend; a position outside the support has the value 0.
    """
    p = 0
    n = len(index)
    for k in range(len(positions)):
        wanted = positions[k]
        while p < n and index[p] < wanted:
            p += 1
        if p < n and index[p] == wanted:
            v = scale * values[p]
            out[k] = v
            estimate[p] += rate * v
        else:
            out[k] = 0.0


@njit(nogil=True, cache=True)
def largest(values: Array, threshold: float, above: int, k: int, out: Array) -> None:
    """Places of the k entries with the largest magnitude; the lowest places among equals.

    `threshold` is the k-th largest magnitude and `above` how many exceed it. Among NaN there are
    fewer such entries; the rest of the places is then 0.
    """
    ties = k - above
    found, p = 0, 0
    # Written first and counted afterwards: a branch on each entry would be a guess each time.
    while found < k and p < len(values):
        size = abs(values[p])
        tie = (size == threshold) & (ties > 0)
        out[found] = p
        found += int((size > threshold) | tie)
        ties -= int(tie)
        p += 1
    out[found:k] = 0


@njit(nogil=True, cache=True)
def add_scaled(held: Array, rate: float, values: Array) -> None:
    """held += rate * values."""
    for p in range(len(held)):
        held[p] += rate * values[p]


@njit(nogil=True, cache=True, fastmath={"contract"})
def dense_outer_products(
    columns: Array, members: Array, weights: Array, rows: Array, curvature: Array, out: Array
) -> None:
    """`outer_products` on the full triangle, line by line and four rows at a time.

    Args:
        columns: where each feature's rows begin, shape (d + 1,).
        members: the rows that have a feature.
        weights: the feature's values in them.
        rows: all of them, contiguous, shape (m, d).
        curvature: shape (m,).
        out: receives the triangle.
    """
    for i in range(len(columns) - 1):
        base, n = i * (i + 1) // 2, i + 1
        # A view, so that the compiler sees a plain loop it can make wide.
        line = out[base : base + n]
        line[:] = 0.0
        e, end = columns[i], columns[i + 1]
        while e + 4 <= end:
            m0, m1, m2, m3 = members[e], members[e + 1], members[e + 2], members[e + 3]
            r0, r1, r2, r3 = rows[m0][:n], rows[m1][:n], rows[m2][:n], rows[m3][:n]
            a0, a1 = curvature[m0] * weights[e], curvature[m1] * weights[e + 1]
            a2, a3 = curvature[m2] * weights[e + 2], curvature[m3] * weights[e + 3]
            for j in range(n):
                line[j] += ((a0 * r0[j] + a1 * r1[j]) + a2 * r2[j]) + a3 * r3[j]
            e += 4
        while e < end:
            row, a0 = rows[members[e]][:n], curvature[members[e]] * weights[e]
            for j in range(n):
                line[j] += a0 * row[j]
            e += 1
