"""Comparison, minimum, maximum and equality of integers given as encrypted digits.

A table of w bits serves digits in base B = 2^(w - 2) + 1: 3 bits base 3, 4 bits base 5.

- **Comparison.** The carry of a + the complement of b, from the least significant digit up: 1 after
  digit i if a_i + (B - 1 - b_i) + carry is at least B, an index of 0..2B - 1. At the end: a >= b.
- **Minimum.** With h = B - 1 where a >= b and 0 elsewhere, digit by digit b - h + f(a - b + 2h),
  f(x) = x cut off at B - 1: where h is 0 that is b + (a - b), elsewhere b - h + h.

The index of f is -(B - 1)..3(B - 1). The values below 0 lie in the bit that the library leaves free
above a message, where a look-up gives the negative of the table's entry 2^w further up: blind
rotation is negacyclic (Chillotti, Gama, Georgieva, Izabachene: TFHE, 2018). f there is the index
itself, so the entry at 2^w - i is i, for i up to B - 1; the entry at 3(B - 1) is the last of these
and the last of the others. A base larger by one would ask for two values in one place.

- **Equality**, of bits. Signs of w bits' differences, by the sign of 2^(w - 1) x + ... + z, until
  one group is left, and a table that is 1 at 0 alone. A sign is its own negative's negative.

The compiler takes widths from example operands. For the functions that use the free bit it must
see a >= b in every digit (`Circuit.ordered` in circuits.py): then no index is negative.

Functions are traced on arrays of shape (pairs, digits), most significant first, so one call
compares many pairs and the library spreads them over the cores.
"""

from typing import Any

import numpy as np

from .library import concrete_fhe

Traced = Any
"""An array of integers, or the library's stand-in for an encrypted one."""


def base_of(width: int) -> int:
    """The largest base of digits whose minimum tables of so many bits can select."""
    return 2 ** (width - 2) + 1


def look_up(table: list[int], value: Traced) -> Traced:
    """The table's entry at an encrypted value.

    Args:
        table: of 2^w entries. Every table of a module has one width, whatever its values need: the
            compiler gives each width a bootstrap key of its own.
        value: of -2^w..2^w - 1, where it is negative as said above.
    """
    fhe = concrete_fhe()
    return fhe.LookupTable(table)[fhe.hint(value, bit_width=len(table).bit_length() - 1)]


def _at_least(limit: int, entry: int, width: int) -> list[int]:
    return [entry if i >= limit else 0 for i in range(2**width)]


def sign_table(width: int) -> list[int]:
    """-1, 0 or 1 at -2^w + 1..2^w - 1."""
    return _at_least(1, 1, width)


def _compare(a: Traced, b: Traced, carry: int, last: int, width: int) -> Traced:
    """`last` where a + the complement of b + carry overflows, else 0; shape (pairs,)."""
    base = base_of(width)
    sums = a + (base - 1) - b
    found: Traced = carry
    for i in reversed(range(a.shape[1])):
        found = look_up(_at_least(base, 1 if i else last, width), sums[:, i] + found)
    return found


def less(a: Traced, b: Traced, width: int) -> Traced:
    """1 where a < b, else 0, shape (pairs,)."""
    return _compare(b, a, 0, 1, width)


def not_less(a: Traced, b: Traced, width: int) -> Traced:
    """1 where a >= b, else 0, shape (pairs,)."""
    return _compare(a, b, 1, 1, width)


def exchange(a: Traced, b: Traced, keep: int, width: int) -> tuple[Traced, Traced]:
    """The last `keep` digits of the larger and of the smaller of a and b, (pairs, digits) both."""
    top, start = base_of(width) - 1, a.shape[1] - keep
    held = _compare(a, b, 1, top, width).reshape((a.shape[0], 1))
    a, b = a[:, start:], b[:, start:]
    table = [min(i, top, 2**width - i) for i in range(2**width)]
    difference = look_up(table, a + 2 * held - b)
    return a + held - difference, b + difference - held


def maximum(a: Traced, b: Traced, width: int) -> Traced:
    """The larger of a and b, both of shape (pairs, digits)."""
    return exchange(a, b, a.shape[1], width)[0]


def minimum(a: Traced, b: Traced, keep: int, width: int) -> Traced:
    """The last `keep` digits of the smaller of a and b, both of shape (pairs, digits)."""
    return exchange(a, b, keep, width)[1]


def equality(a: Traced, b: Traced, width: int) -> Traced:
    """1 where all bits agree, else 0, shape (pairs,); a and b of shape (pairs, bits).

    Their noise must be independent, as that of fresh ciphertexts is: a minimum's digits share h.
    """
    signs = a - b
    while signs.shape[1] > width:
        signs = look_up(sign_table(width), signs @ _grouped(signs.shape[1], width))
    total = (signs @ _grouped(signs.shape[1], width)).reshape((a.shape[0],))
    return look_up([1] + [0] * (2**width - 1), total)


def _grouped(count: int, group: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The matrix that adds columns in groups, in each with powers of 2 that fall to 1.

    Shape (count, ceil(count / group)).
    """
    matrix = np.zeros((count, -(-count // group)), np.int64)
    for i in range(count):
        last_of_group = min((i // group + 1) * group, count) - 1
        matrix[i, i // group] = 2 ** (last_of_group - i)
    return matrix


def lookups_of_comparison(digits: int) -> int:
    """Table look-ups of `less` and `not_less`."""
    return digits


def lookups_of_minimum(digits: int) -> int:
    """Table look-ups of a minimum or maximum."""
    return 2 * digits


def lookups_of_equality(bits: int, width: int) -> int:
    """Table look-ups of an equality."""
    groups = -(-bits // width)
    return groups + lookups_of_equality(groups, width) if groups > 1 else 1
