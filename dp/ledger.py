"""The books of one data set: every private event that read it, and what they cost together.

The file has one JSON object a line, the first with the data set's name and its budget. Each line
carries the SHA-256 of its own content, which includes that of the line before, so a line that was
changed, moved or taken out is found. Who can rewrite the whole file can also redo the chain, and
can cut off its end: a statement therefore repeats the digest of its event, and `Ledger.holds`
says whether the books still contain it.

An event is written, and the budget checked, under a lock and before any noise is drawn. A run that
dies in between has spent what it announced.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import field, frozen

from dp._appending import locked, replace
from dp.accounting import Composition, Gaussian, Promise, compose
from dp.adjacency import Adjacency, Membership, adjacency_from_json, adjacency_to_json
from dp.errors import BudgetError, InputError, LedgerError
from dp.mechanisms import check_delta, check_epsilon

FORMAT = "securefl ledger"
VERSION = 1
LARGEST_FILE = 64 * 2**20
LONGEST_TEXT = 200
LARGEST_COUNT = 100_000


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
    """

    what: str
    adjacency: Adjacency
    promise: Promise | None = None
    gaussian: Gaussian | None = None
    count: int = 1

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


@frozen
class Ledger:
    """A ledger on disk; every call reads the file anew.

    Attributes:
        path: the file.
    """

    path: Path

    @classmethod
    def create(cls, path: Path, data_set: str, budget: Budget | None = None) -> "Ledger":
        """Starts the books of a data set.

        Args:
            path: must not exist.
            data_set: its name, one printable line.
            budget: cannot be changed later.

        Raises:
            InputError: the file exists or the name is no printable line.
        """
        if not 0 < len(data_set) <= LONGEST_TEXT or not data_set.isprintable():
            raise InputError(f"data set: its name must be one line of 1 to {LONGEST_TEXT} letters")
        header: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "data_set": data_set,
            "budget": None if budget is None else _budget_to_json(budget),
        }
        with locked(path):
            if path.exists():
                raise InputError(f"{path}: exists already; open it, or choose another file")
            replace(path, _line(_sealed(header, "")))
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "Ledger":
        """Opens and verifies an existing ledger.

        Raises:
            InputError: no such file.
            LedgerError: it is no ledger, or was damaged or edited.
        """
        ledger = cls(path)
        ledger._read()
        return ledger

    @property
    def data_set(self) -> str:
        """Name of the data set."""
        return str(self._read()[0]["data_set"])

    @property
    def budget(self) -> Budget | None:
        """The budget, if there is one."""
        return _budget_from_json(self._read()[0]["budget"])

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, oldest first."""
        return _events(self._read())

    @property
    def units(self) -> tuple[Adjacency, ...]:
        """The units in which the data set was spent, in order of first use."""
        return tuple(dict.fromkeys(event.adjacency for event in self.events))

    def holds(self, digest: str) -> bool:
        """Whether the verified books contain the event with that digest."""
        return any(line["digest"] == digest for line in self._read()[1:])

    def get_epsilon(self, delta: float, adjacency: Adjacency | None = None) -> Composition:
        """What all events of one unit cost together.

        Args:
            delta: in [0, 1).
            adjacency: the unit; may be left out when the ledger has only one.

        Raises:
            InputError: several units and none was named: they cannot be added up.
        """
        check_delta(delta)
        events = self.events
        units = tuple(dict.fromkeys(event.adjacency for event in events))
        if adjacency is None:
            if len(units) > 1:
                known = "; ".join(unit.unit for unit in units)
                raise InputError(
                    f"{self.path}: spent in several units ({known}), which do not add up; name one"
                )
            return _total(events, delta)
        return _total([event for event in events if event.adjacency == adjacency], delta)

    def spend(self, event: Event) -> str:
        """Adds an event, if the budget allows it, and returns its digest.

        Raises:
            BudgetError: the events would cost more than the budget; nothing was added.
            InputError: the event's unit is not the budget's.
            LedgerError: the file was damaged or edited.
        """
        with locked(self.path):
            lines = self._read()
            check_budget(self.path, _budget_from_json(lines[0]["budget"]), _events(lines), event)
            body = {
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                **_event_to_json(event),
            }
            line = _sealed(body, lines[-1]["digest"])
            replace(self.path, b"".join(_line(each) for each in [*lines, line]))
            return str(line["digest"])

    def check(self, event: Event) -> None:
        """Raises what `spend` would, and adds nothing; another event may still come in between."""
        lines = self._read()
        check_budget(self.path, _budget_from_json(lines[0]["budget"]), _events(lines), event)

    def _read(self) -> list[dict[str, Any]]:
        try:
            if self.path.stat().st_size > LARGEST_FILE:
                raise LedgerError(f"{self.path}: larger than 64 MiB, not a ledger of ours")
            content = self.path.read_bytes()
        except OSError as error:
            raise InputError(
                f"{self.path}: no ledger can be read here ({error.strerror})"
            ) from None
        return _verified(content, self.path)


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
    total = _total([*events, *planned], budget.delta)
    if total.epsilon > budget.epsilon * (1 + 1e-9):
        spent = _total(events, budget.delta)
        raise BudgetError(
            f"{path}: the event would bring epsilon to {total.epsilon:.4g} at delta"
            f" {budget.delta:g} per {budget.adjacency.unit}, the budget is"
            f" {budget.epsilon:g} ({spent.epsilon:.4g} spent); no noise was drawn"
        )


def _verified(content: bytes, path: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    previous = ""
    if not content.endswith(b"\n"):
        raise LedgerError(f"{path}: ends inside a line; restore the file from a copy")
    for number, raw in enumerate(content[:-1].split(b"\n"), start=1):
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict) or _line(line) != raw + b"\n":
            raise LedgerError(f"{path}: line {number} is not as it was written; restore a copy")
        if line.get("previous") != previous or line.get("digest") != _digest(line):
            raise LedgerError(
                f"{path}: line {number} was edited, moved or follows a missing line (its digest"
                " does not fit); restore the file from a copy"
            )
        previous = line["digest"]
        lines.append(line)
    if lines[0].get("format") != FORMAT or lines[0].get("version") != VERSION:
        raise LedgerError(
            f"{path}: format {lines[0].get('format')!r} version {lines[0].get('version')!r},"
            f" expected {FORMAT!r} version {VERSION}"
        )
    try:
        if type(lines[0]["data_set"]) is not str:
            raise TypeError("a data set without a name")
        _budget_from_json(lines[0]["budget"])
        _events(lines)
    except (InputError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise LedgerError(f"{path}: holds an event that cannot be ({error})") from error
    return lines


def _events(lines: list[dict[str, Any]]) -> tuple[Event, ...]:
    return tuple(_event_from_json(line) for line in lines[1:])


def _total(events: Iterable[Event], delta: float) -> Composition:
    """The better of two readings: Gaussian events as Gaussians, or as their promises."""
    events = tuple(events)
    readings = [
        compose(*_split(events, prefer_gaussian=True), delta),
        compose(*_split(events, prefer_gaussian=False), delta),
    ]
    return min(readings, key=lambda each: each.epsilon)


def _split(
    events: tuple[Event, ...], *, prefer_gaussian: bool
) -> tuple[list[Promise], list[Gaussian]]:
    promises: list[Promise] = []
    gaussians: list[Gaussian] = []
    for event in events:
        promise, gaussian = event.promise, event.gaussian
        if gaussian is not None and (prefer_gaussian or promise is None):
            gaussians += [gaussian] * event.count
        elif promise is not None:
            promises += [promise] * event.count
    return promises, gaussians


def _event_to_json(event: Event) -> dict[str, Any]:
    promise, gaussian = event.promise, event.gaussian
    return {
        "what": event.what,
        "unit": adjacency_to_json(event.adjacency),
        "promise": None
        if promise is None
        else {"epsilon": promise.epsilon, "delta": promise.delta},
        "gaussian": None
        if gaussian is None
        else {
            "noise_multiplier": gaussian.noise_multiplier,
            "sample_rate": gaussian.sample_rate,
            "steps": gaussian.steps,
            "discrete": gaussian.discrete,
            # Absent where false, so that books without it keep their digests.
            **({"whole_orders": True} if gaussian.whole_orders else {}),
        },
        "count": event.count,
    }


def _event_from_json(line: dict[str, Any]) -> Event:
    promise, gaussian = line["promise"], line["gaussian"]
    return Event(
        what=line["what"],
        adjacency=adjacency_from_json(line["unit"]),
        promise=None if promise is None else Promise(**promise),
        gaussian=None if gaussian is None else Gaussian(**gaussian),
        count=line["count"],
    )


def _budget_to_json(budget: Budget) -> dict[str, Any]:
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "unit": adjacency_to_json(budget.adjacency),
    }


def _budget_from_json(value: dict[str, Any] | None) -> Budget | None:
    if value is None:
        return None
    return Budget(value["epsilon"], value["delta"], adjacency_from_json(value["unit"]))


def _digest(line: dict[str, Any]) -> str:
    body = {key: value for key, value in line.items() if key != "digest"}
    return hashlib.sha256(_line(body)).hexdigest()


def _sealed(body: dict[str, Any], previous: str) -> dict[str, Any]:
    line = {**body, "previous": previous}
    return {**line, "digest": _digest(line)}


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=True).encode() + b"\n"


def finite(epsilon: float) -> float | None:
    """The number, or None where it is infinite: JSON has no infinity."""
    return epsilon if math.isfinite(epsilon) else None
