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
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import field, frozen

from dp._appending import create, locked, real, replace
from dp.accounting import Composition
from dp.adjacency import Adjacency
from dp.errors import InputError, LedgerError
from dp.events import (
    LONGEST_TEXT,
    USUAL_DELTA,
    Budget,
    Event,
    check_budget,
    counted,
    least_delta_of,
    total_of,
)
from dp.ledger_lines import (
    FORMAT,
    NOTHING,
    VERSION,
    Verified,
    budget_to_json,
    event_to_json,
    known,
    line_bytes,
    lines_of,
    sealed_line,
    verified,
)
from dp.mechanisms import check_delta

LARGEST_FILE = 64 * 2**20
"""Bytes of a ledger that is read."""


@frozen
class Ledger:
    """A ledger on disk; every call reads the file anew.

    Lines that this process has verified before are told by their hash, so that the books of a long
    run cost what is added to them.

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
            "budget": None if budget is None else budget_to_json(budget),
            **known(records=records),
        }
        try:
            create(path, line_bytes(sealed_line(header, "")))
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
        ledger._verified()
        return ledger

    @property
    def each(self) -> tuple["Ledger", ...]:
        """The files that an event is booked in: this one."""
        return (self,)

    @property
    def data_set(self) -> str:
        """Name of the data set."""
        return self._verified().data_set

    @property
    def budget(self) -> Budget | None:
        """The budget, if there is one."""
        return self._verified().budget

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, oldest first."""
        return self._verified().events

    @property
    def units(self) -> tuple[Adjacency, ...]:
        """The units in which the data set was spent, in order of first use."""
        return tuple(dict.fromkeys(event.adjacency for event in self._counted()))

    def holds(self, digest: str) -> bool:
        """Whether the verified books contain the event with that digest."""
        return digest in self._digests()

    def digest_of(self, together: str) -> str | None:
        """Digest of the event that `book` wrote under that name; None where it is not here."""
        found = [line for line in self._lines()[1:] if line.get("together") == together]
        return str(found[-1]["digest"]) if found else None

    @property
    def known_records(self) -> frozenset[str]:
        """Digests of records that its lines say they are of."""
        return frozenset(str(line["records"]) for line in self._lines() if "records" in line)

    def get_epsilon(self, delta: float, adjacency: Adjacency | None = None) -> Composition:
        """What all events of one unit cost together.

        Args:
            delta: in [0, 1).
            adjacency: the unit; may be left out when the ledger has only one.

        Raises:
            InputError: several units and none was named: they cannot be added up.
        """
        check_delta(delta)
        if adjacency is None:
            units = self.units
            if len(units) > 1:
                known = "; ".join(unit.unit for unit in units)
                raise InputError(
                    f"{self.path}: spent in several units ({known}), which do not add up; name one"
                )
            return total_of(self._counted(), delta)
        return total_of(self._counted(adjacency), delta)

    def least_delta(self, adjacency: Adjacency) -> float:
        """The least delta of three digits at which the events of a unit have a finite epsilon.

        Noise without a delta of its own has one at every delta above 0, and none at 0; it is
        allowed `USUAL_DELTA` beyond what promises need.
        """
        return least_delta_of(self._counted(adjacency))

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
        others = {other.path: other._counted(adjacency) for other in self.others}
        events = self._counted(adjacency)
        together = [*events, *(e for own in others.values() for e in own)]
        found = total_of(together, delta)
        if not math.isfinite(found.epsilon):
            found = total_of(together, least_delta_of(together))
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
        own = self._verified()
        check_budget(self.path, own.budget, counted(own.kinds), *planned)

    def _counted(self, adjacency: Adjacency | None = None) -> tuple[Event, ...]:
        """Events that cost what all of a unit do, equal ones as one: what composition asks for."""
        found = counted(self._verified().kinds)
        return tuple(e for e in found if adjacency is None or e.adjacency == adjacency)

    def _digests(self) -> frozenset[str]:
        return frozenset(str(line["digest"]) for line in self._lines()[1:])

    def _lines(self) -> list[dict[str, Any]]:
        content = self._content()
        _read_on(real(self.path), content, self.path)
        return lines_of(content)

    def _verified(self) -> Verified:
        return _read_on(real(self.path), self._content(), self.path)

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
    announced: list[tuple[Path, str]] = []
    with contextlib.ExitStack() as stack:
        # In one order for everybody, so that no two processes wait for each other.
        for path in sorted({real(ledger.path) for ledger, _ in entries}):
            stack.enter_context(locked(path))
        contents: dict[Path, tuple[bytes, bytes]] = {}
        for ledger, event in entries:
            path = real(ledger.path)
            if path not in contents:
                before = ledger._content()
                contents[path] = (before, before)
            before, after = contents[path]
            own = _read_on(path, after, ledger.path)
            check_budget(ledger.path, own.budget, counted(own.kinds), event)
            body = {
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                **event_to_json(event),
                **known(records=ledger.records, together=together),
            }
            line = sealed_line(body, own.last)
            contents[path] = (before, after + line_bytes(line))
            announced.append((path, str(line["digest"])))
        # Before the books change: an interruption between the two is not to hide what they hold.
        for path, digest in announced:
            _announced_here[path].append(digest)
        if contents:
            replace(contents)
    return [digest for _, digest in announced]


_announced_here: defaultdict[Path, list[str]] = defaultdict(list)
_verified_here: dict[Path, Verified] = {}


def _read_on(where: Path, content: bytes, path: Path) -> Verified:
    """Verifies what was added since this process last read the file; `path` is for messages."""
    found = verified(content, path, _verified_here.get(where, NOTHING))
    _verified_here[where] = found
    return found


def announced_here() -> dict[Path, int]:
    """Events that this process began to book, by ledger; `spent_here` tells which are booked."""
    return {path: len(digests) for path, digests in _announced_here.items()}


def spent_here(since: Mapping[Path, int] | None = None) -> str:
    """What this process booked, in one line with what those books cost in all; "" for nothing.

    Asked of the books themselves: an event whose booking was interrupted is in them or is not.

    Args:
        since: an earlier answer of `announced_here`, whose events are left out.

    Raises:
        InputError, LedgerError: a book that may hold such events cannot be read.
    """
    found: dict[Path, int] = {}
    for path in sorted(_announced_here):
        new = _announced_here[path][(since or {}).get(path, 0) :]
        booked = Ledger(path)._digests() if new else ()
        if count := sum(digest in booked for digest in new):
            found[path] = count
    parts = []
    for path in list(found)[:LISTED]:
        ledger = Ledger(path)
        totals = [ledger.running_total(USUAL_DELTA, unit) for unit in ledger.units]
        parts.append(f"{found[path]} new event(s) in {path} (in all {'; '.join(totals)})")
    if len(found) > LISTED:
        parts.append(f"and in {len(found) - LISTED} more ledgers")
    return ", ".join(parts)


LISTED = 2
"""Ledgers that `spent_here` says everything of."""
