"""Exact draws from a finite distribution with real probabilities, by integers alone.

Why a draw is exact. Let U be uniform on [0, 1), its binary digits being independent fair bits, and
let F_0 < F_1 < ... be cumulative probabilities. #{j : F_j <= U} has the wanted distribution. A
prefix v of b bits says v <= 2^b U < v + 1, and with T_j = floor(2^b F_j), an integer,

    T_j < v  implies F_j < U,        T_j > v  implies F_j > U,

so a prefix decides every comparison but those with T_j = v. Those read more bits until decided. The
only approximation is in T_j, which is taken from an interval that encloses F_j, narrowed until both
of its ends have the same floor. That ends because exp of a non-zero rational is transcendental, so
2^b F_j is no integer for the distributions here.

Speed comes from a first prefix of 16 bits that indexes a table of outcomes; the few entries of the
table that hold a threshold go on with 64 bits, and about one draw in 2^50 reads more.
"""

import os
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

RandomSource: TypeAlias = Callable[[int], bytes]
"""Gives that many bytes; `os.urandom` wherever real data is released."""
IntArray: TypeAlias = NDArray[np.int64]

GUIDE_BITS = 16
WORD_BITS = 64
LOST_DIGITS = 25
"""Decimal digits that the formulas here may lose: differences near 0 lose at most 13."""

os_randomness: RandomSource = os.urandom


def context(digits: int) -> Context:
    """Decimal arithmetic of that many digits and practically unlimited exponent."""
    return Context(prec=digits, Emin=-(10**15), Emax=10**15, traps=[])


def decimal(value: Fraction, digits: int) -> Decimal:
    """The value, rounded to that many digits."""
    return context(digits).divide(Decimal(value.numerator), Decimal(value.denominator))


def exp_minus(rate: Fraction, digits: int) -> Decimal:
    """exp(-rate); Decimal's exp is correctly rounded."""
    # copy_negate: the unary minus would round to the 28 digits of the thread's own context.
    return context(digits).exp(decimal(rate, digits).copy_negate())


class Table:
    """Draws of #{j < count : F_j <= U}.

    Args:
        count: number of cumulative probabilities below 1.
        cumulative: F_j for (j, digits), with an error of at most 10^-(digits - LOST_DIGITS).
        guide_bits: of the first prefix, 1 to 16.
        word_bits: of the second, guide_bits + 1 to 64. Tests make both small to meet every branch.
    """

    def __init__(
        self,
        count: int,
        cumulative: Callable[[int, int], Decimal],
        *,
        guide_bits: int = GUIDE_BITS,
        word_bits: int = WORD_BITS,
    ) -> None:
        self._cumulative = cumulative
        self._guide_bits, self._word_bits = guide_bits, word_bits
        floors = [self.floor(j, word_bits) for j in range(count)]
        self.thresholds = np.array(floors, dtype=np.uint64)
        cells = np.array([t >> (word_bits - guide_bits) for t in floors], dtype=np.int64)
        self._guide = np.searchsorted(cells, np.arange(2**guide_bits), side="left")
        self._guide[cells] = -1

    def floor(self, j: int, bits: int) -> int:
        """floor(2^bits F_j)."""
        digits = LOST_DIGITS + 10 + bits // 3
        while True:
            value = Fraction(self._cumulative(j, digits))
            error = Fraction(1, 10 ** (digits - LOST_DIGITS))
            low, high = ((value + sign * error) * 2**bits for sign in (-1, 1))
            if low // 1 == high // 1:
                return int(low // 1)
            digits *= 2

    def draw(self, n: int, source: RandomSource) -> IntArray:
        """n independent draws, shape (n,), each in 0..count."""
        word = np.frombuffer(source(2 * n), dtype="<u2") >> (16 - self._guide_bits)
        drawn = self._guide[word]
        unclear = np.flatnonzero(drawn < 0)
        if len(unclear):
            drawn[unclear] = self._refine(word[unclear].astype(np.uint64), source)
        return drawn

    def _refine(self, word: NDArray[np.uint64], source: RandomSource) -> IntArray:
        extra = self._word_bits - self._guide_bits
        tail = np.frombuffer(source(8 * len(word)), dtype="<u8") >> np.uint64(64 - extra)
        prefix = word << np.uint64(extra) | tail
        first = np.searchsorted(self.thresholds, prefix, side="left")
        last = np.searchsorted(self.thresholds, prefix, side="right")
        for i in np.flatnonzero(first != last):
            first[i] = self._resolve(int(prefix[i]), int(first[i]), int(last[i]), source)
        return first

    def _resolve(self, prefix: int, first: int, last: int, source: RandomSource) -> int:
        """Reads more bits until the thresholds first..last-1 are on known sides of U."""
        bits = self._word_bits
        while first != last:
            prefix = prefix << 32 | int.from_bytes(source(4), "little")
            bits += 32
            floors = [self.floor(j, bits) for j in range(first, last)]
            below = sum(t < prefix for t in floors)
            first, last = first + below, first + sum(t <= prefix for t in floors)
        return first


def uniform_below(bound: int, n: int, source: RandomSource) -> IntArray:
    """n integers uniform on 0..bound-1, 1 <= bound <= 2^62: words of as many bits as bound - 1
    has, those at or above bound drawn again, so that none is favoured."""
    bits = max(1, (bound - 1).bit_length())
    out = np.empty(n, dtype=np.int64)
    left = np.arange(n)
    while len(left):
        word = np.frombuffer(source(8 * len(left)), dtype="<u8") >> np.uint64(64 - bits)
        out[left] = word.astype(np.int64)
        left = left[out[left] >= bound]
    return out
