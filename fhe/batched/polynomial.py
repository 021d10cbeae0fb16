"""The polynomial P of `vanishing` on values of the circuit.

Where dropping a prime multiplies the slots (`chain`), every value of P is its own multiple of what
it stands for: a product squares the factor, a drop multiplies it by the prime's inverse. So all
values at one level have one factor, but those that are dropped without a product: they are
multiplied by it first, which costs nothing just before a drop.
"""

from collections.abc import Iterator

import attrs

from .arithmetic import Arithmetic, V
from .vanishing import Vanishing, coefficients


@attrs.frozen
class Scales:
    """Factors of the values of P.

    Attributes:
        modulus: t.
        after: by how many primes were dropped since the count, whose factor is 1.
    """

    modulus: int
    after: tuple[int, ...]


def factors(ops: Arithmetic[V], plan: Vanishing, scales: Scales, count: V) -> tuple[V, V, int]:
    """Two values and a constant: P(count) is their product, dropped, plus the constant.

    Args:
        ops: of the values.
        plan: of P.
        scales: at the count's level.
        count: not wide.
    """
    pairs, after = plan.pairs, scales.after
    y = ops.drop(ops.plus(ops.add(count, count), -(2 * pairs + 1)))
    if pairs == 1:
        return y, y, -after[2]
    z = ops.drop(ops.plus(ops.relinearize(ops.multiply(y, y)), -plan.shift * after[1] ** 2))
    found, drops = _groups(ops, plan, scales, z), 1 + plan.size.bit_length()
    for scale in after[drops:-2]:
        found = _products(ops, found, scale)
    first, second = found
    return first, second, 0


def _products(ops: Arithmetic[V], values: Iterator[V], scale: int) -> Iterator[V]:
    """Of two at a time, a level lower, as soon as both are there: few are in memory at once."""
    for first in values:
        second = next(values, None)
        if second is None:
            yield ops.drop(_lifted(ops, first, scale))
        else:
            yield ops.drop(ops.relinearize(ops.multiply(first, second)))


def _lifted(ops: Arithmetic[V], a: V, factor: int) -> V:
    return a if factor == 1 else ops.times(a, factor)


def _groups(ops: Arithmetic[V], plan: Vanishing, scales: Scales, z: V) -> Iterator[V]:
    """The polynomials of the groups of roots, all at one level."""
    scale = scales.after[2]
    if plan.size == 1:
        for (root,) in plan.groups:
            yield ops.plus(z, -root * scale)
        return
    # Powers of z, and what gives them the factor of the highest.
    powers: list[tuple[V, int]] = [(z, scale)]
    if plan.size == 2:
        powers.append((ops.relinearize(ops.multiply(z, z)), 1))
    else:
        square = ops.drop(ops.relinearize(ops.multiply(z, z)))
        z, scale = ops.drop(_lifted(ops, z, scale * plan.stretch)), scales.after[3]
        cube = ops.relinearize(ops.multiply(square, z))
        fourth = ops.relinearize(ops.multiply(square, square))
        less = pow(plan.stretch, -1, scales.modulus)
        powers = [(z, scale * less), (square, scale), (cube, less), (fourth, 1)]
    for group in plan.groups:
        *others, constant = coefficients(group)[1:]
        total = _lifted(ops, *powers[len(group) - 1])
        lower = reversed(powers[: len(group) - 1])
        for (power, lift), each in zip(lower, others, strict=True):
            # The library refuses to multiply by 0, which hides nothing.
            if each * lift % scales.modulus:
                total = ops.add(total, ops.times(power, each * lift))
        yield ops.drop(ops.plus(total, constant * scale**2))
