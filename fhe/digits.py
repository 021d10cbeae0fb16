"""Comparison, minimum, maximum and equality of integers given as encrypted base-B digits.

Two designs, each the cheapest found for its failure probabilities (docs/fhe.md):

- **Base 4.** The sign of a - b is found in a chain, from the most significant digit down: the sign
  of 4 x (sign so far) + difference, -7..7, by one 4-bit table a digit.
- **Base 2.** A digit's difference is its own sign. Signs are combined in pairs, 2 x + y, -3..3, by
  one 3-bit table a pair, until one is left.

A minimum then selects every digit with one more table over (a - b + B - 1) + (2 B - 1) [a < b].
An equality looks which digits differ, and whether their number is 0. No table is wider than 4 bits
in base 4, and than 3 in base 2.

Functions are traced on arrays of shape (pairs, digits), so one call compares many pairs and the
library spreads them over the cores.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .library import concrete_fhe

Traced = Any
"""An array of integers, or the library's stand-in for an encrypted one."""

Table = Callable[[Any], NDArray[Any]]


def largest_count(base: int) -> int:
    """Differing digits that one table can count."""
    return 15 if base == 4 else 7


def table_width(base: int) -> int:
    """Bits of every table of a design."""
    return 4 if base == 4 else 3


def look_up(table: Table, value: Traced, base: int) -> Traced:
    """The table's entry at an encrypted value.

    Every table is as wide as the design's widest, whatever its own values need: the compiler gives
    each width a bootstrap key of its own, and a second one would double the evaluation keys.
    """
    fhe = concrete_fhe()
    return fhe.univariate(table)(fhe.hint(value, bit_width=table_width(base)))


def _span(base: int) -> int:
    """Differences of two digits take so many values."""
    return 2 * base - 1


def _span_if_negative(base: int) -> Table:
    return lambda value: _span(base) * (np.asarray(value) < 0)


def _difference_if_less(base: int) -> Table:
    span, top = _span(base), base - 1

    def table(value: Any) -> NDArray[Any]:
        value = np.asarray(value)
        return np.where(value >= span, value - span - top, 0)

    return table


def _difference_if_not_less(base: int) -> Table:
    span, top = _span(base), base - 1

    def table(value: Any) -> NDArray[Any]:
        value = np.asarray(value)
        return np.where(value < span, value - top, 0)

    return table


def _one_if_negative(value: Any) -> NDArray[Any]:
    return (np.asarray(value) < 0).astype(np.int64)


def _one_if_zero(value: Any) -> NDArray[Any]:
    return (np.asarray(value) == 0).astype(np.int64)


def _one_if_not_zero(value: Any) -> NDArray[Any]:
    return (np.asarray(value) != 0).astype(np.int64)


def _compare(difference: Traced, base: int, last: Table) -> Traced:
    """`last` of the sign of a - b, from its digits' differences; shape (pairs,)."""
    return (_chain if base == 4 else _tree)(difference, last)


def _chain(difference: Traced, last: Table) -> Traced:
    digits = difference.shape[1]
    sign = difference[:, 0]
    for i in range(1, digits):
        sign = 4 * look_up(np.sign, sign, 4) + difference[:, i]
    return look_up(last, sign, 4)


def _tree(difference: Traced, last: Table) -> Traced:
    signs = difference
    while signs.shape[1] > 2:
        even = signs.shape[1] // 2 * 2
        combined = look_up(np.sign, signs[:, :even] @ _grouped(even, 2, weight=2), 2)
        # A sign left over alone moves up as it is.
        alone = even < signs.shape[1]
        signs = np.concatenate((combined, signs[:, even:]), axis=1) if alone else combined
    total = signs[:, 0]
    if signs.shape[1] == 2:
        total = 2 * total + signs[:, 1]
    return look_up(last, total, 2)


def _grouped(count: int, group: int, *, weight: int) -> NDArray[np.int64]:
    """The matrix that adds columns in groups, in each with falling powers of `weight`.

    Shape (count, ceil(count / group)).
    """
    matrix = np.zeros((count, -(-count // group)), np.int64)
    for i in range(count):
        last_of_group = min((i // group + 1) * group, count) - 1
        matrix[i, i // group] = weight ** (last_of_group - i)
    return matrix


def minimum(a: Traced, b: Traced, keep: int, base: int) -> Traced:
    """The last `keep` digits of the smaller of a and b, both of shape (pairs, digits)."""
    return _select(a, b, keep, base, _difference_if_less(base))


def maximum(a: Traced, b: Traced, base: int) -> Traced:
    """The larger of a and b, both of shape (pairs, digits)."""
    return _select(a, b, a.shape[1], base, _difference_if_not_less(base))


def _select(a: Traced, b: Traced, keep: int, base: int, table: Table) -> Traced:
    start = a.shape[1] - keep
    difference = a - b
    less = _compare(difference, base, _span_if_negative(base))
    index = difference[:, start:] + (base - 1) + less.reshape((a.shape[0], 1))
    return b[:, start:] + look_up(table, index, base)


def less(a: Traced, b: Traced, base: int) -> Traced:
    """1 where a < b, else 0, shape (pairs,)."""
    return _compare(a - b, base, _one_if_negative)


def equality(a: Traced, b: Traced, base: int) -> Traced:
    """1 where all digits agree, else 0, shape (pairs,)."""
    return all_equal(a - b, base)


def all_equal(difference: Traced, base: int) -> Traced:
    """1 where all digits of a (pairs, digits) array are 0, else 0; shape (pairs,)."""
    if base == 2 and difference.shape[1] > 1:
        # Two digits' differences fit one table, and 2 x + y is 0 only where both are.
        difference = difference @ _grouped(difference.shape[1], 2, weight=2)
    differs = look_up(_one_if_not_zero, difference, base)
    limit = largest_count(base)
    while differs.shape[1] > limit:
        groups = _grouped(differs.shape[1], limit, weight=1)
        differs = look_up(_one_if_not_zero, differs @ groups, base)
    return look_up(_one_if_zero, np.sum(differs, axis=1), base)


def lookups_of_comparison(digits: int, base: int) -> int:
    """Table look-ups of one comparison."""
    return digits if base == 4 else max(1, digits - 1)


def lookups_of_minimum(digits: int, base: int) -> int:
    """Table look-ups of one minimum or maximum."""
    return lookups_of_comparison(digits, base) + digits


def lookups_of_equality(digits: int, base: int) -> int:
    """Table look-ups of one equality."""
    count = -(-digits // 2) if base == 2 else digits
    total = count + 1
    while count > largest_count(base):
        count = -(-count // largest_count(base))
        total += count
    return total
