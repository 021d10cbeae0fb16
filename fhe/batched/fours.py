"""Numbers in groups of four whose sums are nearly 0: the roots of many contributors' polynomial.

Exchanges between two groups, as `vanishing` makes them for up to 64 pairs of roots, end with sums
in the hundreds where there are more. Here a group is begun with the number farthest from 0 and
completed to exactly 0 as long as that can be done; the few groups that are left over at the end are
then divided anew together with two others, all ways of three groups at a time.

All parties must find the same groups: nothing is random, and all numbers are integers.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

Groups = np.ndarray[Any, np.dtype[np.int64]]


def fours(numbers: Sequence[int], enough: int) -> list[tuple[int, ...]]:
    """The numbers in groups of four.

    Args:
        numbers: different ones, as many as a multiple of four.
        enough: an absolute sum that is not made smaller.
    """
    groups, splits = np.array(list(_completed(numbers)), np.int64), _splits()
    while (changed := _divided_anew(groups, splits, enough)) is not None:
        groups = changed
    return [tuple(map(int, sorted(group))) for group in groups]


def _completed(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    left = sorted(numbers, key=abs)
    while left:
        first = left.pop()
        three = next(_to_zero(first, left), None) or min(
            combinations(left, 3), key=lambda each: abs(first + sum(each))
        )
        yield first, *three
        left = [each for each in left if each not in three]


def _to_zero(first: int, left: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Three others that make 0 with the first; those farthest from 0 come first."""
    there = set(left)
    for a, b in combinations(reversed(left), 2):
        c = -(first + a + b)
        if c in there and c not in (a, b):
            yield a, b, c


def _splits() -> Groups:
    """All ways to divide twelve into three groups of four, shape (5775, 3, 4)."""
    found = []
    for a in combinations(range(1, 12), 3):
        rest = [i for i in range(1, 12) if i not in a]
        for b in combinations(rest[1:], 3):
            last = [i for i in rest[1:] if i not in b]
            found.append(((0, *a), (rest[0], *b), last))
    return np.array(found)


def _divided_anew(groups: Groups, splits: Groups, enough: int) -> Groups | None:
    """The group with the largest sum and two others, divided such that no sum is as large."""
    sums = np.abs(groups.sum(axis=1))
    worst, *others = np.argsort(-sums, kind="stable")
    if sums[worst] <= enough:
        return None
    for pair in combinations(others, 2):
        three = [worst, *pair]
        divided = groups[three].reshape(12)[splits]
        largest = np.abs(divided.sum(axis=2)).max(axis=1)
        best = largest.argmin()
        if largest[best] < sums[worst]:
            changed = groups.copy()
            changed[three] = divided[best]
            return changed
    return None
