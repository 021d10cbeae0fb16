"""Where the books of a data set lie: one book a client's records, whatever method reads them.

The default place is a folder beside that of the client files: `clients.ledgers/` for `clients/` and
for `clients/north.npz` alike, with one file a client. A method that reads all clients' records at
once books its event in the book of every client.

A book is found by the digest of the records that its lines name, and by the client's name. The
digest is of the features alone, in no order and in single precision, so that another format, order
or labelling of the same records has the same. Books of earlier versions, which name no records, are
found by the places that were the default then.
"""

import hashlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import scipy.sparse

import dp
from secure_fl.data import Dataset
from secure_fl.errors import InputError
from secure_fl.files import make_folder, placed, prove_writable

SUFFIX, OLD_SUFFIX = ".ledgers", ".ledger"
ROOM = 4096
"""Bytes that a line of a ledger has at most, by far."""


def records_digest(X: Any) -> str:
    """Names records by their features; the same for any order, format and labels.

    Args:
        X: shape (n, d), dense or sparse, finite.
    """
    with np.errstate(over="ignore"):
        rows = scipy.sparse.csr_array(X).astype(np.float32)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    indices = rows.indices.astype(np.int64)
    starts = rows.indptr.tolist()
    found = sorted(
        hashlib.sha256(indices[a:b].tobytes() + rows.data[a:b].tobytes()).digest()
        for a, b in itertools.pairwise(starts)
    )
    return hashlib.sha256(b"".join(found)).hexdigest()


def default_folder(source: Path) -> Path:
    """Where the ledgers of client files lie by default.

    Args:
        source: the folder of the client files, or one of them.
    """
    base = _folder_of(source)
    return base.with_name(base.name + SUFFIX)


def _folder_of(source: Path) -> Path:
    # Links followed: two names of one folder have one place for ledgers.
    real = source.resolve()
    return real if real.is_dir() else real.parent


def known_places(source: Path) -> list[Path]:
    """Ledgers at every place that is or was a default one for client files, sorted."""
    base = _folder_of(source)
    with placed(base):
        found = [
            *default_folder(source).glob("*.jsonl"),
            *base.glob(f"*{SUFFIX}/*.jsonl"),
            *(path for path in base.glob(f"*{OLD_SUFFIX}") if path.is_file()),
        ]
        old = base.with_name(base.name + OLD_SUFFIX)
        return sorted({*found, old} if old.is_file() else set(found))


@attrs.frozen
class Shelf:
    """The ledgers of some clients.

    Attributes:
        folder: where new ones are made.
        records: digests of the clients' records, by name; empty where they are not known.
        seen: ledgers that may be of these clients, with the digests that their lines name.
        explicit: whether the owner named the folder, so that no other book is written to.
    """

    folder: Path
    records: Mapping[str, str] = attrs.field(factory=dict)
    seen: Mapping[Path, frozenset[str]] = attrs.field(factory=dict)
    explicit: bool = True

    @classmethod
    def beside(
        cls, source: Path, clients: Iterable[Dataset], folder: Path | None = None
    ) -> "Shelf":
        """The ledgers of the clients in a folder of files, or of one file.

        Args:
            source: the folder or file.
            clients: as read from it.
            folder: of their ledgers, where the owner named one; None takes the default.

        Raises:
            dp.LedgerError: a ledger at a default place, or in the folder, was edited.
        """
        where = default_folder(source) if folder is None else folder
        with placed(where):
            paths = {*known_places(source), *where.glob("*.jsonl")}
        return cls(
            where,
            {each.name: records_digest(each.X) for each in clients},
            {path: dp.Ledger.open(path).known_records for path in sorted(paths)},
            folder is not None,
        )

    def path(self, client: str) -> Path:
        """Of the client's ledger, whether it exists or not."""
        digest = self.records.get(client)
        named = self.folder / f"{client}.jsonl"
        here = [
            path
            for path, known in self.seen.items()
            if digest in known and path.parent == self.folder
        ]
        if here:
            return named if named in here else here[0]
        with placed(named):
            exists = named.exists()
        elsewhere = [path for path in self._of(client) if path.suffix != OLD_SUFFIX]
        if exists or self.explicit or len(elsewhere) != 1:
            return named
        return elsewhere[0]

    def others(self, client: str) -> tuple[dp.Ledger, ...]:
        """More books of the client's records than the one that is written to."""
        own = os.path.realpath(self.path(client))
        return tuple(dp.Ledger(path) for path in self._of(client) if os.path.realpath(path) != own)

    def _of(self, client: str) -> list[Path]:
        """Ledgers of the client's records: by their digest, or without one by name or place."""
        digest = self.records.get(client)
        return [
            path
            for path, known in self.seen.items()
            if digest in known or (not known and (path.stem == client or path.suffix == OLD_SUFFIX))
        ]

    def open(self, client: str, budget: dp.Budget | None = None) -> dp.Ledger:
        """A client's ledger, made where there is none.

        It belongs to the data, not to a run: every release of the data set must be in it.

        Raises:
            InputError: a budget is given that differs from the ledger's, or the place cannot be
                used.
            dp.LedgerError: the ledger was edited.
        """
        ledger = open_books(self.path(client), client, budget, self.records.get(client, ""))
        return attrs.evolve(ledger, others=self.others(client))

    def check(self, client: str, budget: dp.Budget | None, *planned: dp.Event) -> None:
        """Raises what booking the events would, and makes nothing.

        Raises:
            InputError: a budget is given that differs from the ledger's.
            dp.BudgetError: the client's budget does not allow them; names its ledger.
        """
        path = self.path(client)
        with placed(path):
            exists = path.exists()
        if exists:
            open_books(path, client, budget).check(*planned)
        else:
            dp.check_budget(path, budget, (), *planned)

    def joint(self, clients: Sequence[str]) -> dp.JointLedger:
        """The ledgers of several clients as one, for what reads all their records at once."""
        return dp.JointLedger.of([self.open(client) for client in clients])

    def notes(self) -> list[str]:
        """One line for every client whose records have more books than one."""
        return [
            f'client "{client}": booked in {self.path(client)}; other books of the same records'
            f" add up with it: {', '.join(str(each.path) for each in others)}"
            for client in self.records
            if (others := self.others(client))
        ]


def open_books(
    path: Path, data_set: str, budget: dp.Budget | None = None, records: str = ""
) -> dp.Ledger:
    """A ledger anywhere, made where there is none.

    Args:
        path: of the file; its folder is made too.
        data_set: name of the data set, for a new one.
        budget: of a new one; one that exists must have the same, unless None.
        records: digest of the records, or "".

    Raises:
        InputError: a budget is given that differs from the ledger's, or the place cannot be used.
        dp.LedgerError: the ledger was edited.
        StorageError: the disk is full.
    """
    with placed(path):
        exists = path.exists()
    if not exists:
        make_folder(path.parent, mode=0o700)
        return dp.Ledger.create(path, data_set, budget, records)
    ledger = dp.Ledger.open(path, records)
    if budget is not None and ledger.budget != budget:
        raise InputError(
            f"{path}: holds budget {ledger.budget}, not {budget}; leave the budget out"
        )
    return ledger


def books_of_matrix(source: Path, X: Any, path: Path) -> dp.Ledger:
    """The ledger that the owner named for a matrix in a file, with the other books of its records.

    Args:
        source: the file.
        X: its rows.
        path: of the ledger; made where there is none.

    Raises:
        InputError, dp.LedgerError, StorageError: as `open_books`.
    """
    digest = records_digest(X)
    own = os.path.realpath(path)
    with placed(path):
        around = {*known_places(source), *path.parent.glob("*.jsonl")}
    others = [
        dp.Ledger(each)
        for each in sorted(around)
        if os.path.realpath(each) != own and digest in dp.Ledger.open(each).known_records
    ]
    return attrs.evolve(open_books(path, source.stem, records=digest), others=tuple(others))


def prove_room(ledgers: Iterable[dp.Ledger], events: int) -> None:
    """Raises what booking so many events would, as far as places and room on the disk go.

    Raises:
        InputError: a ledger cannot be written.
        StorageError: there is no room.
    """
    for ledger in ledgers:
        with placed(ledger.path):
            size = ledger.path.stat().st_size
        prove_writable(ledger.path, 2 * (size + ROOM * events))
