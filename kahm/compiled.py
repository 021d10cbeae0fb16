"""Machines of few records in machine code: the values of `kahm.stack`, to rounding.

With a handful of records most of the time there goes to calling the libraries, and to the arrays
between two calls. Import this module late: loading the compiler takes longer than the command line
may.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kahm._typing import Array, IntArray
from kahm.measures import Measure, angle_share, combine, measure_folds
from kahm.stack import Doubt, Products, Queries, Stack, Workspace, directions_of


def measure_stack(
    products: Products, g: Array, queries: Queries, measure: Measure, work: Workspace, doubt: Doubt
) -> tuple[Array, NDArray[np.bool_]]:
    """See `kahm.stack.measure_stack`; for an origin of 0 alone."""
    m, _, q = g.shape
    kernel = work.kernel[: g.size].reshape(g.shape)
    _exponents(products.score, products.offset, g, kernel)
    np.exp(kernel, out=kernel)
    distance_sq, half = (each[: m * q].reshape(m, q) for each in (work.grams, work.scores))
    distrusted = np.empty((m, q), np.bool_)
    eps = np.finfo(g.dtype).eps
    closeness, limit = map(g.dtype.type, (doubt.closeness, doubt.exponent / eps))
    _folds(
        products.score,
        products.gram,
        products.stretch,
        products.floor,
        g,
        kernel,
        queries.about_sq,
        queries.point_sq,
        closeness,
        limit,
        g.dtype.type(doubt.angle / eps),
        np.finfo(g.dtype).tiny,
        distance_sq,
        half,
        distrusted,
    )
    return combine(distance_sq, angle_share(half), measure), distrusted


def measure_from_records(
    stack: Stack, records: Array, queries: Array, pairs: tuple[IntArray, IntArray], measure: Measure
) -> Array:
    """See `kahm.stack.measure_from_records`, of pairs of machines and queries.

    Args:
        stack: m machines of N records.
        records: theirs, shape (m, N, d).
        queries: shape (q, d).
        pairs: indices of machines, ascending, and of queries, each of shape (p,).

    Returns:
        Shape (p,).
    """
    machines, asked = pairs
    own, places = np.unique(machines, return_inverse=True)
    used = records[own].astype(np.float64)
    centre = used.mean(axis=1, keepdims=True)
    about = used - centre
    points = queries.astype(np.float64)
    part = stack[own]
    directions = directions_of(part, about)
    images, folds = np.empty((2, len(machines), records.shape[2]))
    _images(
        part.encoded,
        part.solver,
        centre[:, 0],
        about,
        about.mean(axis=1),
        directions,
        points,
        places,
        asked,
        images,
        folds,
    )
    return measure_folds(points[asked], images, folds, measure, part.floor[places])


# ------------------------------------------------------------------------------------------ loops


def _compiled(function: Any) -> Any:
    # Sums may be made in any order; numbers that are not finite stay what they are.
    sums = {"reassoc", "contract", "nsz"}
    return njit(nogil=True, cache=True, fastmath=sums, error_model="numpy")(function)


@_compiled
def _exponents(score: Array, offset: Array, g: Array, out: Array) -> None:
    """B g + c less the largest of each query's."""
    m, n, q = g.shape
    largest = np.empty(q, g.dtype)
    for j in range(m):
        for i in range(n):
            row = out[j, i]
            row[:] = offset[j, i, 0]
            for k in range(n):
                entry, inner = score[j, i, k], g[j, k]
                for t in range(q):
                    row[t] += entry * inner[t]
            if i == 0:
                largest[:] = row
            for t in range(q):
                largest[t] = max(largest[t], row[t])
        for i in range(n):
            row = out[j, i]
            for t in range(q):
                row[t] -= largest[t]


@_compiled
def _folds(
    score: Array,
    gram: Array,
    stretch: Array,
    floor: Array,
    g: Array,
    kernel: Array,
    about_sq: Array,
    point_sq: Array,
    closeness: Any,
    limit: Any,
    farthest: Any,
    tiny: Any,
    distance_sq: Array,
    half: Array,
    distrusted: NDArray[np.bool_],
) -> None:
    """What `image_norms` and `half_sine_sq` give, and where `measure_stack` distrusts it."""
    m, n, q = g.shape
    projected, row, total, inner, image_sq = np.empty((5, q), g.dtype)
    zero, one, two, four = g.dtype.type(0), g.dtype.type(1), g.dtype.type(2), g.dtype.type(4)
    near = g.dtype.type(0.1) * closeness
    for j in range(m):
        total[:] = zero
        inner[:] = zero
        image_sq[:] = zero
        for i in range(n):
            projected[:] = zero
            row[:] = zero
            for k in range(n):
                solved, squared = score[j, n + i, k], gram[j, i, k]
                products, values = g[j, k], kernel[j, k]
                for t in range(q):
                    projected[t] += solved * products[t]
                    row[t] += squared * values[t]
            share, own = gram[j, n, i], kernel[j, i]
            for t in range(q):
                inner[t] += projected[t] * own[t]
                image_sq[t] += row[t] * own[t]
                total[t] += share * own[t]
        for t in range(q):
            whole = total[t] if abs(total[t]) >= tiny else tiny
            image = max(image_sq[t] / (whole * whole), zero)
            size = about_sq[t] + image
            apart = size - two * inner[t] / whole
            unsure = not (apart > closeness * size) or not np.isfinite(size)
            unsure |= stretch[j] * np.sqrt(about_sq[t]) > limit
            apart = max(apart, zero)
            point, length = np.sqrt(point_sq[t]), np.sqrt(image)
            sides, gap = four * point * length, point - length
            share = (apart - gap * gap) / sides
            if not sides > zero:
                share = one / two if apart > zero else zero
            share = min(max(share, zero), one)
            unsure |= size > farthest * sides
            distrusted[j, t] = unsure or share < near or share > one - near
            half[j, t] = share
            distance_sq[j, t] = max(apart, floor[j])


@_compiled
def _images(
    encoded: Array,
    solver: Array,
    centre: Array,
    about: Array,
    shift: Array,
    directions: Array,
    queries: Array,
    machines: IntArray,
    asked: IntArray,
    images: Array,
    folds: Array,
) -> None:
    """Images of queries and what folds them, by differences from the records."""
    _, n, width = about.shape
    rank = encoded.shape[2]
    z, code = np.empty(width), np.empty(rank)
    kernel, shares = np.empty(n), np.empty(n)
    tiny = np.finfo(np.float64).tiny
    for p in range(len(machines)):
        j, query = machines[p], queries[asked[p]]
        for f in range(width):
            z[f] = query[f] - centre[j, f]
        for r in range(rank):
            code[r] = 0.0
            for f in range(width):
                code[r] += directions[j, r, f] * (z[f] - shift[j, f])
        for i in range(n):
            kernel[i] = 0.0
            for r in range(rank):
                kernel[i] -= 0.5 * (code[r] - encoded[j, i, r]) ** 2
        largest = kernel.max()
        shares[:] = 0.0
        for i in range(n):
            own = np.exp(kernel[i] - largest)
            for k in range(n):
                shares[k] += own * solver[j, i, k]
        total = shares.sum()
        total = total if abs(total) >= tiny else tiny
        for f in range(width):
            image = 0.0
            for i in range(n):
                image += shares[i] / total * about[j, i, f]
            images[p, f] = centre[j, f] + image
            folds[p, f] = z[f] - image
