"""Messages of masked sums on the evaluator's disk, from which a sum goes on after a kill.

The server of a secure sum has no secrets and draws nothing, so its state follows from the messages
that it took and the steps that it closed. Both are kept here, in the store's database and by its
transactions: on the disk before a contributor hears that its message was taken.
"""

import json
from collections.abc import Iterator, Sequence

from secure_fl.service.batch import Batch
from secure_fl.service.store import Store

_CLOSED = ""
"""In the place of a client's name: the step was closed."""
STEPS = 5
"""Messages of a contributor in one sum."""


class ExchangeStore:
    """The messages of batches at work.

    Args:
        store: of the batches.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def waiting(self) -> list[int]:
        """The store's numbers of batches of masked sums that are at work, the oldest first."""
        with self._store.transaction() as db:
            rows = db.execute(
                "SELECT id FROM batches WHERE state = 'collecting' AND agreed != '' ORDER BY id"
            )
            return [number for (number,) in rows]

    def keep(self, batch: Batch, step: int, client: str, message: bytes) -> None:
        """Keeps a message that was taken; the last one of a client settles its part."""
        with self._store.transaction() as db:
            row = (batch.id, step, client, message)
            db.execute("INSERT INTO exchanges VALUES (?, ?, ?, ?)", row)
            if step == STEPS:
                change = (
                    "UPDATE parts SET state = 'sent', sealed = NULL WHERE batch = ? AND client = ?"
                )
                db.execute(change, (batch.id, client))

    def message(self, batch: Batch, step: int, client: str) -> bytes | None:
        """A message that was taken, or None."""
        with self._store.transaction() as db:
            row = db.execute(
                "SELECT message FROM exchanges WHERE batch = ? AND step = ? AND client = ?",
                (batch.id, step, client),
            ).fetchone()
            return None if row is None else bytes(row[0])

    def close(self, batch: Batch, step: int) -> None:
        """Notes that a step was closed with the messages that are there."""
        with self._store.transaction() as db:
            db.execute("INSERT INTO exchanges VALUES (?, ?, ?, ?)", (batch.id, step, _CLOSED, b""))
            change = "UPDATE batches SET done = ?, total = ? WHERE id = ?"
            db.execute(change, (step, STEPS, batch.id))

    def history(self, batch: Batch) -> Iterator[tuple[int, dict[str, bytes], bool]]:
        """Step by step: the messages that were taken, and whether the step was closed."""
        for step in range(1, STEPS + 1):
            with self._store.transaction() as db:
                rows = db.execute(
                    "SELECT client, message FROM exchanges WHERE batch = ? AND step = ?"
                    " ORDER BY client",
                    (batch.id, step),
                )
                found = {client: bytes(message) for client, message in rows}
            closed = found.pop(_CLOSED, None) is not None
            yield step, found, closed
            if not closed:
                return

    def finish(self, batch: Batch, present: Sequence[str], answer: bytes, now: float) -> bool:
        """Keeps an answer and erases what it was made of, both or neither.

        Returns:
            False where the batch is not at work any more.
        """
        with self._store.transaction() as db:
            done = db.execute(
                "UPDATE batches SET state = 'answered', present = ?, answer = ?, answered = ?"
                " WHERE id = ? AND state = 'collecting'",
                (json.dumps(list(present)), answer, now, batch.id),
            )
            if done.rowcount:
                self._store.erase(batch.id)
            return done.rowcount == 1
