"""An estimate of what a batched rule costs, by which its layout is chosen.

Milliseconds of one core at degree 32,768 by the number of primes of a modulus, fitted to the
library's operations on the machine of docs/fhe.md: only their proportions matter for the choice.
"""

import math
from collections.abc import Iterator

import attrs

from .chain import MODULUS
from .circuit import CHECK_LEVEL, Rule
from .layout import Half, Layout
from .polynomial import factors
from .vanishing import vanishing

BASE = 2
"""Primes at level 0."""
BASE_BITS, LEVEL_BITS = 88, 40
"""Of the modulus, about."""


@attrs.frozen
class Cost:
    """A value's level; the milliseconds add up in `Costs`."""

    level: int


class Costs:
    """Arithmetic that adds up its own time in `spent`."""

    def __init__(self) -> None:
        self.spent = 0.0

    def _done(self, level: int, linear: float, quadratic: float = 0.0) -> Cost:
        primes = BASE + level
        self.spent += linear * primes + quadratic * primes**2
        return Cost(level)

    def add(self, a: Cost, b: Cost) -> Cost:
        """a + b."""
        return self._done(a.level, 0.10)

    subtract = add

    def plus(self, a: Cost, constant: int) -> Cost:
        """a + constant."""
        return self._done(a.level, 0.10)

    def times(self, a: Cost, constant: int) -> Cost:
        """a * constant."""
        return self._done(a.level, 0.28)

    def multiply(self, a: Cost, b: Cost) -> Cost:
        """a * b."""
        return self._done(a.level, 0.60)

    def relinearize(self, a: Cost) -> Cost:
        """The same, not wide."""
        return self._done(a.level, 2.2, 0.48)

    def drop(self, a: Cost) -> Cost:
        """The same, one level lower."""
        self._done(a.level, 1.6)
        return Cost(a.level - 1)

    def mask(self, a: Cost) -> Cost:
        """Times random slots."""
        return self._done(a.level, 0.70)

    def accumulate(self, total: Cost | None, a: Cost) -> Cost:
        """total + a."""
        return self._done(a.level, 0.10)


def _of_vanishing(rule: Rule, level: int) -> float:
    """P of one count, without its last product's relinearisation."""
    costs = Costs()
    first, second, _ = factors(
        costs, rule.vanishing, rule.scales(level), costs.relinearize(Cost(level))
    )
    costs.multiply(first, second)
    return costs.spent


def _at(level: int, linear: float, quadratic: float = 0.0) -> float:
    primes = BASE + level
    return linear * primes + quadratic * primes**2


def milliseconds(rule: Rule, degree: int) -> float:
    """Of one core, for a full set of queries."""
    high, low = rule.layout.high, rule.layout.low
    product, settled = 0.70, (4.5, 0.48)
    count = rule.contributors * (high.counted + high.rows) * _at(rule.levels, product)
    p = _of_vanishing(rule, rule.levels) + _at(rule.winners_level + 1, *settled)
    marks = (high.rows + high.columns) * _at(rule.winners_level, product)
    winners = rule.contributors * (marks + 2 * _at(rule.winners_level, *settled))
    digits = low.rows + low.columns
    within = digits * _at(rule.low_level, *settled)
    within += (low.counted + low.rows) * _at(rule.low_level - 1, product)
    p2 = _of_vanishing(rule, rule.low_level - 1)
    checks = rule.contributors * rule.layout.ciphertexts * _at(CHECK_LEVEL, 1.6)
    total = count + high.counted * p + winners + rule.contributors * within
    return (total + low.counted * p2 + checks) * degree / 32768


def contribution_bytes(rule: Rule) -> float:
    """About what a contributor sends for a query of a full batch."""
    high = rule.layout.high.ciphertexts * (BASE_BITS + LEVEL_BITS * rule.levels)
    low = rule.layout.low.ciphertexts * (BASE_BITS + LEVEL_BITS * rule.low_level)
    return 2 * (high + low) / 8


BYTE_PRICE = 0.25
"""What a kilobyte a query and client weighs in the choice, in parts of a layout's own time."""


def price(rule: Rule) -> float:
    """What the choice of a layout minimises: time, dearer by a quarter for every kilobyte sent."""
    return milliseconds(rule, 32768) * (1 + BYTE_PRICE * contribution_bytes(rule) / 1000)


def layouts(classes: int, bits: int) -> Iterator[tuple[Layout, int, int, int]]:
    """Layouts worth a look, with step and columns of both halves."""
    codes = 2**bits
    cuts = {-(-codes // high) for high in range(3, codes + 1)}
    for step in sorted(cuts):
        high, low = -(-codes // step), step * classes
        if low < 3 or high < 3 or max(high, low) > 64 * min(high, low):
            continue
        for a, b in ((h, w) for h in _columns(high) for w in _columns(low)):
            halves = (Half(high, -(-high // a), a), Half(low, -(-low // b), b))
            yield Layout(classes, step, *halves), step, a, b


def _columns(values: int) -> set[int]:
    """Radices of a lower digit near the square root, with as few thermometer bits as any."""
    middle = math.isqrt(values)
    near = range(max(2, middle - 2), middle + 4)
    fits = [c for c in near if -(-values // c) >= 2]
    fewest = min((c + -(-values // c) for c in fits), default=0)
    return {c for c in fits if c + -(-values // c) == fewest}


def cheapest(contributors: int, classes: int, bits: int) -> tuple[int, int, int] | None:
    """Step and columns of both halves of the cheapest layout; None where there is none."""
    plan = vanishing(contributors)
    found = min(
        layouts(classes, bits),
        key=lambda each: price(Rule(contributors, each[0], MODULUS, plan)),
        default=None,
    )
    return found[1:] if found else None
