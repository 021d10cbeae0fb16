"""Heads built from a differentially private release alone (kahm.txt, 3.8).

Each batch of a client is released once, smoothed, and its machine built from the release; the head
then holds no private record, and nothing computed from it spends more.
"""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

import dp
from dp.release_plan import make_plan
from fhe.envelope import write_atomic
from secure_fl.errors import InputError
from secure_fl.heads.head import Head, batch_rows, fit_machines
from secure_fl.heads.index import first_index
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.statements import STATEMENT_FILES
from secure_fl.privacy.ledgers import Shelf
from secure_fl.privacy.promises import ReleasePromise
from secure_fl.progress import Progress, quiet

Array = NDArray[Any]


def open_ledger(folder: Path, client: str, budget: dp.Budget | None) -> dp.Ledger:
    """A client's ledger in a folder, made where there is none; see `secure_fl.privacy.ledgers`.

    Raises:
        InputError: a budget is given that differs from the ledger's, or the place cannot be used.
        dp.LedgerError: the ledger was edited.
    """
    return Shelf(folder).open(client, budget)


def check_budgets(
    clients: Sequence[str], n_features: int, plan: ReleasePromise, shelf: Shelf
) -> None:
    """Asks every client's ledger before any is written to or any noise is drawn.

    Raises:
        InputError: a budget is given that differs from a ledger's.
        dp.InputError: the plan makes no sense.
        dp.BudgetError: a client's budget does not allow the release; names its ledger.
    """
    event = make_plan(
        **plan.terms(),
    ).event(n_features, "head")
    for client in clients:
        shelf.check(client, plan.budget, event)


@attrs.frozen
class _Planned:
    """A client's release that is checked and not booked yet."""

    client: str
    X: Array
    prepared: dp.Prepared
    rows: list[NDArray[np.int64]]
    cells: list[int]
    manifest: Manifest
    promise: ReleasePromise
    group: str
    source: str

    @classmethod
    def of(
        cls,
        client: str,
        X: Array,
        y: NDArray[np.integer[Any]],
        manifest: Manifest,
        plan: ReleasePromise,
        source: str = "",
    ) -> "_Planned":
        if len(y) == 0:
            raise InputError(f'client "{client}": 0 records, a head needs at least 1')
        prepared, rows, cells = prepare(client, X, y, manifest, plan)
        group = secrets.token_hex(16)
        return cls(client, X, prepared, rows, cells, manifest, plan, group, source)

    @property
    def event(self) -> dp.Event:
        """What is booked: records that come later make further parts of its group."""
        return attrs.evolve(self.prepared.event, part=dp.Part(self.group, 0))

    def release(self, ledger: dp.Ledger, digest: str) -> tuple[Head, dp.Statement]:
        """Draws the noise, which the ledger holds already, and fits the machines."""
        released = self.prepared.release(ledger, digest)
        bank, flat = fit_machines(released.matrices, self.cells, self.manifest)
        index = first_index(
            self.X,
            self.rows,
            self.cells,
            flat,
            dict(enumerate(released.noisy)),
            source=self.source,
            release={
                "promise": self.promise.to_json(),
                "group": self.group,
                "ledger": os.path.realpath(ledger.path),
            },
        )
        return Head(self.client, bank, index), released.statement


def prepare(
    client: str,
    X: Array,
    y: NDArray[np.integer[Any]],
    manifest: Manifest,
    plan: ReleasePromise,
) -> tuple[dp.Prepared, list[NDArray[np.int64]], list[int]]:
    """A client's batches, checked and not released, with the rows and the class of each.

    Args:
        client, X, y, manifest, plan: as `train_private_head`.

    Raises:
        dp.InputError: the plan makes no sense for these records.
    """
    ordered = attrs.evolve(manifest, batching="order")
    rows, cells = batch_rows(X, y, ordered, np.random.default_rng(0))
    prepared = dp.prepare_batches(
        [X[own] for own in rows],
        **plan.terms(),
        batching=manifest.batching,  # type: ignore[arg-type]  # checked by the manifest
        purpose=f"head of client {client}",
    )
    return prepared, rows, cells


def train_private_head(
    client: str,
    X: Array,
    y: NDArray[np.integer[Any]],
    manifest: Manifest,
    plan: ReleasePromise,
    ledger: dp.Ledger,
    source: str = "",
) -> tuple[Head, dp.Statement]:
    """Releases a client's batches and fits its machines to the releases.

    Args:
        client: its name.
        X: scaled features, shape (n, n_features).
        y: class codes, shape (n,).
        manifest: the federation's facts; batches must be in storage order.
        plan: what is promised.
        ledger: of the client's data set; the release is one event in it.
        source: where the records were read from, for the index.

    Raises:
        InputError: the client holds no record.
        dp.InputError: the plan makes no sense for these records.
        dp.BudgetError: the ledger's budget does not allow it; nothing was drawn.
    """
    planned = _Planned.of(client, X, y, manifest, plan, source)
    return planned.release(ledger, ledger.spend(planned.event))


def train_private_heads(
    clients: Sequence[tuple[str, Array, NDArray[np.integer[Any]]]],
    manifest: Manifest,
    plan: ReleasePromise,
    ledgers: Path | Shelf,
    progress: Progress = quiet,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[Head], list[tuple[str, dp.Statement]]]:
    """Every client's head from its own release, each an event in the client's own ledger.

    The events are booked together, in every ledger or in none, before any noise is drawn.

    Args:
        clients: name, scaled features (n, n_features) and class codes (n,) of each client.
        manifest: the federation's facts.
        plan: what every client promises.
        ledgers: the clients' ledgers, or the folder with them.
        progress: told after every client.
        sources: where each client's records were read from, by name, for the indexes.

    Raises:
        dp.BudgetError: a client's budget does not allow it; no client released anything.
        dp.StorageError: the disk is full; no client released anything.
    """
    shelf = Shelf(ledgers) if isinstance(ledgers, Path) else ledgers
    check_budgets([name for name, _, _ in clients], manifest.n_features, plan, shelf)
    planned = []
    for i, (name, X, y) in enumerate(clients):
        planned.append(_Planned.of(name, X, y, manifest, plan, sources.get(name, "")))
        progress("preparing releases", i + 1, len(clients))
    books = [shelf.open(each.client, plan.budget) for each in planned]
    events = [each.event for each in planned]
    digests = dp.book(list(zip(books, events, strict=True)))
    heads, statements = [], []
    for i, (each, ledger, digest) in enumerate(zip(planned, books, digests, strict=True)):
        head, statement = each.release(ledger, digest)
        heads.append(head)
        statements.append((each.client, statement))
        progress("releasing and training", i + 1, len(clients))
    return heads, statements


def save_statements(run: Path, statements: Sequence[tuple[str, dp.Statement]]) -> None:
    """Writes each client's statement beside its head, as JSON and as text."""
    for client, statement in statements:
        write_statement(run / "clients" / client, statement)


def write_statement(folder: Path, statement: dp.Statement) -> None:
    """Writes a statement into a client's folder, as JSON and as text."""
    content = json.dumps(statement.to_json(), indent=2) + os.linesep
    for name, text in zip(STATEMENT_FILES, (content, statement.text() + "\n"), strict=True):
        write_atomic(folder / name, text.encode())
