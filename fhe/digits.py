"""Comparison, minimum, maximum and equality of integers given as encrypted digits.

A table of w bits serves digits in base B = 2^(w - 2) + 1: 3 bits base 3, 4 bits base 5.

- **Comparison.** The carry of a + the complement of b, from the least significant digit up: 1 after
  digit i if a_i + (B - 1 - b_i) + carry is at least B, an index of 0..2B - 1. At the end: a >= b.
- **Minimum.** With h = B - 1 where a >= b and 0 elsewhere, digit by digit b - h + f(a - b + 2h),
  f(x) = x cut off at B - 1: where h is 0 that is b + (a - b), elsewhere b - h + h.
- **Mixed radix.** A comparison looks up a place of radix R at once, where a selection takes digits
  in base B: a radix above B is written as two of them. The index x = a + (R - 1 - b) + carry lets R
  be 2^(w - 1). In the last place it is x = a - b + carry, of -(R - 1)..R, and R up to 2^w: the
  table is (B - 1) / 2 above 0 and the negative at 0, which adds up with (B - 1) / 2 to h.

An index below 0 lies in the bit that the library leaves free above a message, where a look-up gives
the negative of the table's entry 2^w further up, and so does one of 2^w: blind rotation is
negacyclic (Chillotti, Gama, Georgieva, Izabachene: TFHE, 2018). The index of f is
-(B - 1)..3(B - 1). Below 0 f is the index itself, so the entry at 2^w - i is i, for i up to B - 1;
the entry at 3(B - 1) is the last of these and the last of the others. A base larger by one would
ask for two values in one place.

- **Equality**, of bits. Signs of w bits' differences, by the sign of 2^(w - 1) x + ... + z, until
  one group is left, and a table that is 1 at 0 alone. A sign is its own negative's negative.

The compiler takes widths from example operands. For the functions that use the free bit it must
see a >= b in every digit (`Circuit.ordered` in circuits.py): then no index is negative. It must
not see an index of 2^w either (`largest_shown`).

Functions are traced on arrays of shape (pairs, digits), most significant first, so one call
compares many pairs and the library spreads them over the cores.
"""

import math
from typing import Any

import numpy as np

from .code import digits_of
from .library import concrete_fhe

Traced = Any
"""An array of integers, or the library's stand-in for an encrypted one."""

Radices = tuple[int, ...]
"""Of a mixed radix system, most significant first: how many values every place has."""


def base_of(width: int) -> int:
    """The largest base of digits whose minimum tables of so many bits can select."""
    return 2 ** (width - 2) + 1


def radices_of(values: int, width: int) -> Radices:
    """Radices for so many values: as few digits as base B takes, in as many pairs as fit."""
    base = base_of(width)
    digits = digits_of(values, base)
    for pairs in range(digits // 2, 0, -1):
        single = (base,) * (digits - 2 * pairs)
        found = (2**width, *single, *(2 ** (width - 1),) * (pairs - 1))
        if math.prod(found) >= values:
            return found
    return (base,) * digits


def weights_of(radices: Radices, width: int) -> list[int]:
    """What a 1 in every digit is worth, most significant first."""
    base = base_of(width)
    found, weight = [], 1
    for radix in reversed(radices):
        found += [weight, weight * base] if radix > base else [weight]
        weight *= radix
    return found[::-1]


def largest_shown(radices: Radices, width: int) -> list[int]:
    """Digits up to which the compiler may see operands of a minimum, most significant first.

    The largest index of a last place of radix 2^w, 2^w itself, must stay hidden.
    """
    base = base_of(width)
    found: list[int] = []
    for radix in radices:
        found += divmod(radix - 2, base) if radix > base else [radix - 1]
    return found


def look_up(table: list[int], value: Traced) -> Traced:
    """The table's entry at an encrypted value.

    Args:
        table: of 2^w entries. Every table of a module has one width, whatever its values need: the
            compiler gives each width a bootstrap key of its own.
        value: of -2^w..2^w, below 0 and at 2^w as said above.
    """
    fhe = concrete_fhe()
    return fhe.LookupTable(table)[fhe.hint(value, bit_width=len(table).bit_length() - 1)]


def _at_least(limit: int, width: int) -> list[int]:
    return [int(i >= limit) for i in range(2**width)]


def sign_table(width: int) -> list[int]:
    """-1, 0 or 1 at -2^w + 1..2^w - 1."""
    return _at_least(1, width)


def _places(digits: Traced, radices: Radices, width: int) -> list[Traced]:
    """The value in every place, shape (pairs,) each."""
    base, found, at = base_of(width), [], 0
    for radix in radices:
        pair = radix > base
        found.append(base * digits[:, at] + digits[:, at + 1] if pair else digits[:, at])
        at += 1 + pair
    return found


def _carry(differences: list[Traced], radices: Radices, carry: Traced, width: int) -> Traced:
    """1 where a + the complement of b + carry overflows, else 0, shape (pairs,)."""
    for difference, radix in zip(reversed(differences), reversed(radices), strict=True):
        carry = look_up(_at_least(radix, width), difference + (radix - 1) + carry)
    return carry


def less(a: Traced, b: Traced, width: int) -> Traced:
    """1 where a < b, else 0, shape (pairs,)."""
    radices = (base_of(width),) * a.shape[1]
    return _carry(_places(b - a, radices, width), radices, 0, width)


def not_less(a: Traced, b: Traced, width: int) -> Traced:
    """1 where a >= b, else 0, shape (pairs,)."""
    radices = (base_of(width),) * a.shape[1]
    return _carry(_places(a - b, radices, width), radices, 1, width)


def exchange(
    a: Traced, b: Traced, radices: Radices, keep: int, width: int
) -> tuple[Traced, Traced]:
    """The last `keep` digits of the larger and of the smaller of a and b, (pairs, digits) both.

    A radix above B adds up two digits of an operand: their noise must be independent, as that of
    fresh ciphertexts is. A minimum's digits share h.
    """
    top, start = base_of(width) - 1, a.shape[1] - keep
    first, *rest = _places(a - b, radices, width)
    half = top // 2
    carry = _carry(rest, radices[1:], 1, width)
    sign = look_up([-half] + [half] * (2**width - 1), first + carry)
    held = (sign + half).reshape((a.shape[0], 1))
    a, b = a[:, start:], b[:, start:]
    table = [min(i, top, 2**width - i) for i in range(2**width)]
    difference = look_up(table, a + 2 * held - b)
    return a + held - difference, b + difference - held


def maximum(a: Traced, b: Traced, radices: Radices, width: int) -> Traced:
    """The larger of a and b, both of shape (pairs, digits)."""
    return exchange(a, b, radices, a.shape[1], width)[0]


def minimum(a: Traced, b: Traced, radices: Radices, keep: int, width: int) -> Traced:
    """The last `keep` digits of the smaller of a and b, both of shape (pairs, digits)."""
    return exchange(a, b, radices, keep, width)[1]


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


def lookups_of_minimum(radices: Radices, width: int) -> int:
    """Table look-ups of a minimum or maximum."""
    return len(radices) + len(weights_of(radices, width))


def lookups_of_equality(bits: int, width: int) -> int:
    """Table look-ups of an equality."""
    groups = -(-bits // width)
    return groups + lookups_of_equality(groups, width) if groups > 1 else 1
