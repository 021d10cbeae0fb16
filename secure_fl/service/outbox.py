"""A contributor's memory: the batches it answered, for whom, and what it has not delivered yet.

Written before anything is sent, so that a kill neither loses a contribution nor answers twice.
"""

import sqlite3
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fhe.envelope import PRIVATE
from secure_fl.crypto.identities import QUERIER
from secure_fl.service.blobs import Blobs
from secure_fl.service.limits import DATABASE_WAIT

DAY = 86400
FOLDER = "contributions"
"""Beside the database: contributions of engine bgv that are not delivered yet."""


class Outbox:
    """One contributor's batches on disk.

    Args:
        path: of the database, made where absent, mode 0600.
        wait: seconds that the database's lock is waited for.

    Attributes:
        path: as given.
    """

    def __init__(self, path: Path, *, wait: float = DATABASE_WAIT) -> None:
        path.touch(mode=PRIVATE)
        self.path = path
        self._db = sqlite3.connect(
            path, check_same_thread=False, isolation_level=None, timeout=wait
        )
        self._db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE IF NOT EXISTS batches (batch TEXT PRIMARY KEY, queries INTEGER NOT NULL,"
            " answered REAL NOT NULL, contribution BLOB) WITHOUT ROWID;"
            "PRAGMA secure_delete = ON;"
            "CREATE TABLE IF NOT EXISTS asked (batch TEXT PRIMARY KEY, answered REAL NOT NULL,"
            " features BLOB NOT NULL) WITHOUT ROWID"
        )
        for table in ("batches", "asked"):
            # Those of earlier releases have one querier.
            self._add_column(table, "querier", f"TEXT NOT NULL DEFAULT '{QUERIER}'")
        # Those of a release before there were contributions too large for a database.
        self._add_column("batches", "file", "TEXT")

    def _add_column(self, table: str, column: str, kind: str) -> None:
        if column not in {row[1] for row in self._db.execute(f"PRAGMA table_info({table})")}:
            self._db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")

    @cached_property
    def _blobs(self) -> Blobs:
        # Engine tfhe needs no such folder.
        return Blobs(self.path.parent / FOLDER)

    @property
    def folder(self) -> Path:
        """Where large files are while they are worked on."""
        return self._blobs.folder

    def clean(self) -> None:
        """Removes what a killed process left; for who holds the folder alone."""
        if (self.path.parent / FOLDER).exists():
            self._blobs.clean()
            self._blobs.sweep(self._files)

    def _files(self) -> set[str]:
        rows = self._db.execute("SELECT file FROM batches WHERE file IS NOT NULL")
        return {digest for (digest,) in rows}

    def answered(self, batch: str) -> bool:
        """Whether a batch was answered before, delivered or not."""
        row = self._db.execute("SELECT 1 FROM batches WHERE batch = ?", (batch,))
        return row.fetchone() is not None

    def querier(self, batch: str) -> str | None:
        """Who asked a batch that was answered."""
        row = self._db.execute("SELECT querier FROM batches WHERE batch = ?", (batch,)).fetchone()
        return None if row is None else str(row[0])

    def undelivered(self, batch: str) -> bytes | Path | None:
        """A contribution that was made and not delivered, or its file."""
        found = self._db.execute(
            "SELECT contribution, file FROM batches WHERE batch = ?", (batch,)
        ).fetchone()
        if found is None:
            return None
        contribution, digest = found
        return contribution if digest is None else self._blobs.path(digest)

    def made(self, write: Callable[[Path], object]) -> str:
        """Digest of a large contribution's file, that `write` makes at a place it is told."""
        return self._blobs.made(write)

    def queries_since(self, time: float, querier: str) -> int:
        """Queries of one querier answered after a time."""
        query = "SELECT coalesce(sum(queries), 0) FROM batches WHERE answered > ? AND querier = ?"
        return int(self._db.execute(query, (time, querier)).fetchone()[0])

    def asked_since(
        self, time: float, n_features: int, querier: str
    ) -> Iterator[NDArray[np.float32]]:
        """A querier's batches answered after a time, shape (queries, n_features) each."""
        query = "SELECT features FROM asked WHERE answered > ? AND querier = ?"
        found = self._db.execute(query, (time, querier))
        for (features,) in found:
            yield np.frombuffer(features, np.float32).reshape(-1, n_features)

    def keep(
        self,
        batch: str,
        queries: int,
        contribution: bytes | str | None,
        now: float,
        features: NDArray[np.float32],
        querier: str,
    ) -> None:
        """Keeps a contribution until it is delivered; on the disk when this returns.

        A large one is a file, by the digest from `made`.

        None is kept of a masked sum: its messages serve once, and a kill ends this client's part.

        The queries are kept for a day, to know them again, and erased after it.
        """
        self._db.execute("BEGIN IMMEDIATE")
        try:
            column = "file" if isinstance(contribution, str) else "contribution"
            self._db.execute(
                f"INSERT INTO batches (batch, queries, answered, {column}, querier)"
                " VALUES (?, ?, ?, ?, ?)",
                (batch, queries, now, contribution, querier),
            )
            self._db.execute("DELETE FROM asked WHERE answered <= ?", (now - DAY,))
            content = np.ascontiguousarray(features, np.float32).tobytes()
            self._db.execute(
                "INSERT INTO asked (batch, answered, features, querier) VALUES (?, ?, ?, ?)",
                (batch, now, content, querier),
            )
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def delivered(self, batch: str) -> None:
        """Erases a contribution; the batch's name stays."""
        large = isinstance(self.undelivered(batch), Path)
        change = "UPDATE batches SET contribution = NULL, file = NULL WHERE batch = ?"
        self._db.execute(change, (batch,))
        if large:
            self._blobs.sweep(self._files)

    def close(self) -> None:
        """Closes the database."""
        self._db.close()
