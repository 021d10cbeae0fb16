"""Heads built from a differentially private release alone (kahm.txt, 3.8).

Each batch of a client is released once, smoothed, and its machine built from the release; the head
then holds no private record, and nothing computed from it spends more.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

import dp
from dp.release import make_plan
from fhe.envelope import write_atomic
from kahm import Bank, split
from secure_fl.errors import InputError
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest
from secure_fl.privacy.ledgers import Shelf
from secure_fl.privacy.promises import ReleasePromise
from secure_fl.progress import Progress, quiet

Array = NDArray[Any]
STATEMENT_FILES = ("statement.json", "statement.txt")


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
    prepared: dp.Prepared
    cells: list[int]
    classes: int
    regularisation: str
    factor: float

    @classmethod
    def of(
        cls,
        client: str,
        X: Array,
        y: NDArray[np.integer[Any]],
        manifest: Manifest,
        plan: ReleasePromise,
    ) -> "_Planned":
        if len(y) == 0:
            raise InputError(f'client "{client}": 0 records, a head needs at least 1')
        batches: list[Array] = []
        cells: list[int] = []
        for c in np.unique(y).tolist():
            own = split(X[y == c], manifest.batch_size, "order", np.random.default_rng(0))
            batches += own
            cells += [c] * len(own)
        prepared = dp.prepare_batches(
            batches,
            epsilon=plan.epsilon,
            delta=plan.delta,
            adjacency=plan.adjacency,
            bounds=plan.bounds,
            grid=plan.grid,
            batching=manifest.batching,  # type: ignore[arg-type]  # checked by the manifest
            mechanism=plan.mechanism,
            smoothing=plan.smoothing,
            purpose=f"head of client {client}",
        )
        return cls(
            client,
            prepared,
            cells,
            len(manifest.classes),
            manifest.regularisation,
            manifest.regularisation_factor,
        )

    def release(self, ledger: dp.Ledger, digest: str) -> tuple[Head, dp.Statement]:
        """Draws the noise, which the ledger holds already, and fits the machines."""
        released = self.prepared.release(ledger, digest)
        bank = Bank.fit(
            list(released.matrices),
            self.cells,
            self.classes,
            regularisation=self.regularisation,  # type: ignore[arg-type]  # checked by the manifest
            factor=self.factor,
        )
        return Head(self.client, bank), released.statement


def train_private_head(
    client: str,
    X: Array,
    y: NDArray[np.integer[Any]],
    manifest: Manifest,
    plan: ReleasePromise,
    ledger: dp.Ledger,
) -> tuple[Head, dp.Statement]:
    """Releases a client's batches and fits its machines to the releases.

    Args:
        client: its name.
        X: scaled features, shape (n, n_features).
        y: class codes, shape (n,).
        manifest: the federation's facts; batches must be in storage order.
        plan: what is promised.
        ledger: of the client's data set; the release is one event in it.

    Raises:
        InputError: the client holds no record.
        dp.InputError: the plan makes no sense for these records.
        dp.BudgetError: the ledger's budget does not allow it; nothing was drawn.
    """
    planned = _Planned.of(client, X, y, manifest, plan)
    return planned.release(ledger, ledger.spend(planned.prepared.event))


def train_private_heads(
    clients: Sequence[tuple[str, Array, NDArray[np.integer[Any]]]],
    manifest: Manifest,
    plan: ReleasePromise,
    ledgers: Path | Shelf,
    progress: Progress = quiet,
) -> tuple[list[Head], list[tuple[str, dp.Statement]]]:
    """Every client's head from its own release, each an event in the client's own ledger.

    The events are booked together, in every ledger or in none, before any noise is drawn.

    Args:
        clients: name, scaled features (n, n_features) and class codes (n,) of each client.
        manifest: the federation's facts.
        plan: what every client promises.
        ledgers: the clients' ledgers, or the folder with them.
        progress: told after every client.

    Raises:
        dp.BudgetError: a client's budget does not allow it; no client released anything.
        dp.StorageError: the disk is full; no client released anything.
    """
    shelf = Shelf(ledgers) if isinstance(ledgers, Path) else ledgers
    check_budgets([name for name, _, _ in clients], manifest.n_features, plan, shelf)
    planned = []
    for i, (name, X, y) in enumerate(clients):
        planned.append(_Planned.of(name, X, y, manifest, plan))
        progress("preparing releases", i + 1, len(clients))
    books = [shelf.open(each.client, plan.budget) for each in planned]
    events = [each.prepared.event for each in planned]
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
        folder = run / "clients" / client
        content = json.dumps(statement.to_json(), indent=2) + os.linesep
        for name, text in zip(STATEMENT_FILES, (content, statement.text() + "\n"), strict=True):
            write_atomic(folder / name, text.encode())
