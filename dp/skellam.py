"""Skellam noise: the difference of two Poisson variables, drawn exactly, and what it costs.

Agarwal, Kairouz, Liu (2021), "The Skellam mechanism for differentially private federated learning".
Unlike discrete Gaussians, independent Skellam variables add up to one: parts that clients add are
exactly the noise that was accounted for, on any grid.

Why a draw of a Poisson variable of whole mean m is exact. A two-sided geometric proposal j of scale
t = floor(sqrt m) + 1 is kept, as m + j, with probability

    p(j) = P(m + j) / P(m) exp(|j| / t - c),        c = 3/4 + 1/(8 t),

which is proportional to P over the proposal's probability. It is at most 1: log P is concave, so
the largest p(j) is where the ratio of neighbouring P passes exp(1 / t), which lies in the table
that is computed, and is checked there. P(m + j) / P(m) is rational, a product of |j| fractions, and
exp of a rational other than 0 is transcendental (|j| / t = c has no whole solution), so a uniform
number and p(j) differ at some digit: a 64-bit prefix decides where it clears an interval of MARGIN
around the double-precision p, else both are compared with as many digits as it takes.
"""

import math
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from dp.errors import InputError
from dp.exact import IntArray, RandomSource, Table, context, exp_minus, os_randomness
from dp.samplers import BLOCK, TwoSidedGeometric

LEAST_MEAN, LARGEST_MEAN = 64, 2**32
REACH = 16
"""The table of p ends at so many standard deviations; there p is below 2^-64."""
MARGIN = 2.0**-24
"""Bounds the error of p in double precision: its logarithm is a sum of at most 2^20 terms of one
sign that stays below 170 where p is above 2^-64, so it is off by less than 2^20 170 2^-53."""


@frozen(slots=False)
class Poisson:
    """A Poisson variable of whole mean.

    Attributes:
        mean: `LEAST_MEAN` to `LARGEST_MEAN`.
    """

    mean: int = field()

    @mean.validator
    def _in_range(self, _: object, value: int) -> None:
        if not LEAST_MEAN <= value <= LARGEST_MEAN:
            raise InputError(
                f"Poisson mean: found {value}, expected {LEAST_MEAN} to {LARGEST_MEAN}"
            )

    @cached_property
    def _scale(self) -> int:
        return math.isqrt(self.mean) + 1

    @cached_property
    def _offset(self) -> Fraction:
        return Fraction(3, 4) + Fraction(1, 8 * self._scale)

    @cached_property
    def _proposal(self) -> TwoSidedGeometric:
        return TwoSidedGeometric(Fraction(1, self._scale))

    @cached_property
    def _kept(self) -> NDArray[np.float64]:
        """p(j) for j from -reach to reach; j below -mean has 0."""
        reach = REACH * self._scale
        steps = np.arange(1, reach + 1, dtype=np.float64)
        up = -np.log1p(steps / self.mean)
        with np.errstate(divide="ignore"):
            down = np.log1p(-np.minimum((steps - 1) / self.mean, 1))
        logs = np.concatenate([np.cumsum(down)[::-1], [0.0], np.cumsum(up)])
        distance = np.abs(np.arange(-reach, reach + 1)) / self._scale
        kept = np.exp(logs + distance - float(self._offset))
        if not (kept.max() < 1 - MARGIN and max(kept[0], kept[-1]) < 2.0**-64):
            raise AssertionError(f"Poisson mean {self.mean}: the proposal does not cover it")
        return kept

    def keeping(self, j: int, digits: int) -> Decimal:
        """p(j), with an error of at most 10^-(digits - 25)."""
        c = context(digits)
        ratio = Decimal(1)
        for i in range(1, j + 1):
            ratio = c.divide(c.multiply(ratio, Decimal(self.mean)), Decimal(self.mean + i))
        for i in range(-j):
            ratio = c.divide(c.multiply(ratio, Decimal(self.mean - i)), Decimal(self.mean))
        exponent = Fraction(abs(j), self._scale) - self._offset
        return c.multiply(ratio, exp_minus(-exponent, digits))

    def draw(self, n: int, source: RandomSource = os_randomness) -> IntArray:
        """n independent draws, shape (n,), int64."""
        out = np.empty(n, dtype=np.int64)
        done = 0
        while done < n:
            proposed = self._proposal.draw(min(BLOCK, 2 * (n - done) + 16), source)
            kept = proposed[self._keep(proposed, source)][: n - done]
            out[done : done + len(kept)] = kept + self.mean
            done += len(kept)
        return out

    def _keep(self, j: IntArray, source: RandomSource) -> NDArray[np.bool_]:
        word = np.frombuffer(source(8 * len(j)), dtype="<u8")
        reach = REACH * self._scale
        inside = np.abs(j) <= reach
        # Outside p is below 2^-64, so that any word but 0 decides.
        gap = word * 2.0**-64 - np.where(inside, self._kept[np.clip(j, -reach, reach) + reach], 0)
        keep = gap < 0
        for i in np.flatnonzero(np.where(inside, np.abs(gap) <= MARGIN, word == 0)):
            keep[i] = self._keep_exactly(int(j[i]), int(word[i]), source)
        return keep

    def _keep_exactly(self, j: int, word: int, source: RandomSource) -> bool:
        if j < -self.mean:
            return False
        undecided = Table(0, lambda _, digits: self.keeping(j, digits))
        bits = 64
        while (threshold := undecided.floor(0, bits)) == word:
            word = word << 32 | int.from_bytes(source(4), "little")
            bits += 32
        return word < threshold


@frozen(slots=False)
class Skellam:
    """The difference of two independent Poisson variables of equal mean.

    P(k) = exp(-v) I_k(v), with the variance v and the modified Bessel function I.

    Attributes:
        variance: in squared grid steps, even, at least 128 and at most 2^33.
    """

    variance: int = field()

    @variance.validator
    def _even(self, _: object, value: int) -> None:
        if value % 2 or not 2 * LEAST_MEAN <= value <= 2 * LARGEST_MEAN:
            raise InputError(
                f"Skellam variance: found {value}, expected an even number from {2 * LEAST_MEAN}"
                f" to {2 * LARGEST_MEAN}"
            )

    @classmethod
    def of_scale(cls, sigma: float) -> "Skellam":
        """The least variance of at least sigma^2."""
        return cls(2 * max(LEAST_MEAN, math.ceil(Fraction(sigma) ** 2 / 2)))

    @cached_property
    def _half(self) -> Poisson:
        return Poisson(self.variance // 2)

    def loss(self, shift: int) -> float:
        """Infinite: no bound holds without a delta."""
        return math.inf if shift else 0.0

    def pmf(self, k: int, digits: int = 60) -> Decimal:
        """P(k), by the Bessel function's power series."""
        c = context(digits + self.variance)
        half = Decimal(self.variance // 2)
        term = c.power(half, abs(k))
        term = c.divide(term, Decimal(math.factorial(abs(k))))
        total, i = term, 0
        while term > c.multiply(total, Decimal(10) ** -(digits + 5)) or i < self.variance:
            i += 1
            term = c.divide(c.multiply(term, c.multiply(half, half)), Decimal(i * (i + abs(k))))
            total = c.add(total, term)
        return context(digits).multiply(total, exp_minus(Fraction(self.variance), digits))

    def draw(self, n: int, source: RandomSource = os_randomness) -> IntArray:
        """n independent draws, shape (n,), int64."""
        first: IntArray = self._half.draw(n, source)
        first -= self._half.draw(n, source)
        return first


def skellam_multiplier(l2: float, l1: float, variance: float) -> float:
    """Noise multiplier of Gaussian noise that is no more private at any whole Renyi order.

    Corollary 3.6 bounds the divergence at order a = 2, 3, ... by
    a l2^2 / (2 v) + min(((2 a - 1) l2^2 + 6 l1) / (4 v^2), 3 l1 / (2 v)). For a >= 2 this is at
    most a / 2 times l2^2 / v + min((2 l2^2 + 3 l1) / (2 v^2), 3 l1 / (2 v)).

    Args:
        l2: L2 norm by which what is protected moves the integers, > 0.
        l1: L1 norm likewise; at most sqrt(d) l2, and l2^2 since they are integers.
        variance: of the noise in each of them, > 0.
    """
    extra = min((2 * l2**2 + 3 * l1) / (2 * variance**2), 3 * l1 / (2 * variance))
    return 1 / math.sqrt(l2**2 / variance + extra)
