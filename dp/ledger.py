"""The books of one data set: every private event that read it, and what they cost together.

The file has one JSON object a line, the first with the data set's name and its budget. Each line
carries the SHA-256 of its own content, which includes that of the line before, so a line that was
changed, moved or taken out is found. Who can rewrite the whole file can also redo the chain, and
can cut off its end: a statement therefore repeats the digest of its event, and `Ledger.holds`
says whether the books still contain it.

An event is written, and the budget checked, under a lock and before any noise is drawn. A run that
dies in between has spent what it announced. `book` writes one event into several books: into all of
them or into none.

Lines may name the records that were read by a digest of them, so that the books of a data set are
found wherever they lie.
"""

import contextlib
import hashlib
import json
import math
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import field, frozen

from dp._appending import create, locked, real, replace
from dp.accounting import Composition, Gaussian, Promise, compose
from dp.adjacency import Adjacency, Membership, adjacency_from_json, adjacency_to_json
from dp.errors import BudgetError, InputError, LedgerError
from dp.mechanisms import check_delta, check_epsilon
from dp.parts import Part, worst_parts

FORMAT = "securefl ledger"
VERSION = 1
LARGEST_FILE = 64 * 2**20
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


@frozen
class Ledger:
    """A ledger on disk; every call reads the file anew.

    Attributes:
        path: the file.
        records: digest of the records whose events are booked, which goes into every new line; ""
            where it is not known.
        others: more books of the same records, which `running_total` adds up with these.
    """

    path: Path
    records: str = field(default="", eq=False)
    others: tuple["Ledger", ...] = field(default=(), eq=False)

    @classmethod
    def create(
        cls, path: Path, data_set: str, budget: Budget | None = None, records: str = ""
    ) -> "Ledger":
        """Starts the books of a data set.

        Args:
            path: must not exist.
            data_set: its name, one printable line.
            budget: cannot be changed later.
            records: digest of its records, or "".

        Raises:
            InputError: the file exists, cannot be made, or the name is no printable line.
            StorageError: the disk is full.
        """
        if not 0 < len(data_set) <= LONGEST_TEXT or not data_set.isprintable():
            raise InputError(f"data set: its name must be one line of 1 to {LONGEST_TEXT} letters")
        header: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "data_set": data_set,
            "budget": None if budget is None else _budget_to_json(budget),
            **_known(records=records),
        }
        try:
            create(path, _line(_sealed(header, "")))
        except FileExistsError:
            raise InputError(f"{path}: exists already; open it, or choose another file") from None
        return cls(path, records)

    @classmethod
    def open(cls, path: Path, records: str = "") -> "Ledger":
        """Opens and verifies an existing ledger.

        Args:
            path: of the file.
            records: digest of the records whose events will be booked, or "".

        Raises:
            InputError: no such file.
            LedgerError: it is no ledger, or was damaged or edited.
        """
        ledger = cls(path, records)
        ledger._read()
        return ledger

    @property
    def each(self) -> tuple["Ledger", ...]:
        """The files that an event is booked in: this one."""
        return (self,)

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

    def digest_of(self, together: str) -> str | None:
        """Digest of the event that `book` wrote under that name; None where it is not here."""
        found = [line for line in self._read()[1:] if line.get("together") == together]
        return str(found[-1]["digest"]) if found else None

    @property
    def known_records(self) -> frozenset[str]:
        """Digests of records that its lines say they are of."""
        return frozenset(str(line["records"]) for line in self._read() if "records" in line)

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

    def least_delta(self, adjacency: Adjacency) -> float:
        """The least delta of three digits at which the events of a unit have a finite epsilon.

        Noise without a delta of its own has one at every delta above 0, and none at 0; it is
        allowed `USUAL_DELTA` beyond what promises need.
        """
        return _least_delta([event for event in self.events if event.adjacency == adjacency])

    def finite_epsilon(self, delta: float, adjacency: Adjacency) -> Composition:
        """What the events of a unit cost, at that delta or, where it is too small, at the least."""
        found = self.get_epsilon(delta, adjacency)
        if math.isfinite(found.epsilon):
            return found
        return self.get_epsilon(self.least_delta(adjacency), adjacency)

    def running_total(self, delta: float, adjacency: Adjacency) -> str:
        """One line: what all known books of the records cost now, in one unit.

        Args:
            delta: at which it is stated, if that is enough for a finite epsilon.
            adjacency: the unit.
        """
        others = {
            other.path: tuple(e for e in other.events if e.adjacency == adjacency)
            for other in self.others
        }
        events = [e for e in self.events if e.adjacency == adjacency]
        together = [*events, *(e for own in others.values() for e in own)]
        found = _total(together, delta)
        if not math.isfinite(found.epsilon):
            found = _total(together, _least_delta(together))
        count = sum(event.count for event in events)
        line = (
            f"{count} event(s) per {adjacency.unit} in {self.path.name}"
            + "".join(f", {sum(e.count for e in own)} in {p}" for p, own in others.items())
            + f", together epsilon {found.epsilon:.4g} at delta {found.delta:.3g} ({found.rule})"
        )
        return line

    def spend(self, event: Event) -> str:
        """Adds an event, if the budget allows it, and returns its digest.

        Raises:
            BudgetError: the events would cost more than the budget; nothing was added.
            InputError: the event's unit is not the budget's, or the file cannot be written.
            LedgerError: the file was damaged or edited.
            StorageError: the disk is full; nothing was added.
        """
        return book([(self, event)])[0]

    def check(self, *planned: Event) -> None:
        """Raises what `spend` would, and adds nothing; another event may still come in between."""
        lines = self._read()
        check_budget(self.path, _budget_from_json(lines[0]["budget"]), _events(lines), *planned)

    def _read(self) -> list[dict[str, Any]]:
        return _verified(self._content(), self.path)

    def _content(self) -> bytes:
        try:
            if self.path.stat().st_size > LARGEST_FILE:
                raise LedgerError(f"{self.path}: larger than 64 MiB, not a ledger of ours")
            return self.path.read_bytes()
        except OSError as error:
            raise InputError(
                f"{self.path}: no ledger can be read here ({error.strerror})"
            ) from None


def book(entries: Sequence[tuple[Ledger, Event]], together: str = "") -> list[str]:
    """Adds one event to each of several ledgers, to all of them or to none.

    All are locked and checked before the first is written, and what is written is on the disk
    before any of them changes. No noise may be drawn before this returns.

    Args:
        entries: ledgers, one may stand there twice, and what each of them gets.
        together: name under which `Ledger.digest_of` finds each event, or "".

    Returns:
        The events' digests, in that order.

    Raises:
        BudgetError: a ledger's events would cost more than its budget; nothing was added to any.
        InputError: an event's unit is not its budget's, or a file cannot be written.
        LedgerError: a file was damaged or edited.
        StorageError: the disk is full; nothing was added to any.
    """
    digests: list[str] = []
    with contextlib.ExitStack() as stack:
        # In one order for everybody, so that no two processes wait for each other.
        for path in sorted({real(ledger.path) for ledger, _ in entries}):
            stack.enter_context(locked(path))
        contents: dict[Path, tuple[bytes, bytes]] = {}
        lines: dict[Path, list[dict[str, Any]]] = {}
        for ledger, event in entries:
            path = real(ledger.path)
            if path not in lines:
                before = ledger._content()
                contents[path] = (before, before)
                lines[path] = _verified(before, ledger.path)
            own = lines[path]
            check_budget(ledger.path, _budget_from_json(own[0]["budget"]), _events(own), event)
            body = {
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                **_event_to_json(event),
                **_known(records=ledger.records, together=together),
            }
            line = _sealed(body, own[-1]["digest"])
            own.append(line)
            before, after = contents[path]
            contents[path] = (before, after + _line(line))
            digests.append(str(line["digest"]))
        if contents:
            replace(contents)
    for path in lines:
        _booked_here[path] += sum(real(ledger.path) == path for ledger, _ in entries)
    return digests


_booked_here: Counter[Path] = Counter()


def booked_here() -> dict[Path, int]:
    """Events that this process booked, by ledger: what is spent, whatever becomes of the work."""
    return dict(_booked_here)


def spent_here(since: Mapping[Path, int] | None = None) -> str:
    """What this process booked, in one line with what those books cost in all; "" for nothing.

    Args:
        since: an earlier answer of `booked_here`, whose events are left out.
    """
    found = dict(Counter(booked_here()) - Counter(since or {}))
    parts = []
    for path in sorted(found)[:LISTED]:
        ledger = Ledger(path)
        totals = [ledger.running_total(USUAL_DELTA, unit) for unit in ledger.units]
        parts.append(f"{found[path]} new event(s) in {path} (in all {'; '.join(totals)})")
    if len(found) > LISTED:
        parts.append(f"and in {len(found) - LISTED} more ledgers")
    return ", ".join(parts)


LISTED = 2
"""Ledgers that `spent_here` says everything of."""


@frozen
class JointLedger(Ledger):
    """The books of several clients as one: what reads all their records is booked in each of them.

    Totals are those of the client that spent most; events are those that every book holds.

    Attributes:
        path: of the first book.
        books: at least one.
    """

    books: tuple[Ledger, ...] = ()

    @classmethod
    def of(cls, books: Sequence[Ledger]) -> "JointLedger":
        """Joins at least one ledger."""
        return cls(books[0].path, books=tuple(books))

    @property
    def each(self) -> tuple[Ledger, ...]:
        """The files that an event is booked in: all books."""
        return self.books

    @property
    def budget(self) -> Budget | None:
        """The smallest of the books' budgets, if one has one."""
        budgets = [each.budget for each in self.books]
        return min((b for b in budgets if b is not None), key=lambda b: b.epsilon, default=None)

    @property
    def events(self) -> tuple[Event, ...]:
        """Events that are in every book, oldest first."""
        first, *rest = (each.events for each in self.books)
        everywhere = [frozenset(own) for own in rest]
        return tuple(event for event in first if all(event in own for own in everywhere))

    @property
    def units(self) -> tuple[Adjacency, ...]:
        """The units in which any of the data sets was spent."""
        return tuple(dict.fromkeys(unit for each in self.books for unit in each.units))

    def holds(self, digest: str) -> bool:
        """Whether one of the books contains the event with that digest."""
        return any(each.holds(digest) for each in self.books)

    def get_epsilon(self, delta: float, adjacency: Adjacency | None = None) -> Composition:
        """The largest that a book's events cost; see `Ledger.get_epsilon`."""
        found = [each.get_epsilon(delta, adjacency) for each in self.books]
        return max(found, key=lambda each: each.epsilon)

    def least_delta(self, adjacency: Adjacency) -> float:
        """One at which every book's events have a finite epsilon."""
        return max(each.least_delta(adjacency) for each in self.books)

    def running_total(self, delta: float, adjacency: Adjacency) -> str:
        """That of the book whose events cost most."""
        worst = max(self.books, key=lambda b: b.finite_epsilon(delta, adjacency).epsilon)
        return worst.running_total(delta, adjacency)

    def spend(self, event: Event) -> str:
        """Adds the event to every book, or to none, and returns the name that they know it by.

        Raises:
            BudgetError, InputError, LedgerError, StorageError: as `book`.
        """
        together = secrets.token_hex(16)
        book([(each, event) for each in self.books], together)
        return together

    def check(self, *planned: Event) -> None:
        """Raises what `spend` would, and adds nothing."""
        for each in self.books:
            each.check(*planned)


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
    events = tuple(worst_parts(events))
    readings = [
        compose(*_split(events, prefer_gaussian=True), delta),
        compose(*_split(events, prefer_gaussian=False), delta),
    ]
    return min(readings, key=lambda each: each.epsilon)


def _least_delta(events: Iterable[Event]) -> float:
    events = tuple(worst_parts(events))
    found = []
    for prefer_gaussian in (True, False):
        promises, gaussians = _split(events, prefer_gaussian=prefer_gaussian)
        failure = -math.expm1(sum(math.log1p(-each.delta) for each in promises))
        found.append(failure + (USUAL_DELTA if gaussians else 0.0))
    return _three_digits_up(min(found))


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
        # Absent where the event read all, so that books without parts keep their digests.
        **({} if event.part is None else {"part": [event.part.group, event.part.number]}),
    }


def _event_from_json(line: dict[str, Any]) -> Event:
    promise, gaussian = line["promise"], line["gaussian"]
    return Event(
        what=line["what"],
        adjacency=adjacency_from_json(line["unit"]),
        promise=None if promise is None else Promise(**promise),
        gaussian=None if gaussian is None else Gaussian(**gaussian),
        count=line["count"],
        part=Part(*line["part"]) if "part" in line else None,
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


def _known(**values: str) -> dict[str, str]:
    # Absent where unknown, so that books without them keep their digests.
    return {key: value for key, value in values.items() if value}


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
