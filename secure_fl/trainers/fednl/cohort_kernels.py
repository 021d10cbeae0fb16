"""One compiled loop over many clients: the round of FedNL (Algorithm 1, lines 4 to 6).

It releases the interpreter's lock, so threads can share a federation. Import this module late, as
`kernels`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from secure_fl.trainers.fednl import kernels, lanczos, selection
from secure_fl.trainers.fednl.compiled_code import forget_if_older
from secure_fl.trainers.fednl.kernels import (
    COLUMN,
    FEATURES,
    dense_outer_products,
    equal_outer_products,
    evaluate,
    evaluate_dense,
    outer_products,
    subtract,
    take_and_learn,
)
from secure_fl.trainers.fednl.lanczos import dot, leading_pair
from secure_fl.trainers.fednl.selection import largest_places, random_places

Array = NDArray[Any]

SHARED, RANDOM, TOP, WHOLE, RANK_ONE = range(5)
"""Kinds of compressors."""

EPSILON = float(np.finfo(np.float64).eps)
"""Rounding of an entry of a Hessian or an estimate, relative to it; their difference has it too."""


class Records(NamedTuple):
    """The prepared records of n clients, end to end; client c has [starts[c], starts[c + 1]).

    Attributes:
        rows: starts among the rows, shape (n + 1,); as are `entries`, `pairs`, `supports` and
            `lines` among what they are named after.
        entries: of the nonzero entries.
        pairs: of the pairs of entries.
        supports: of the supports.
        lines: of the segments.
        indptr: CSR pointers of each client within its own entries, m + 1 of them each.
        indices: columns.
        data: values.
        targets: -1 and 1.
        position: of each pair in its client's support.
        columns: `contiguous` ones of the clients that use them.
        dense: starts among `columns`, shape (n + 1,).
        constant: the value that all entries of a client have, or NaN, shape (n,).
        places: packed places of the supports.
        diagonal: where the diagonal stands in each support, shape (n, d).
        segments: where each present feature's line begins in the support.
        feature: present features of each client, then the others, shape (n, d).
        curvature: scratch, one a row.
    """

    rows: Array
    entries: Array
    pairs: Array
    supports: Array
    lines: Array
    indptr: Array
    indices: Array
    data: Array
    targets: Array
    position: Array
    columns: Array
    dense: Array
    constant: Array
    places: Array
    diagonal: Array
    segments: Array
    feature: Array
    curvature: Array


@njit(nogil=True, cache=True)
def difference(
    a: Records,
    c: int,
    x: Array,
    penalty: float,
    held: Array,
    slope: Array,
    values: Array,
    work: Array,
) -> float:
    """Loss, gradient and values = Hessian - held of one client; returns its squared norm.

    slope: loss and, from the third entry on, the gradient.
    work: scratch, as long as the client's contiguous columns.
    """
    r0, r1, e0, e1 = a.rows[c], a.rows[c + 1], a.entries[c], a.entries[c + 1]
    indptr, data = a.indptr[r0 + c : r1 + c + 1], a.data[e0:e1]
    indices, curvature = a.indices[e0:e1], a.curvature[r0:r1]
    gradient = slope[2:]
    targets, flat = a.targets[r0:r1], a.columns[a.dense[c] : a.dense[c + 1]]
    if len(flat):
        columns = flat.reshape(
            -(-len(x) // FEATURES) * FEATURES, -(-len(targets) // COLUMN) * COLUMN
        )
        scaled = work[: len(flat)].reshape(columns.shape)
        slope[0] = evaluate_dense(columns, targets, x, gradient, curvature, scaled[0])
        dense_outer_products(columns, curvature, scaled, values)
    else:
        position = a.position[a.pairs[c] : a.pairs[c + 1]]
        slope[0] = evaluate(indptr, indices, data, targets, x, gradient, curvature)
        if np.isnan(a.constant[c]):
            outer_products(indptr, data, curvature, position, values)
        else:
            equal_outer_products(indptr, curvature, position, a.constant[c], values)
    squares = 0.0
    for i in range(len(x)):
        gradient[i] += penalty * x[i]
        squares += x[i] * x[i]
    slope[0] += 0.5 * penalty * squares
    for p in a.diagonal[c]:
        values[p] += penalty
    return max(subtract(values, held, a.diagonal[c]), 0.0)


@njit(nogil=True, cache=True)
def learn_all(
    kind: int,
    chosen: Array,
    a: Records,
    x: Array,
    penalty: float,
    rate: float,
    k: int,
    places: Array,
    words: Array,
    held: Array,
    slope: Array,
    index: Array,
    sent: Array,
    starts: Array,
) -> None:
    """Loss, l_i, gradient and compressed difference of the chosen clients; moves their estimates.

    Args:
        kind: of compressor.
        chosen: clients, shape (q,).
        a: of all clients.
        x: the model, shape (d,).
        penalty: lambda.
        rate: alpha.
        k: entries of a sparse message.
        places: of the message, shared by all; of SHARED alone.
        words: 63 random bits a client; of RANDOM alone.
        held: estimates, end to end as the supports.
        slope: receives loss, l_i and gradient, shape (q, d + 2).
        index: receives the places sent; unused by SHARED and RANK_ONE.
        sent: receives the values sent: of RANK_ONE eigenvalue and vector, d + 1 numbers each.
        starts: receives where each client's part of `index` and `sent` begins, shape (q + 1,).
    """
    d = len(x)
    size = d * (d + 1) // 2
    widest, longest = 0, 0
    for c in chosen:
        widest = max(widest, a.supports[c + 1] - a.supports[c])
        longest = max(longest, a.dense[c + 1] - a.dense[c])
    columns = np.empty(longest)
    buffer = np.empty(widest)
    taken = np.zeros(size if kind == RANDOM else 0, np.uint8)
    work = np.empty(widest if kind == TOP else 0)
    at = 0
    starts[0] = 0
    for q in range(len(chosen)):
        c = chosen[q]
        s0, s1 = a.supports[c], a.supports[c + 1]
        p, support, estimate = s1 - s0, a.places[s0:s1], held[s0:s1]
        values = buffer[:p]
        squared = difference(a, c, x, penalty, estimate, slope[q], values, columns)
        slope[q, 1] = np.sqrt(squared)
        if kind == SHARED:
            out = sent[at : at + k]
            take_and_learn(support, values, places, size / k, rate, estimate, out)
            at += k
        elif kind == RANDOM:
            drawn, out = index[at : at + k], sent[at : at + k]
            random_places(words[q], taken, drawn)
            take_and_learn(support, values, drawn, size / k, rate, estimate, out)
            at += k
        elif kind == TOP:
            n = min(k, p)
            kept = index[at : at + n]
            largest_places(values, n, work, kept)
            for e in range(n):
                place = kept[e]
                sent[at + e] = values[place]
                estimate[place] += rate * values[place]
                kept[e] = support[place]
            at += n
        elif kind == WHOLE:
            for place in range(p):
                v = values[place]
                estimate[place] += rate * v
                # Written first and counted afterwards: a branch would be a guess each time.
                index[at] = support[place]
                sent[at] = v
                at += int(v != 0.0)
        else:
            segments = a.segments[a.lines[c] : a.lines[c + 1]]
            feature = a.feature[c]
            rounding = EPSILON * np.sqrt(dot(estimate, estimate))
            value, vector = leading_pair(values, segments, a.diagonal[c], feature, rounding)
            move_rank_one(estimate, segments, a.diagonal[c], feature, rate * value, vector)
            sent[at] = value
            for i in range(d):
                sent[at + 1 + feature[i]] = vector[i]
            at += d + 1
        starts[q + 1] = at


@njit(nogil=True, cache=True)
def move_rank_one(
    estimate: Array, segments: Array, diagonal: Array, feature: Array, scale: float, vector: Array
) -> None:
    """estimate += scale * vector vector^T on the support; the vector in the order of `feature`."""
    n = len(segments)
    for r in range(n):
        s = scale * vector[r]
        line = estimate[segments[r] : segments[r] + r + 1]
        for j in range(len(line)):
            line[j] += s * vector[j]
    for r in range(n, len(feature)):
        estimate[diagonal[feature[r]]] += scale * vector[r] * vector[r]


forget_if_older(learn_all, kernels, lanczos, selection)
