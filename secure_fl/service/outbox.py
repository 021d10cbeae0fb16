"""A contributor's memory: the batches it answered, and what it has not delivered yet.

Written before anything is sent, so that a kill neither loses a contribution nor answers twice.
"""

import sqlite3
from pathlib import Path

from fhe.envelope import PRIVATE
from secure_fl.service.limits import DATABASE_WAIT

DAY = 86400


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
            " answered REAL NOT NULL, contribution BLOB) WITHOUT ROWID"
        )

    def answered(self, batch: str) -> bool:
        """Whether a batch was answered before, delivered or not."""
        row = self._db.execute("SELECT 1 FROM batches WHERE batch = ?", (batch,))
        return row.fetchone() is not None

    def undelivered(self, batch: str) -> bytes | None:
        """A contribution that was made and not delivered."""
        row = self._db.execute("SELECT contribution FROM batches WHERE batch = ?", (batch,))
        found = row.fetchone()
        return None if found is None else found[0]

    def queries_since(self, time: float) -> int:
        """Queries answered after a time."""
        query = "SELECT coalesce(sum(queries), 0) FROM batches WHERE answered > ?"
        return int(self._db.execute(query, (time,)).fetchone()[0])

    def keep(self, batch: str, queries: int, contribution: bytes, now: float) -> None:
        """Keeps a contribution until it is delivered; on the disk when this returns."""
        row = (batch, queries, now, contribution)
        self._db.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", row)

    def delivered(self, batch: str) -> None:
        """Erases a contribution; the batch's name stays."""
        change = "UPDATE batches SET contribution = NULL WHERE batch = ?"
        self._db.execute(change, (batch,))

    def close(self) -> None:
        """Closes the database."""
        self._db.close()
