"""Gaussian noise rounded to integers: what a private sum of integers may add at no extra cost.

For an integer s and a real normal x, round(s + x) = s + round(x). So adding this noise to a vector
of integers is post-processing of the Gaussian mechanism itself, for every sensitivity, number of
entries, Poisson sampling and composition: accountants of continuous noise (`dp.accounting.Gaussian`
with `discrete=False`) hold as they are. A discrete Gaussian has no such reduction, and
floating-point noise has none either: its low bits tell values apart (Mironov 2012).
"""

from fractions import Fraction
from functools import cached_property

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from dp.errors import InputError
from dp.exact import IntArray, RandomSource, Table, exp_minus, os_randomness
from dp.samplers import BLOCK, MARGIN, Geometric

SMALLEST_SIGMA, LARGEST_SIGMA = Fraction(1, 2**10), Fraction(2**40)


def _sigma(value: Fraction) -> Fraction:
    if not SMALLEST_SIGMA <= value <= LARGEST_SIGMA:
        raise InputError(
            f"sigma: found {float(value):.4g} grid steps, expected 2^-10 to 2^40; take another grid"
        )
    return value


@frozen(slots=False)
class RoundedGaussian:
    """P(k) = Phi((k + 1/2) / sigma) - Phi((k - 1/2) / sigma).

    Drawn exactly, as sign, whole part m and fraction u of |x|. With t = floor(sigma) + 1, m is
    proposed as a geometric variable of rate 1/t and u as a uniform one. |x| has a density
    proportional to exp(-(m + u)^2 / (2 sigma^2)), so the proposal is kept with probability

        p = exp(-(m + u - c)^2 / (2 sigma^2) - u / t),      c = sigma^2 / t,

    which is at most 1. A 64-bit prefix of u and one of the uniform variable that decides are
    enough outside an interval of MARGIN around a double-precision p; inside it both are read on
    until rational bounds decide. |x| is rounded by the first bit of u.

    Attributes:
        sigma: of the normal variable, 2^-10 to 2^40.

    Raises:
        InputError: sigma out of its range.
    """

    sigma: Fraction

    def __attrs_post_init__(self) -> None:
        _sigma(self.sigma)

    @property
    def _scale(self) -> int:
        return int(self.sigma) + 1

    @cached_property
    def _proposal(self) -> Geometric:
        return Geometric(Fraction(1, self._scale))

    def draw(self, n: int, source: RandomSource = os_randomness) -> IntArray:
        """n independent draws, shape (n,), int64."""
        out = np.empty(n, dtype=np.int64)
        done = 0
        while done < n:
            count = min(BLOCK, 3 * (n - done) // 2 + 16)
            whole = self._proposal.draw(count, source)
            fraction = np.frombuffer(source(8 * count), dtype="<u8")
            kept = self._accept(whole, fraction, source)
            magnitude = whole + (fraction >> np.uint64(63)).astype(np.int64)
            negative = np.frombuffer(source(count), dtype=np.uint8) & 1 == 1
            drawn = np.where(negative, -magnitude, magnitude)[kept][: n - done]
            out[done : done + len(drawn)] = drawn
            done += len(drawn)
        return out

    def _accept(
        self, whole: IntArray, fraction: NDArray[np.uint64], source: RandomSource
    ) -> NDArray[np.bool_]:
        word = np.frombuffer(source(8 * len(whole)), dtype="<u8")
        s, t = float(self.sigma), self._scale
        u = fraction * 2.0**-64
        # The exponent grows by at most x / sigma^2 an u, so its 64 bits are far inside the margin,
        # as are the roundings here: where x / sigma is large, p is small.
        z = (whole + u) / s - float(self.sigma / t)
        gap = word * 2.0**-64 - np.exp(-0.5 * z * z - u / t)
        accepted = gap < 0
        for i in np.flatnonzero(np.abs(gap) <= MARGIN):
            accepted[i] = self.accept_exactly(int(whole[i]), int(fraction[i]), int(word[i]), source)
        return accepted

    def accept_exactly(self, whole: int, fraction: int, word: int, source: RandomSource) -> bool:
        """Decides a proposal by as many bits as it takes.

        Args:
            whole: m.
            fraction: first 64 bits of u.
            word: first 64 bits of the uniform variable.
            source: of the further bits.
        """
        bits = 64
        while True:
            # The exponent grows with u: its derivative is (m + u) / sigma^2.
            low = _floor(self._exponent(whole, Fraction(fraction + 1, 2**bits)), bits)
            high = _floor(self._exponent(whole, Fraction(fraction, 2**bits)), bits)
            if word < low:
                return True
            if word > high:
                return False
            more = int.from_bytes(source(8), "little")
            fraction = fraction << 32 | more & 0xFFFFFFFF
            word = word << 32 | more >> 32
            bits += 32

    def _exponent(self, whole: int, u: Fraction) -> Fraction:
        t = self._scale
        return (whole + u - self.sigma**2 / t) ** 2 / (2 * self.sigma**2) + u / t


def _floor(exponent: Fraction, bits: int) -> int:
    """floor(2^bits exp(-exponent))."""
    if exponent == 0:
        return 1 << bits
    return Table(0, lambda _, digits: exp_minus(exponent, digits)).floor(0, bits)
