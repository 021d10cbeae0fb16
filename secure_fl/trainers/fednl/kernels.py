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


COLUMN, FEATURES = 16, 4
"""Of what a column's length and the number of features are multiples in `contiguous`."""


def contiguous(rows: Any) -> Array:
    """The columns of a sparse matrix one after the other, filled up with zeros; shape (d', m').

    With whole numbers of a processor's vectors, no loop has a remainder.
    """
    m, d = rows.shape
    columns = np.zeros((-(-d // FEATURES) * FEATURES, -(-m // COLUMN) * COLUMN))
    columns[:d, :m] = rows.toarray().T
    return columns


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
    columns: Array, targets: Array, x: Array, gradient: Array, curvature: Array, margins: Array
) -> float:
    """`evaluate` on `contiguous` columns; margins is scratch of the length of a column."""
    m, d, length = len(targets), len(x), columns.shape[1]
    margins[:] = 0.0
    for j in range(0, columns.shape[0], 4):
        x0, x1 = x[j], x[min(j + 1, d - 1)]
        x2, x3 = x[min(j + 2, d - 1)], x[min(j + 3, d - 1)]
        c0, c1, c2, c3 = columns[j], columns[j + 1], columns[j + 2], columns[j + 3]
        for r in range(length):
            margins[r] += (x0 * c0[r] + x1 * c1[r]) + (x2 * c2[r] + x3 * c3[r])
    loss = 0.0
    for r in range(m):
        term, wrong, bend = logistic(targets[r] * margins[r])
        loss += term
        curvature[r] = bend / m
        margins[r] = -targets[r] * wrong / m
    margins[m:] = 0.0
    for j in range(d):
        column, total = columns[j], 0.0
        for r in range(length):
            total += margins[r] * column[r]
        gradient[j] = total
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


@njit(nogil=True, cache=True)
def dense_outer_products(columns: Array, curvature: Array, scaled: Array, out: Array) -> None:
    """`outer_products` of `contiguous` columns on the full triangle, in tiles of four by four.

    Args:
        columns: shape (d', m').
        curvature: shape (m,).
        scaled: scratch of the shape of `columns`.
        out: receives the triangle.
    """
    m = len(curvature)
    for i in range(columns.shape[0]):
        column, line = columns[i], scaled[i]
        for r in range(m):
            line[r] = curvature[r] * column[r]
        line[m:] = 0.0
    for i in range(0, columns.shape[0], 4):
        for j in range(0, i + 4, 4):
            first, second, third, fourth = tile(scaled, i, columns, j)
            put(out, i, j, first)
            put(out, i + 1, j, second)
            put(out, i + 2, j, third)
            put(out, i + 3, j, fourth)


_Four = tuple[float, float, float, float]


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def tile(a: Array, i: int, b: Array, j: int) -> tuple[_Four, _Four, _Four, _Four]:
    """Four rows of a, from i on, times four of b: sixteen sums that stay in registers."""
    a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
    b0, b1, b2, b3 = b[j], b[j + 1], b[j + 2], b[j + 3]
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
    s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
    for r in range(a.shape[1]):
        s00 += a0[r] * b0[r]
        s01 += a0[r] * b1[r]
        s02 += a0[r] * b2[r]
        s03 += a0[r] * b3[r]
        s10 += a1[r] * b0[r]
        s11 += a1[r] * b1[r]
        s12 += a1[r] * b2[r]
        s13 += a1[r] * b3[r]
        s20 += a2[r] * b0[r]
        s21 += a2[r] * b1[r]
        s22 += a2[r] * b2[r]
        s23 += a2[r] * b3[r]
        s30 += a3[r] * b0[r]
        s31 += a3[r] * b1[r]
        s32 += a3[r] * b2[r]
        s33 += a3[r] * b3[r]
    return (
        (s00, s01, s02, s03),
        (s10, s11, s12, s13),
        (s20, s21, s22, s23),
        (s30, s31, s32, s33),
    )


@njit(nogil=True, cache=True)
def put(out: Array, i: int, j: int, values: _Four) -> None:
    """Writes what of entries (i, j) to (i, j + 3) lies in the packed triangle."""
    start = i * (i + 1) // 2
    if start >= len(out):
        return
    if j + 3 <= i:
        out[start + j], out[start + j + 1] = values[0], values[1]
        out[start + j + 2], out[start + j + 3] = values[2], values[3]
    else:
        for k in range(i - j + 1):
            out[start + j + k] = values[k]
