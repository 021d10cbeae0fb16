"""What a run protects: the clients' statements, checked against their ledgers."""

from pathlib import Path

import attrs

import dp
from dp.parts import worst_parts
from secure_fl.errors import InputError
from secure_fl.files import finish_change
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.statements import STATEMENT_FILES, load_statement


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
    finish_change(folder)
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
