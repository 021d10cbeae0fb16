"""Lines of a ledger's file: events as JSON, chained by digests that include the line before."""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from dp.accounting import Gaussian, Promise
from dp.adjacency import adjacency_from_json, adjacency_to_json
from dp.errors import InputError, LedgerError
from dp.events import Budget, Event, kind_of
from dp.parts import Part

FORMAT = "securefl ledger"
VERSION = 1


@frozen
class Verified:
    """What booking needs of a ledger's content, verified line by line.

    Attributes:
        length: bytes of the content.
        sha256: of the content.
        lines: in the content.
        data_set: name of the data set.
        budget: of the ledger, if it has one.
        events: oldest first.
        kinds: what each costs, and how often, in order of first use.
        last: digest of the last line.
    """

    length: int
    sha256: bytes
    lines: int
    data_set: str
    budget: Budget | None
    events: tuple[Event, ...]
    kinds: Mapping[Event, int]
    last: str


NOTHING = Verified(0, hashlib.sha256().digest(), 0, "", None, (), {}, "")
"""Of no content: what the first line follows."""


def verified(content: bytes, path: Path, earlier: Verified = NOTHING) -> Verified:
    """Verifies a ledger: all of it, or what was added to content that was verified earlier.

    Args:
        content: of the file.
        path: of the file, for messages.
        earlier: of a former content of the same file; where the new one does not begin with that,
            all lines are read anew.

    Raises:
        LedgerError: a line that was edited, moved or left out, or of another format.
    """
    hashed = hashlib.sha256(memoryview(content)[: earlier.length])
    if hashed.digest() != earlier.sha256:
        return verified(content, path)
    added = content[earlier.length :]
    if earlier.lines and not added:
        return earlier
    lines = _chained(added, path, earlier.last, first=earlier.lines + 1)
    begun = earlier if earlier.lines else _begun(lines[0], path)
    with _only_possible(path):
        events = tuple(map(event_from_json, lines[begun.lines - earlier.lines :]))
    hashed.update(added)
    return evolve(
        begun,
        length=len(content),
        sha256=hashed.digest(),
        lines=earlier.lines + len(lines),
        events=(*begun.events, *events),
        kinds=_added(begun.kinds, events),
        last=lines[-1]["digest"],
    )


def _begun(line: dict[str, Any], path: Path) -> Verified:
    """A ledger of its first line alone."""
    if line.get("format") != FORMAT or line.get("version") != VERSION:
        raise LedgerError(
            f"{path}: format {line.get('format')!r} version {line.get('version')!r},"
            f" expected {FORMAT!r} version {VERSION}"
        )
    with _only_possible(path):
        if type(line["data_set"]) is not str:
            raise TypeError("a data set without a name")
        budget = budget_from_json(line["budget"])
    return evolve(NOTHING, lines=1, data_set=line["data_set"], budget=budget)


def lines_of(content: bytes) -> list[dict[str, Any]]:
    """The lines of a ledger that is verified, the first about the data set."""
    return [json.loads(raw) for raw in content.splitlines()]


def _added(kinds: Mapping[Event, int], events: Iterable[Event]) -> Mapping[Event, int]:
    found = dict(kinds)
    for event in events:
        kind = kind_of(event)
        found[kind] = found.get(kind, 0) + event.count
    return found


def _chained(content: bytes, path: Path, previous: str, first: int) -> list[dict[str, Any]]:
    """Lines as written, each naming the one before; `first` is the number of the first of them."""
    lines: list[dict[str, Any]] = []
    if not content.endswith(b"\n"):
        raise LedgerError(f"{path}: ends inside a line; restore the file from a copy")
    for number, raw in enumerate(content[:-1].split(b"\n"), start=first):
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict) or line_bytes(line) != raw + b"\n":
            raise LedgerError(f"{path}: line {number} is not as it was written; restore a copy")
        if line.get("previous") != previous or line.get("digest") != digest_of(line):
            raise LedgerError(
                f"{path}: line {number} was edited, moved or follows a missing line (its digest"
                " does not fit); restore the file from a copy"
            )
        previous = line["digest"]
        lines.append(line)
    return lines


@contextlib.contextmanager
def _only_possible(path: Path) -> Iterator[None]:
    try:
        yield
    except (InputError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise LedgerError(f"{path}: holds an event that cannot be ({error})") from error


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as JSON types."""
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


def event_from_json(line: dict[str, Any]) -> Event:
    """The event of a line.

    Raises:
        InputError, KeyError, TypeError, ValueError: it holds no event.
    """
    promise, gaussian = line["promise"], line["gaussian"]
    return Event(
        what=line["what"],
        adjacency=adjacency_from_json(line["unit"]),
        promise=None if promise is None else Promise(**promise),
        gaussian=None if gaussian is None else Gaussian(**gaussian),
        count=line["count"],
        part=Part(*line["part"]) if "part" in line else None,
    )


def budget_to_json(budget: Budget) -> dict[str, Any]:
    """A budget as JSON types."""
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "unit": adjacency_to_json(budget.adjacency),
    }


def budget_from_json(value: dict[str, Any] | None) -> Budget | None:
    """The budget of a first line; None for none."""
    if value is None:
        return None
    return Budget(value["epsilon"], value["delta"], adjacency_from_json(value["unit"]))


def known(**values: str) -> dict[str, str]:
    """The texts that are there."""
    # Absent where unknown, so that books without them keep their digests.
    return {key: value for key, value in values.items() if value}


def digest_of(line: dict[str, Any]) -> str:
    """SHA-256 of a line without its digest."""
    body = {key: value for key, value in line.items() if key != "digest"}
    return hashlib.sha256(line_bytes(body)).hexdigest()


def sealed_line(body: dict[str, Any], previous: str) -> dict[str, Any]:
    """A line that carries the digest of the one before and its own."""
    line = {**body, "previous": previous}
    return {**line, "digest": digest_of(line)}


def line_bytes(value: dict[str, Any]) -> bytes:
    """A line as it stands in the file."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=True).encode() + b"\n"
