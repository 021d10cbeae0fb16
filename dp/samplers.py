"""Integer noise: its distribution, its variance and exact draws from it.

Every class here is a distribution on the integers, symmetric around 0, with

- `draw(n, source)`: n independent draws, shape (n,), int64;
- `pmf(k, digits)`: P(k) as a Decimal, correct to about digits - 25 digits;
- `variance`: in squared grid steps;
- `loss(shift)`: sup over k of ln(P(k) / P(k + shift)) where the atom is left out.

Draws are exact, as `dp.exact` argues for tables; what each distribution adds is said beside it.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from dp.exact import (
    IntArray,
    RandomSource,
    Table,
    context,
    decimal,
    exp_minus,
    os_randomness,
    uniform_below,
)

BLOCK = 1 << 16
"""Draws made at a time, so that the work fits the cache."""
DIGIT = 256
LARGEST_MEAN = 64
"""The top digit of a geometric variable has at most this scale."""
TAIL = 12
"""The top digit's table ends where exp(-12) is left; the rest is drawn by memorylessness."""


@frozen(slots=False)
class Geometric:
    """G >= 0 with P(G >= k) = exp(-rate k).

    The digits of G in base 256 are independent: P(G = sum d_i 256^i) is proportional to the product
    of exp(-rate 256^i d_i). So each low digit is drawn from its own table on 0..255. The top digit
    has no end; its table stops at J, and since P(G >= J + k | G >= J) = P(G >= k), a draw that
    reaches J adds J and goes on with a fresh one.

    Attributes:
        rate: above 0, at least 2^-40.
    """

    rate: Fraction

    @cached_property
    def _tables(self) -> tuple[list[Table], Table, int]:
        low, rate = [], self.rate
        while rate * LARGEST_MEAN < 1:
            low.append(Table(DIGIT - 1, _digit(rate)))
            rate *= DIGIT
        end = math.ceil(TAIL / rate)
        return low, Table(end, _unbounded(rate)), end

    def draw(self, n: int, source: RandomSource) -> IntArray:
        """n independent draws."""
        low, top, end = self._tables
        out = top.draw(n, source)
        open_ended = np.flatnonzero(out == end)
        while len(open_ended):
            more = top.draw(len(open_ended), source)
            out[open_ended] += more
            open_ended = open_ended[more == end]
        for table in reversed(low):
            out *= DIGIT
            out += table.draw(n, source)
        return out


def _digit(rate: Fraction) -> Callable[[int, int], Decimal]:
    def cumulative(j: int, digits: int) -> Decimal:
        c = context(digits)
        below = c.subtract(Decimal(1), exp_minus(rate * (j + 1), digits))
        return c.divide(below, c.subtract(Decimal(1), exp_minus(rate * DIGIT, digits)))

    return cumulative


def _unbounded(rate: Fraction) -> Callable[[int, int], Decimal]:
    def cumulative(j: int, digits: int) -> Decimal:
        return context(digits).subtract(Decimal(1), exp_minus(rate * (j + 1), digits))

    return cumulative


@frozen(slots=False)
class TwoSidedGeometric:
    """Noise of the paper on the grid (kahm.txt, eq. 129 corrected).

    0 with probability `atom`, else two-sided geometric: P(k) proportional to exp(-rate |k|). It is
    drawn as sign times (1 + G): a table picks 0, plus or minus with probabilities 1 - p, p/2, p/2,
    p = (1 - atom) 2a / (1 + a), a = exp(-rate), and G is geometric, since P(|k| = j) is
    proportional to a^(j-1) for j >= 1.

    Attributes:
        rate: epsilon over the sensitivity in steps, at least 2^-40.
        atom: extra probability of exactly 0, in [0, 1).
    """

    rate: Fraction
    atom: Fraction = Fraction(0)

    @property
    def variance(self) -> float:
        """2 a / (1 - a)^2 times (1 - atom)."""
        return float(1 - self.atom) * 0.5 / math.sinh(float(self.rate) / 2) ** 2

    def loss(self, shift: int) -> float:
        """rate times shift."""
        return float(self.rate * shift)

    def pmf(self, k: int, digits: int = 60) -> Decimal:
        """P(k)."""
        c = context(digits)
        a = exp_minus(self.rate, digits)
        centre = c.divide(c.subtract(Decimal(1), a), c.add(Decimal(1), a))
        spread = c.multiply(centre, exp_minus(self.rate * abs(k), digits))
        p = c.multiply(decimal(1 - self.atom, digits), spread)
        return c.add(p, decimal(self.atom, digits)) if k == 0 else p

    @cached_property
    def _sign(self) -> Table:
        def cumulative(j: int, digits: int) -> Decimal:
            zero = self.pmf(0, digits)
            c = context(digits)
            return zero if j == 0 else c.divide(c.add(zero, Decimal(1)), Decimal(2))

        return Table(2, cumulative)

    @cached_property
    def _magnitude(self) -> Geometric:
        return Geometric(self.rate)

    def draw(self, n: int, source: RandomSource = os_randomness) -> IntArray:
        """n independent draws."""
        out = np.empty(n, dtype=np.int64)
        signs = np.array([0, 1, -1])
        for start in range(0, n, BLOCK):
            block = out[start : start + BLOCK]
            magnitude = self._magnitude.draw(len(block), source)
            magnitude += 1
            np.multiply(signs[self._sign.draw(len(block), source)], magnitude, out=block)
        return out


@frozen(slots=False)
class Staircase:
    """The staircase noise of Geng and Viswanath (2014) on the integers.

    P(k) is A on the first `width` steps of each period of `sensitivity` steps from 0 outwards and
    A exp(-epsilon) on the others; every further period has exp(-epsilon) of the one before. Drawn
    as sign, period (geometric), tread (table) and place on it (uniform); the draw "minus zero",
    which would count 0 twice, is made again.

    Attributes:
        epsilon: above 0.
        sensitivity: in steps, at least 1.
        width: 1 to sensitivity.
    """

    epsilon: Fraction
    sensitivity: int
    width: int

    @classmethod
    def least_magnitude(cls, epsilon: Fraction, sensitivity: int) -> "Staircase":
        """The width that makes the mean of |k| least."""
        b, e = math.exp(-float(epsilon)), -math.expm1(-float(epsilon))
        w = np.arange(1, sensitivity + 1, dtype=np.float64)
        mass = w + b * (sensitivity - w)
        first = w * (w - 1) / 2 + b * (sensitivity * (sensitivity - 1) - w * (w - 1)) / 2
        mean = 2 * (first / e + sensitivity * b / e**2 * mass) / (2 * mass / e - 1)
        return cls(epsilon, sensitivity, int(np.argmin(mean)) + 1)

    @property
    def variance(self) -> float:
        """Sum of k^2 P(k)."""
        b, e = math.exp(-float(self.epsilon)), -math.expm1(-float(self.epsilon))
        k = np.arange(self.sensitivity, dtype=np.float64)
        p = np.where(k < self.width, 1.0, b)
        mass, first, second = p.sum(), (k * p).sum(), (k**2 * p).sum()
        d = self.sensitivity
        # Sums over periods g of b^g, g b^g and g^2 b^g.
        s0, s1, s2 = 1 / e, b / e**2, b * (1 + b) / e**3
        total = second * s0 + 2 * d * first * s1 + d * d * mass * s2
        return float(2 * total / (2 * mass * s0 - 1))

    def loss(self, shift: int) -> float:
        """epsilon for every started period."""
        return float(self.epsilon) * -(-shift // self.sensitivity)

    def pmf(self, k: int, digits: int = 60) -> Decimal:
        """P(k)."""
        c = context(digits)
        b = exp_minus(self.epsilon, digits)
        rest = c.multiply(b, Decimal(self.sensitivity - self.width))
        mass = c.multiply(Decimal(2), c.add(Decimal(self.width), rest))
        e = c.subtract(Decimal(1), b)
        top = c.divide(e, c.subtract(mass, e))
        period, place = divmod(abs(k), self.sensitivity)
        return c.multiply(top, exp_minus(self.epsilon * (period + (place >= self.width)), digits))

    @cached_property
    def _low_tread(self) -> Table | None:
        if self.width == self.sensitivity:
            return None

        def cumulative(_: int, digits: int) -> Decimal:
            c = context(digits)
            rest = c.multiply(
                exp_minus(self.epsilon, digits), Decimal(self.sensitivity - self.width)
            )
            return c.divide(Decimal(self.width), c.add(Decimal(self.width), rest))

        return Table(1, cumulative)

    @cached_property
    def _period(self) -> Geometric:
        return Geometric(self.epsilon)

    def draw(self, n: int, source: RandomSource = os_randomness) -> IntArray:
        """n independent draws."""
        out = np.empty(n, dtype=np.int64)
        left = np.arange(n)
        while len(left):
            magnitude = self._draw_magnitude(len(left), source)
            negative = np.frombuffer(source(len(left)), dtype=np.uint8) & 1 == 1
            out[left] = np.where(negative, -magnitude, magnitude)
            left = left[negative & (magnitude == 0)]
        return out

    def _draw_magnitude(self, n: int, source: RandomSource) -> IntArray:
        place = uniform_below(self.width, n, source)
        if self._low_tread is not None:
            low = np.flatnonzero(self._low_tread.draw(n, source))
            place[low] = self.width + uniform_below(self.sensitivity - self.width, len(low), source)
        return self._period.draw(n, source) * self.sensitivity + place


MARGIN = 2.0**-44
"""Bounds the error of the acceptance probability in double precision: the exponent is at most
1100 before the probability underflows, x exp(-x) < 1/2 damps its relative error of 2^-49, and the
word's conversion adds 2^-53."""


@frozen(slots=False)
class DiscreteGaussian:
    """P(k) proportional to exp(-k^2 / (2 sigma^2)) on the integers.

    Canonne, Kamath, Steinke (2020), algorithm 3: a two-sided geometric proposal y of scale
    t = floor(sigma) + 1 is kept with probability p = exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)).
    A 64-bit prefix of U decides U < p where it clears an interval of MARGIN around a
    double-precision p; else both are compared with as many digits as it takes. So double precision
    decides nothing that it could decide wrongly.

    Attributes:
        sigma: above 0, at most 2^40.
    """

    sigma: Fraction

    @property
    def variance(self) -> float:
        """sigma^2 to double precision for sigma >= 2; the sum below that."""
        s = float(self.sigma)
        if s >= 2:  # Poisson summation: the relative gap is below 8 pi^2 s^2 exp(-2 pi^2 s^2)
            return s * s
        k = np.arange(-40, 41)
        p = np.exp(-(k**2) / (2 * s * s))
        return float((k**2 * p).sum() / p.sum())

    def loss(self, shift: int) -> float:
        """Infinite: no bound holds without a delta."""
        return math.inf if shift else 0.0

    @cached_property
    def _proposal(self) -> TwoSidedGeometric:
        return TwoSidedGeometric(Fraction(1, int(self.sigma) + 1))

    def pmf(self, k: int, digits: int = 60) -> Decimal:
        """P(k)."""
        return context(digits).divide(self._weight(k, digits), _gaussian_total(self.sigma, digits))

    def _weight(self, k: int, digits: int) -> Decimal:
        return _gaussian_weight(self.sigma, k, digits)

    def draw(self, n: int, source: RandomSource = os_randomness) -> IntArray:
        """n independent draws."""
        out = np.empty(n, dtype=np.int64)
        done = 0
        while done < n:
            proposed = self._proposal.draw(min(BLOCK, 2 * (n - done) + 16), source)
            kept = proposed[self._accept(proposed, source)][: n - done]
            out[done : done + len(kept)] = kept
            done += len(kept)
        return out

    def _accept(self, y: IntArray, source: RandomSource) -> NDArray[np.bool_]:
        word = np.frombuffer(source(8 * len(y)), dtype="<u8")
        s, centre = float(self.sigma), float(self._centre)
        z = (np.abs(y) - centre) / s
        gap = word * 2.0**-64 - np.exp(-0.5 * z * z)
        accepted = gap < 0
        for i in np.flatnonzero(np.abs(gap) <= MARGIN):
            accepted[i] = self._accept_exactly(abs(int(y[i])), int(word[i]), source)
        return accepted

    @property
    def _centre(self) -> Fraction:
        return self.sigma**2 / (int(self.sigma) + 1)

    def _accept_exactly(self, magnitude: int, word: int, source: RandomSource) -> bool:
        exponent = (magnitude - self._centre) ** 2 / (2 * self.sigma**2)
        if exponent == 0:
            return True
        undecided = Table(0, lambda _, digits: exp_minus(exponent, digits))
        bits = 64
        while (threshold := undecided.floor(0, bits)) == word:
            word = word << 32 | int.from_bytes(source(4), "little")
            bits += 32
        return word < threshold


def _gaussian_weight(sigma: Fraction, k: int, digits: int) -> Decimal:
    return exp_minus(Fraction(k * k) / (2 * sigma**2), digits)


@lru_cache(maxsize=32)
def _gaussian_total(sigma: Fraction, digits: int) -> Decimal:
    c = context(digits)
    total, k = Decimal(1), 1
    while (w := _gaussian_weight(sigma, k, digits)) > Decimal(10) ** -digits:
        total, k = c.add(total, c.multiply(Decimal(2), w)), k + 1
    return total
