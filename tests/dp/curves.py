"""The privacy curve of integer noise by summation in high precision: a proof, not an estimate.

For a noise P, a shift s and epsilon the hockey-stick divergence is

    delta(epsilon, s) = sum over k of max(P(k) - e^epsilon P(k + s), 0),

and a mechanism keeps (epsilon, delta) when delta(epsilon, s) <= delta for all |s| up to the
sensitivity (all noises here are symmetric, so s > 0 suffices).
"""

from decimal import Decimal
from fractions import Fraction

from dp.exact import context, exp_minus
from dp.mechanisms import Noise

DIGITS = 60
SMALLEST = Decimal(10) ** -40
"""Probabilities below are not summed; all that is left out is added to the result instead."""


def probabilities(noise: Noise, digits: int = DIGITS) -> list[Decimal]:
    """P(0), P(1), ... until they stay below 10^-40."""
    p = [noise.pmf(0, digits)]
    while p[-1] >= SMALLEST:
        p.append(noise.pmf(len(p), digits))
    return p


def divergence(p: list[Decimal], epsilon: float, shift: int, digits: int = DIGITS) -> Decimal:
    """An upper bound on delta(epsilon, shift), exact but for about 10^-38.

    Args:
        p: what `probabilities` returns.
        epsilon: at least 0.
        shift: in steps, at least 1.
        digits: of the arithmetic.
    """
    c = context(digits)
    factor = c.divide(Decimal(1), exp_minus(Fraction(epsilon), digits))
    total = Decimal(1)
    gain = Decimal(0)
    for k in range(-len(p) + 1, len(p)):
        here = p[abs(k)]
        there = p[abs(k + shift)] if abs(k + shift) < len(p) else Decimal(0)
        total = c.subtract(total, here)
        more = c.subtract(here, c.multiply(factor, there))
        if more > 0:
            gain = c.add(gain, more)
    return c.add(gain, total.copy_abs())


def privacy_curve(noise: Noise, sensitivity: int, epsilon: float) -> Decimal:
    """The largest divergence over all shifts 1..sensitivity."""
    p = probabilities(noise)
    return max(divergence(p, epsilon, shift) for shift in range(1, sensitivity + 1))
