"""What is booked: private reads of a data set, what they may cost, and what they cost together."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import evolve, field, frozen

from dp.accounting import Composition, Gaussian, Promise, compose
from dp.adjacency import Adjacency, Membership
from dp.errors import BudgetError, InputError
from dp.mechanisms import check_delta, check_epsilon
from dp.parts import Part, worst_parts

LONGEST_TEXT = 200
LARGEST_COUNT = 100_000
USUAL_DELTA = 1e-5
"""Of noise that has no delta of its own, where nothing else names one."""


@frozen
class Budget:
    """What the events of a data set may cost together.

    Attributes:
        epsilon: above 0.
        delta: in [0, 1).
        adjacency: the unit; events of another unit are refused, since this budget cannot bind them.
    """

    epsilon: float = field(converter=check_epsilon)
    delta: float = field(converter=check_delta)
    adjacency: Adjacency


@frozen
class Event:
    """One private read of the data set.

    Attributes:
        what: e.g. "release of 12 batches"; one line, at most 200 characters.
        adjacency: the unit.
        promise: (epsilon, delta) of the event, or None.
        gaussian: what is known of its Gaussian noise, or None. Where both are given each describes
            the whole event and the accountant takes the better.
        count: times the event happened, 1 to 100,000.
        part: of the data set that it read; None for all of it, or for records that others may have
            read as well.
    """

    what: str
    adjacency: Adjacency
    promise: Promise | None = None
    gaussian: Gaussian | None = None
    count: int = 1
    part: Part | None = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.what, str) or not 0 < len(self.what) <= LONGEST_TEXT:
            raise InputError(f"event: its text must have 1 to {LONGEST_TEXT} characters")
        if not self.what.isprintable():
            raise InputError("event: its text must be one printable line")
        if self.promise is None and self.gaussian is None:
            raise InputError("event: neither a promise nor Gaussian noise; nothing could be added")
        if isinstance(self.count, bool) or not isinstance(self.count, int):
            raise InputError(f"event: found count {self.count!r}, expected a whole number")
        if not 1 <= self.count <= LARGEST_COUNT:
            raise InputError(f"event: found count {self.count}, expected 1 to {LARGEST_COUNT}")
        sampled = self.gaussian is not None and self.gaussian.sample_rate < 1
        if sampled and not isinstance(self.adjacency, Membership):
            raise InputError(
                "event: the gain from sampling is known for a member added or removed, not per"
                f" {self.adjacency.unit}; account it per Membership"
            )


def check_budget(
    path: Path, budget: Budget | None, events: tuple[Event, ...], *planned: Event
) -> None:
    """Refuses events that the books at `path` could not take together.

    Args:
        path: of the ledger, for the message.
        budget: of the ledger; None allows everything.
        events: booked so far.
        planned: the next.

    Raises:
        BudgetError: the events would cost more than the budget.
        InputError: an event's unit is not the budget's.
    """
    if budget is None:
        return
    for event in planned:
        if event.adjacency != budget.adjacency:
            raise InputError(
                f"{path}: the budget is per {budget.adjacency.unit}, the event per"
                f" {event.adjacency.unit}; units do not add up, keep a ledger for each"
            )
    total = total_of([*events, *planned], budget.delta)
    if total.epsilon > budget.epsilon * (1 + 1e-9):
        spent = total_of(events, budget.delta)
        raise BudgetError(
            f"{path}: the event would bring epsilon to {total.epsilon:.4g} at delta"
            f" {budget.delta:g} per {budget.adjacency.unit}, the budget is"
            f" {budget.epsilon:g} ({spent.epsilon:.4g} spent); no noise was drawn"
        )


def total_of(events: Iterable[Event], delta: float) -> Composition:
    """The better of two readings: Gaussian events as Gaussians, or as their promises."""
    events = tuple(worst_parts(events))
    readings = [
        compose(*_split(events, prefer_gaussian=True), delta),
        compose(*_split(events, prefer_gaussian=False), delta),
    ]
    return min(readings, key=lambda each: each.epsilon)


def least_delta_of(events: Iterable[Event]) -> float:
    """A delta at which `total_of` the events has a finite epsilon, three digits, rounded up."""
    events = tuple(worst_parts(events))
    found = []
    for prefer_gaussian in (True, False):
        promises, gaussians = _split(events, prefer_gaussian=prefer_gaussian)
        failure = -math.expm1(sum(math.log1p(-each.delta) for each in promises))
        found.append(failure + (USUAL_DELTA if gaussians else 0.0))
    return _three_digits_up(min(found))


def kind_of(event: Event) -> Event:
    """What an event costs once: without its text and its count."""
    return evolve(event, what="any", count=1)


def counted(kinds: Mapping[Event, int]) -> tuple[Event, ...]:
    """Events that cost what so many of each kind do."""
    found = []
    for kind, count in kinds.items():
        whole, rest = divmod(count, LARGEST_COUNT)
        found += [evolve(kind, count=n) for n in (*[LARGEST_COUNT] * whole, rest) if n]
    return tuple(found)


def _three_digits_up(delta: float) -> float:
    if delta <= 0:
        return 0.0
    exponent = math.floor(math.log10(delta)) - 2
    # A little less first: 2.00 with a rounding error stays 2.00, which the composition allows.
    digits = math.ceil(delta * (1 - 1e-13) / 10.0**exponent)
    return min(float(f"{digits}e{exponent}"), 1 - 1e-9)


def _split(
    events: tuple[Event, ...], *, prefer_gaussian: bool
) -> tuple[list[Promise], list[Gaussian]]:
    promises: list[Promise] = []
    gaussians: list[Gaussian] = []
    for event in events:
        promise, gaussian = event.promise, event.gaussian
        if gaussian is not None and (prefer_gaussian or promise is None):
            gaussians.append(evolve(gaussian, steps=gaussian.steps * event.count))
        elif promise is not None:
            promises += [promise] * event.count
    return promises, gaussians


def finite(epsilon: float) -> float | None:
    """The number, or None where it is infinite: JSON has no infinity."""
    return epsilon if math.isfinite(epsilon) else None
