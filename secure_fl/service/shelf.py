"""Sealed queries and contributions that are files: what the store has digests of.

One process adds files and sweeps them; the one that evaluates reads. A file gets its name before
the store its digest, and loses it after, so that what the store names is there.
"""

import threading
from pathlib import Path

from secure_fl.service.batch import Batch
from secure_fl.service.blobs import Arrival, Blobs
from secure_fl.service.store import Store

FOLDER = "bodies"
"""In the evaluator's state folder, beside the store."""


class Shelf:
    """The files of all batches at work.

    Args:
        store: of the batches.
        blobs: where they are.
    """

    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store, self._blobs = store, blobs
        # Between its name and the store's digest a file belongs to nobody.
        self._lock = threading.Lock()

    def arriving(self) -> Arrival:
        """A new file."""
        return self._blobs.arriving()

    def sealed(self, batch: Batch, client: str) -> str | None:
        """Digest of a client's sealed query; None where it is not asked, or not yet."""
        return self._digest(batch, client, "sealed_file")

    def sent(self, batch: Batch, client: str) -> str | None:
        """Digest of what a client sent; None where it did not, or the batch is answered."""
        return self._digest(batch, client, "sent_file")

    def path(self, digest: str) -> Path:
        """Of a file."""
        return self._blobs.path(digest)

    def take_sealed(self, batch: Batch, client: str, arrival: Arrival, now: float) -> int | None:
        """Keeps a sealed query that was announced; the last one starts the querier's patience.

        Returns:
            201, 200 where it was there before, or None where it is not waited for.
        """
        with self._lock:
            arrival.keep()
            with self._store.transaction() as db:
                done = db.execute(
                    "UPDATE parts SET state = 'asked', sealed_file = ? WHERE batch = ? AND"
                    " client = ? AND state = 'announced' AND"
                    " (SELECT state FROM batches WHERE id = parts.batch) = 'collecting'",
                    (arrival.digest, batch.id, client),
                )
                left = "SELECT 1 FROM parts WHERE batch = ? AND state = 'announced'"
                if done.rowcount and not db.execute(left, (batch.id,)).fetchone():
                    change = (
                        "UPDATE batches SET patient_until = min(expires, ? + patience) WHERE id = ?"
                    )
                    db.execute(change, (now, batch.id))
        if done.rowcount:
            return 201
        return 200 if self.sealed(batch, client) == arrival.digest else None

    def take_sent(self, batch: Batch, client: str, arrival: Arrival) -> int | None:
        """Keeps a contribution; returns as `take_sealed`."""
        with self._lock:
            arrival.keep()
            if self._store.accept(batch, client, arrival.digest):
                return 201
        return 200 if self.sent(batch, client) == arrival.digest else None

    def clean(self) -> None:
        """Removes what a killed process was writing."""
        self._blobs.clean()

    def sweep(self) -> None:
        """Erases the files of batches that are not at work, whatever became of them."""
        with self._lock:
            self._blobs.sweep(self._named)

    def _named(self) -> set[str]:
        with self._store.transaction() as db:
            rows = db.execute(
                "SELECT sealed_file, sent_file FROM parts JOIN batches b ON b.id = parts.batch"
                " WHERE b.state IN ('collecting', 'queued', 'evaluating')"
            )
            return {digest for row in rows for digest in row if digest}

    def _digest(self, batch: Batch, client: str, column: str) -> str | None:
        with self._store.transaction() as db:
            row = db.execute(
                f"SELECT {column} FROM parts WHERE batch = ? AND client = ?", (batch.id, client)
            ).fetchone()
            found: str | None = None if row is None else row[0]
            return found
