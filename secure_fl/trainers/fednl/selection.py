"""Compiled choice of entries: the k largest, and k at random. Import this module late."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from secure_fl.trainers.fednl import kernels
from secure_fl.trainers.fednl.compiled_code import forget_if_older
from secure_fl.trainers.fednl.kernels import largest

Array = NDArray[Any]


@njit(nogil=True, cache=True)
def random_places(word: int, taken: Array, out: Array) -> None:
    """k of `len(taken)` places, every subset as likely, ascending (Floyd's sampling).

    Args:
        word: 63 random bits, which SplitMix64 (Steele et al. 2014) stretches.
        taken: zeros, and zeros again afterwards.
        out: receives the places, shape (k,), k at most the number of places.
    """
    size, k = len(taken), len(out)
    state = np.uint64(word)
    for j in range(size - k, size):
        state += np.uint64(0x9E3779B97F4A7C15)
        z = state
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        t = min(int(float(z >> np.uint64(11)) * 2.0**-53 * (j + 1)), j)
        if taken[t]:
            t = j
        taken[t] = 1
    found, place = 0, 0
    # Written first and counted afterwards, as in `largest`.
    while found < k:
        out[found] = place
        found += taken[place]
        taken[place] = 0
        place += 1


@njit(nogil=True, cache=True)
def largest_places(values: Array, k: int, work: Array, out: Array) -> None:
    """Places of the k entries of largest magnitude, ascending; the lowest places among equals.

    Args:
        values: finite.
        k: 1 to len(values).
        work: scratch of at least that length.
        out: receives the places, shape (k,).
    """
    n = len(values)
    if k == n:
        for p in range(n):
            out[p] = p
        return
    threshold = kth_largest(values, k, work)
    above = 0
    for p in range(n):
        if abs(values[p]) > threshold:
            above += 1
    largest(values, threshold, above, k, out)


BUCKETS = 4096
"""Of the exponent and the first bit of the fraction."""


@njit(nogil=True, cache=True)
def kth_largest(values: Array, k: int, work: Array) -> float:
    """The k-th largest magnitude: counts by exponent, then selects within one bucket."""
    n = len(values)
    bits = values.view(np.uint64)
    count = np.zeros(BUCKETS, np.int32)
    for p in range(n):
        count[(bits[p] & np.uint64(0x7FFFFFFFFFFFFFFF)) >> np.uint64(51)] += 1
    bucket, above = BUCKETS - 1, 0
    while above + count[bucket] < k:
        above += count[bucket]
        bucket -= 1
    found, wanted = 0, np.uint64(bucket)
    for p in range(n):
        work[found] = abs(values[p])
        found += int((bits[p] & np.uint64(0x7FFFFFFFFFFFFFFF)) >> np.uint64(51) == wanted)
    return select(work, found, found - (k - above))


@njit(nogil=True, cache=True)
def select(work: Array, n: int, rank: int) -> float:
    """The entry that stands at `rank` in ascending order of the first n (Hoare's quickselect)."""
    low, high = 0, n - 1
    while low < high:
        a, b, c = work[low], work[(low + high) // 2], work[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while work[i] < pivot:
                i += 1
            while work[j] > pivot:
                j -= 1
            if i <= j:
                work[i], work[j] = work[j], work[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            return pivot
    return work[rank]


forget_if_older(largest_places, kernels)
