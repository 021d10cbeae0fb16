"""What a run protects: the clients' statements, checked against their ledgers."""

import math
import reprlib
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import attrs

import dp
from dp.parts import worst_parts
from dp.statement import RecordLevel
from secure_fl.errors import InputError
from secure_fl.files import read_json_object
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.released import STATEMENT_FILES

MAX_BYTES = 2**20
"""A statement is small; anything larger is not one."""


@attrs.frozen
class LedgerTotal:
    """What a data set spent in one unit.

    Attributes:
        unit: of the epsilon.
        events: how many releases or sums.
        epsilon: of all of them together; infinite where the books give no bound.
        delta: at which it holds.
        rule: of composition.
        limit: the budget's epsilon in this unit, or None.
    """

    unit: str
    events: int
    epsilon: float
    delta: float
    rule: str
    limit: float | None


@attrs.frozen
class ClientPrivacy:
    """What is known of one client's privacy.

    Attributes:
        client: its name.
        here: whether its folder is in this run.
        statement: of its release; None where its head holds its records, or is not here.
        booked: whether the ledger holds the statement's event; None without a ledger or a digest.
        totals: of its ledger, by unit.
    """

    client: str
    here: bool
    statement: dp.Statement | None
    booked: bool | None
    totals: tuple[LedgerTotal, ...]


def read_privacy(run: Path, manifest: Manifest, ledgers: Path | None) -> tuple[ClientPrivacy, ...]:
    """Reads the statements in a run folder and verifies the ledgers.

    Args:
        run: the run folder.
        manifest: the federation's facts.
        ledgers: folder with `NAME.jsonl` files, or None.

    Raises:
        InputError: a file is not a statement, or its unit is not the federation's.
        dp.LedgerError: a ledger was edited.
    """
    return tuple(_client(run, name, manifest, ledgers) for name in manifest.clients)


def _client(run: Path, name: str, manifest: Manifest, ledgers: Path | None) -> ClientPrivacy:
    folder = run / "clients" / name
    path = folder / STATEMENT_FILES[0]
    statement = load_statement(path) if path.exists() else None
    if statement is None and folder.exists() and manifest.unit != "none":
        raise InputError(
            f"{path}: not found, but the federation promises privacy per {manifest.unit}; get the"
            " statement that training wrote beside the head"
        )
    book = None if ledgers is None else ledgers / f"{name}.jsonl"
    if book is None or not book.exists():
        return ClientPrivacy(name, folder.exists(), statement, None, ())
    ledger = dp.Ledger.open(book)
    digest = None if statement is None else statement.ledger_digest
    booked = None if digest is None else ledger.holds(digest)
    return ClientPrivacy(name, folder.exists(), statement, booked, ledger_totals(ledger))


def ledger_totals(ledger: dp.Ledger) -> tuple[LedgerTotal, ...]:
    """What a verified ledger adds up to, by unit; at its budget's delta where it has one."""
    budget, events = ledger.budget, ledger.events
    found = []
    for unit in ledger.units:
        own = [event for event in events if event.adjacency == unit]
        limit = budget if budget is not None and budget.adjacency == unit else None
        delta = limit.delta if limit is not None else _delta_of(own)
        total = ledger.finite_epsilon(delta, unit)
        found.append(
            LedgerTotal(
                unit.unit,
                sum(event.count for event in own),
                total.epsilon,
                total.delta,
                total.rule,
                None if limit is None else limit.epsilon,
            )
        )
    return tuple(found)


DELTA = 1e-5
"""Where neither a budget nor a promise names a delta: noisy sums have none of their own."""


def _delta_of(events: list[dp.Event]) -> float:
    # The least delta at which basic composition gives a finite epsilon.
    counted = worst_parts(events)
    named = sum(event.count * event.promise.delta for event in counted if event.promise is not None)
    noisy = any(event.gaussian is not None for event in events)
    return min(named + (DELTA if noisy else 0.0), 1 - 1e-9)


# ------------------------------------------------------------------------------------- statements


def load_statement(path: Path) -> dp.Statement:
    """Reads a statement that training wrote; its lines are made anew from its numbers.

    Raises:
        InputError: not JSON, too large, or with members missing, unknown or of another kind.
    """
    content = read_json_object(path, MAX_BYTES, "privacy statement")
    content.pop("promise", None)
    fields = {field.name: field for field in attrs.fields(dp.Statement)}
    if set(content) != set(fields):
        wrong = ", ".join(map(_short, sorted(set(content) ^ set(fields))[:3]))
        raise InputError(f"{path}: members such as {wrong} are missing or unknown; train again")
    if content["guarantee"] is False:
        content["epsilon"] = content["delta"] = math.inf
    kinds = get_type_hints(dp.Statement)
    try:
        found = dp.Statement(**{name: _read_as(kinds[name], content[name]) for name in fields})
        if not (found.epsilon >= 0 and found.delta >= 0):
            raise ValueError(f"epsilon {found.epsilon}, delta {found.delta} is below 0")
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{path}: not a privacy statement ({error}); train again") from error
    return found


def _read_as(kind: Any, value: Any) -> Any:
    """A JSON value as a field of that type has it; TypeError where it is of another kind."""
    if kind in _READERS:
        return _READERS[kind](value)
    if get_origin(kind) is UnionType:
        return None if value is None else _read_as(get_args(kind)[0], value)
    parts = get_args(kind)
    items = _list(value)
    if parts[-1] is Ellipsis:
        return tuple(_read_as(parts[0], item) for item in items)
    return tuple(_read_as(part, item) for part, item in zip(parts, items, strict=True))


def _short(value: object) -> str:
    # A file may hold anything; what is quoted of it stays short.
    return reprlib.repr(value)[:60]


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{_short(value)} is not true or false")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TypeError(f"{_short(value)} is not a number")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{_short(value)} is not a count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError(f"{_short(value)} is not a line of text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{_short(value)} is not a list")
    return value


def _record_level(value: Any) -> RecordLevel:
    kinds = get_type_hints(RecordLevel)
    return RecordLevel(**{name: _read_as(kinds[name], value[name]) for name in kinds})


_READERS: dict[Any, Callable[[Any], Any]] = {
    bool: _flag,
    float: _number,
    int: _count,
    str: _text,
    RecordLevel: _record_level,
}
