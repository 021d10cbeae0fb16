"""The batched rule: the lowest class at the smallest code of all contributors, in every slot.

Instead of comparing contributors with each other it counts, for every value v of a half of their
integers (`layout`), how many contributors are at most at v:

    count(v) = sum over contributors of x(a - 1) + u(a) y(b),       v = (a, b)

with the thermometer x and the indicators u of the upper digit and the thermometer y of the lower
one. P(v), the polynomial of `vanishing` in count(v), is a constant kappa where nobody is, else 0.
So the smallest high half is at v where P(v - 1) - P(v) = kappa, and

    A(a) = sum over b of P(v - 1) - P(v)     is kappa at its upper digit, else 0,
    B(b) = sum over a of P(v - 1) - P(v)     is kappa at its lower digit, else 0.

Contributor i is at the minimum where both its digits are:

    alpha_i = sum over a of A(a) u_i(a),   beta_i = sum over b of B(b) w_i(b)

(w the indicators of the lower digit). The low halves are counted over those contributors alone:

    count2(v) = sum over i of (alpha_i x2_i(a - 1)) beta_i + (alpha_i u2_i(a)) (beta_i y2_i(b)).

alpha and beta bring kappa^2, which contributors take off: they scale x2 by kappa^-2. The answer is
the sum over v of P2(v) (class(v + 1) - class(v)) = kappa class(smallest v): a public constant times
the lowest class, whatever the code and however many tie. All steps are 1 but those to class 0.

Malformed thermometers. With x(R - 1) = 1, a thermometer's bits satisfy x(a - 1) (x(a) - x(a - 1)) =
0 for a = 1..R - 1, and nothing else does: among the differences u no two can differ from 0, by
induction, and they add up to 1. The sum of these products, each times a fresh uniform r, is added
to the answer: 0 for thermometers, and uniform in the slot where one contributor's are none, however
the others are. Such a contributor spoils its own query and learns or chooses nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic

import attrs

from .arithmetic import Arithmetic, Source, V
from .layout import Half, Layout
from .polynomial import Scales, factors
from .vanishing import Vanishing

CHECK_LEVEL = 2
"""Where malformed thermometers are looked for: two primes above the answer's modulus."""


@attrs.frozen
class Rule:
    """What the circuit computes.

    Attributes:
        contributors: Q.
        layout: of their integers.
        modulus: t of the slots, a prime.
        vanishing: the plan of P.
        shrinks: what slots are multiplied by when the prime of level 1, 2, ... is dropped, its
            inverse modulo t; empty where all are 1.
    """

    contributors: int
    layout: Layout
    modulus: int
    vanishing: Vanishing
    shrinks: tuple[int, ...] = ()

    @property
    def levels(self) -> int:
        """Primes that the whole circuit drops: the level of the high half's bits."""
        return 4 + 2 * self.vanishing.depth

    @property
    def winners_level(self) -> int:
        """Level of A and B."""
        return self.levels - 1 - self.vanishing.depth

    @property
    def low_level(self) -> int:
        """Level of alpha and beta, and of the low half's bits."""
        return self.winners_level - 1

    def shrink(self, level: int) -> int:
        """What slots are multiplied by when a value loses the prime of its level."""
        return self.shrinks[level - 1] if self.shrinks else 1

    def scales(self, level: int) -> Scales:
        """What the values of P are multiplied by, of a count at a level."""
        found = [1]
        for each in range(level, level - self.vanishing.depth - 1, -1):
            found.append(found[-1] ** 2 * self.shrink(each) % self.modulus)
        return Scales(self.modulus, tuple(found))

    def _kappa(self, level: int) -> int:
        """P where nobody is, of a count at a level."""
        whole = self.scales(level).after[-1]
        return self.vanishing.at_zero(self.modulus) * whole % self.modulus

    @property
    def kappa(self) -> int:
        """The high half's P where nobody is."""
        return self._kappa(self.levels)

    @property
    def answer_kappa(self) -> int:
        """The low half's P where nobody is: what an answer's class is multiplied by."""
        return self._kappa(self.low_level - 1)

    @property
    def low_scale(self) -> int:
        """What the bits of the low half's upper digit are multiplied by.

        It takes off what alpha and beta bring: kappa, and two drops each.
        """
        shrunk = self.shrink(self.winners_level) * self.shrink(self.low_level)
        return pow(self.kappa * shrunk, -2, self.modulus)

    def level_of(self, bit: int) -> int:
        """Level at which bit number `bit` of the layout is sent."""
        return self.levels if bit < self.layout.high.ciphertexts else self.low_level

    def scale_of(self, bit: int) -> int:
        """What bit number `bit` of the layout is multiplied by."""
        first = self.layout.high.ciphertexts
        scaled = first <= bit < first + self.layout.low.rows - 1
        return self.low_scale if scaled else 1


@attrs.frozen
class Part(Generic[V]):
    """What the counts over some upper digits of the high half say.

    Attributes:
        last: P of the last value of each upper digit.
        columns: sums of P over these upper digits, for each lower digit.
    """

    last: dict[int, V]
    columns: dict[int, V]


@attrs.frozen
class Smallest(Generic[V]):
    """kappa at the digits of the smallest high half, 0 at the others: A and B."""

    rows: list[V]
    columns: list[V]


@attrs.frozen
class Steps(Generic[V]):
    """Sums of P2 that are not relinearised: where the class grows by one, and where it wraps."""

    up: V | None
    wrap: V | None


def bits(half: Half, first: int) -> tuple[range, range]:
    """Numbers in the layout of the bits of a half's upper and lower digit."""
    middle = first + half.rows - 1
    return range(first, middle), range(middle, middle + half.columns - 1)


def _sum(ops: Arithmetic[V], values: Iterable[V | None]) -> V:
    """Of at least one value."""
    total: V | None = None
    for each in values:
        if each is not None:
            total = ops.accumulate(total, each)
    assert total is not None
    return total


def _negative(ops: Arithmetic[V], a: V, constant: int) -> V:
    """constant - a."""
    return ops.plus(ops.times(a, -1), constant)


def count_high(
    ops: Arithmetic[V], rule: Rule, source: Source[V], rows: Sequence[int]
) -> dict[tuple[int, int], V]:
    """count(v) of the high half for upper digits that follow each other; wide."""
    half, level = rule.layout.high, rule.levels
    upper, lower = bits(half, 0)
    counts: dict[tuple[int, int], V] = {}
    for i in range(rule.contributors):
        x = {
            a: source(i, upper[a], level) for a in range(rows[0] - 1, rows[-1] + 1) if _is(a, half)
        }
        y = [source(i, bit, level) for bit in lower]
        for a in rows:
            before = x.get(a - 1)
            own = _indicator(ops, x.get(a), before, 1)
            for b in half.columns_of(a):
                # The lower digit's last thermometer bit is 1: what is left is x(a).
                terms = [before, ops.multiply(own, y[b])] if b < half.columns - 1 else [x[a]]
                for term in terms:
                    if term is not None:
                        counts[a, b] = ops.accumulate(counts.get((a, b)), term)
    return counts


def _is(a: int, half: Half) -> bool:
    return 0 <= a < half.rows - 1


def _indicator(ops: Arithmetic[V], bit: V | None, before: V | None, one: int) -> V:
    """The digit is a: x(a) - x(a - 1), where x(-1) is 0 and the last is `one`."""
    if bit is None:
        assert before is not None
        return _negative(ops, before, one)
    return bit if before is None else ops.subtract(bit, before)


def high_part(
    ops: Arithmetic[V], rule: Rule, counts: dict[tuple[int, int], V]
) -> Iterator[Part[V]]:
    """What the counts say, value by value; takes them off `counts`, whose memory it frees."""
    for a, b in list(counts):
        count = ops.relinearize(counts.pop((a, b)))
        first, second, constant = factors(ops, rule.vanishing, rule.scales(rule.levels), count)
        p = ops.plus(ops.drop(ops.relinearize(ops.multiply(first, second))), constant)
        last = b == rule.layout.high.columns - 1
        yield Part({a: p} if last else {}, {b: p})


def join(ops: Arithmetic[V], parts: Iterable[Part[V]]) -> Part[V]:
    """Several upper digits together."""
    last: dict[int, V] = {}
    columns: dict[int, V] = {}
    for part in parts:
        last.update(part.last)
        for b, each in part.columns.items():
            columns[b] = ops.accumulate(columns.get(b), each)
    return Part(last, columns)


def smallest(ops: Arithmetic[V], rule: Rule, whole: Part[V]) -> Smallest[V]:
    """A and B, of all upper digits together."""
    half, kappa = rule.layout.high, rule.kappa
    last, columns = whole.last, whole.columns

    def difference(before: V | None, after: V | None, constant: int) -> V:
        if before is None and after is not None:
            return _negative(ops, after, constant)
        assert before is not None
        found = before if after is None else ops.subtract(before, after)
        return ops.plus(found, constant) if constant else found

    rows = [difference(last.get(a - 1), last.get(a), 0 if a else kappa) for a in range(half.rows)]
    ends = _sum(ops, last.values())
    found = [
        difference(columns.get(b - 1) if b else ends, columns.get(b), 0 if b else kappa)
        for b in range(half.columns)
    ]
    return Smallest(rows, found)


def winner(
    ops: Arithmetic[V], rule: Rule, marks: Smallest[V], source: Source[V], i: int
) -> tuple[V, V]:
    """alpha and beta of contributor i."""
    found = []
    for numbers, at in zip(bits(rule.layout.high, 0), (marks.rows, marks.columns), strict=True):
        x = [source(i, bit, rule.winners_level) for bit in numbers]
        terms = (
            ops.multiply(mark, _indicator(ops, bit, before, 1))
            for mark, bit, before in zip(at, [*x, None], [None, *x], strict=True)
        )
        found.append(ops.drop(ops.relinearize(_sum(ops, terms))))
    return found[0], found[1]


def count_low(
    ops: Arithmetic[V],
    rule: Rule,
    winners: Iterable[tuple[V, V]],
    source: Source[V],
    rows: Sequence[int],
) -> dict[tuple[int, int], V]:
    """count2(v) for upper digits of the low half that follow each other; wide."""
    half, level = rule.layout.low, rule.low_level
    upper, lower = bits(half, rule.layout.high.ciphertexts)
    ends: dict[int, V] = {}
    within: dict[tuple[int, int], V] = {}

    def product(a: V, b: V) -> V:
        return ops.drop(ops.relinearize(ops.multiply(a, b)))

    for i, (alpha, beta) in enumerate(winners):
        x = {
            a: product(alpha, source(i, upper[a], level))
            for a in range(rows[0] - 1, rows[-1] + 1)
            if _is(a, half)
        }
        if half.rows - 1 in rows:
            x[half.rows - 1] = ops.drop(ops.times(alpha, rule.low_scale))
        y = [product(beta, source(i, bit, level)) for bit in lower]
        beta = ops.drop(beta)
        for a, each in x.items():
            ends[a] = ops.accumulate(ends.get(a), ops.multiply(each, beta))
        for a in rows:
            own = _indicator(ops, x[a], x.get(a - 1), 0)
            for b in half.columns_of(a):
                if b < half.columns - 1:
                    within[a, b] = ops.accumulate(within.get((a, b)), ops.multiply(own, y[b]))
    last = half.columns - 1
    return {
        (a, b): ends[a]
        if b == last
        else ops.add(within.pop((a, b)), ends[a - 1])
        if a - 1 in ends
        else within.pop((a, b))
        for a in rows
        for b in half.columns_of(a)
    }


def low_steps(
    ops: Arithmetic[V], rule: Rule, counts: dict[tuple[int, int], V]
) -> Iterator[Steps[V]]:
    """P2 of the counts, value by value, without its constant; takes them off `counts`."""
    steps = rule.layout.steps()
    for a, b in list(counts):
        count = ops.relinearize(counts.pop((a, b)))
        first, second, _ = factors(ops, rule.vanishing, rule.scales(rule.low_level - 1), count)
        p = ops.multiply(first, second)
        up = steps[a * rule.layout.low.columns + b] == 1
        yield Steps(p if up else None, None if up else p)


def join_steps(ops: Arithmetic[V], parts: Iterable[Steps[V]]) -> Steps[V]:
    """Several values together."""
    up: V | None = None
    wrap: V | None = None
    for part in parts:
        up = up if part.up is None else ops.accumulate(up, part.up)
        wrap = wrap if part.wrap is None else ops.accumulate(wrap, part.wrap)
    return Steps(up, wrap)


def answer(ops: Arithmetic[V], rule: Rule, steps: Steps[V], malformed: V) -> V:
    """A constant times the class, at level 0; uniform where `malformed` is."""
    wrap = 1 - rule.layout.classes
    wrapped = None if steps.wrap is None else ops.times(steps.wrap, wrap)
    found = ops.drop(ops.relinearize(_sum(ops, (steps.up, wrapped))))
    if rule.vanishing.pairs == 1:
        # The constant of P2, times all steps.
        constant = -rule.scales(rule.low_level - 1).after[2]
        found = ops.plus(found, constant * sum(rule.layout.steps()))
    for _ in range(CHECK_LEVEL):
        malformed = ops.drop(malformed)
    return ops.add(found, malformed)


def decide(ops: Arithmetic[V], rule: Rule, source: Source[V]) -> V:
    """The whole rule in one piece, as `evaluator` runs it in several."""
    steps = count_all(ops, rule, source)
    spoilt = (malformed(ops, rule, source, i) for i in range(rule.contributors))
    return answer(ops, rule, steps, ops.relinearize(_sum(ops, spoilt)))


def count_all(ops: Arithmetic[V], rule: Rule, source: Source[V]) -> Steps[V]:
    """All but the answer."""
    high, low = rule.layout.high, rule.layout.low
    counts = count_high(ops, rule, source, range(high.rows))
    marks = smallest(ops, rule, join(ops, high_part(ops, rule, counts)))
    winners = (winner(ops, rule, marks, source, i) for i in range(rule.contributors))
    counts = count_low(ops, rule, winners, source, range(low.rows))
    return join_steps(ops, low_steps(ops, rule, counts))


def malformed(ops: Arithmetic[V], rule: Rule, source: Source[V], i: int) -> V:
    """0 where contributor i sent thermometers, else uniform; wide, at CHECK_LEVEL."""
    total: V | None = None
    for half, first in (
        (rule.layout.high, 0),
        (rule.layout.low, rule.layout.high.ciphertexts),
    ):
        for numbers in bits(half, first):
            one = rule.scale_of(numbers[0])
            x = [source(i, bit, CHECK_LEVEL) for bit in numbers]
            for before, bit in zip(x, [*x[1:], None], strict=True):
                found = ops.multiply(ops.mask(before), _indicator(ops, bit, before, one))
                total = ops.accumulate(total, found)
    assert total is not None
    return total
