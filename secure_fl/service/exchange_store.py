"""Messages of masked sums on the evaluator's disk, from which a sum goes on after a kill.

The server of a secure sum has no secrets and draws nothing, so its state follows from the messages
that it took and the steps that it closed. Both are kept here, in the store's database and by its
transactions: on the disk before a contributor hears that its message was taken.

Masked rows are megabytes, which a database would write four times: they are files beside it, and
their digests stand in it. They are not overwritten when they are erased: without the shares that
the querier gets they are uniform words, and with them no more than the answer.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from attrs import define

from dp.storage import sync_folder
from fhe.envelope import PRIVATE, write_error
from secure_fl.errors import ProtocolError
from secure_fl.files import make_folder
from secure_fl.service.batch import Batch
from secure_fl.service.store import Store

_CLOSED = ""
"""In the place of a client's name: the step was closed."""
STEPS = 5
"""Messages of a contributor in one sum."""
ROWS = 3
"""The step whose messages are masked rows; the first one with keys of an earlier batch."""
_DIGEST = hashlib.sha256().digest_size


@define(eq=False)
class Sent:
    """A message of a contributor on its way to the disk.

    Attributes:
        batch: at work.
        client: who sent it.
        step: of the sum.
        content: the message.
        arrived: seconds since 1970 when all of it was here.
        status: 201 where it was taken, 200 where it was there before; 0 until then.
        error: why it was not taken.
        moved: whether its batch, or one that was looked at with it, went a step on.
    """

    batch: Batch
    client: str
    step: int
    content: bytes
    arrived: float
    status: int = 0
    error: Exception | None = None
    moved: bool = False

    @property
    def place(self) -> tuple[int, str, int]:
        """What there is one message of."""
        return self.batch.id, self.client, self.step


class ExchangeStore:
    """The messages of batches at work.

    Args:
        store: of the batches.
        folder: of masked rows, made where absent, mode 0700.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        make_folder(folder, mode=0o700)
        self._store, self._folder = store, folder

    def waiting(self) -> list[int]:
        """The store's numbers of batches of masked sums that are at work, the oldest first."""
        with self._store.transaction() as db:
            rows = db.execute(
                "SELECT id FROM batches WHERE state = 'collecting' AND agreed != '' ORDER BY id"
            )
            return [number for (number,) in rows]

    def write(self, batch: Batch, step: int, client: str, message: bytes) -> None:
        """Writes masked rows to their file; they count when they are kept.

        Raises:
            StorageError: the disk is full.
        """
        if step != ROWS:
            return
        path = self._file(batch, client, _short(step, message))
        try:
            # Whole or not: it is found by its digest, which stands in the database after this.
            handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, PRIVATE)
            with os.fdopen(handle, "wb") as file:
                file.write(message)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self._folder)
        except OSError as problem:
            raise write_error(path, problem) from problem

    def discard(self, batch: Batch, step: int, client: str, message: bytes) -> None:
        """Erases the file of rows that were not taken."""
        if step == ROWS:
            self._file(batch, client, _short(step, message)).unlink(missing_ok=True)

    def keep(self, messages: Sequence[Sent]) -> None:
        """Keeps messages that were taken, all or none; the last one of a client settles its part.

        Those that came at once go to the disk at once: each turn of it takes milliseconds, which
        everybody else waits for.
        """
        with self._store.transaction() as db:
            for each in messages:
                kept = _short(each.step, each.content)
                row = (each.batch.id, each.step, each.client, kept)
                db.execute("INSERT INTO exchanges VALUES (?, ?, ?, ?)", row)
                if each.step == STEPS:
                    db.execute(
                        "UPDATE parts SET state = 'sent', sealed = NULL"
                        " WHERE batch = ? AND client = ?",
                        (each.batch.id, each.client),
                    )

    def taken(self, batch: Batch, step: int, client: str, message: bytes) -> bool | None:
        """Whether this very message was taken, or another one; None without any."""
        with self._store.transaction() as db:
            row = db.execute(
                "SELECT message FROM exchanges WHERE batch = ? AND step = ? AND client = ?",
                (batch.id, step, client),
            ).fetchone()
            return None if row is None else bytes(row[0]) in (message, _short(step, message))

    def close(self, batch: Batch, step: int) -> None:
        """Notes that a step was closed with the messages that are there."""
        with self._store.transaction() as db:
            db.execute("INSERT INTO exchanges VALUES (?, ?, ?, ?)", (batch.id, step, _CLOSED, b""))
            change = "UPDATE batches SET done = ?, total = ? WHERE id = ?"
            db.execute(change, (step, STEPS, batch.id))

    def history(self, batch: Batch, first: int) -> Iterator[tuple[int, dict[str, bytes], bool]]:
        """Step by step from the first: the messages that were taken, and whether it was closed.

        Raises:
            ProtocolError: a file of masked rows is gone or was altered.
        """
        for step in range(first, STEPS + 1):
            with self._store.transaction() as db:
                rows = db.execute(
                    "SELECT client, message FROM exchanges WHERE batch = ? AND step = ?"
                    " ORDER BY client",
                    (batch.id, step),
                )
                found = {client: bytes(message) for client, message in rows}
            closed = found.pop(_CLOSED, None) is not None
            if step == ROWS:
                found = {name: self._rows(batch, name, kept) for name, kept in found.items()}
            yield step, found, closed
            if not closed:
                return

    def finish(
        self,
        batch: Batch,
        present: Sequence[str],
        answer: bytes,
        now: float,
        also: Callable[[sqlite3.Connection], None] = lambda db: None,
    ) -> bool:
        """Keeps an answer and erases what it was made of, both or neither.

        Args:
            batch: at work.
            present: clients that the answer rests on.
            answer: kept until the querier fetched it.
            now: seconds since 1970.
            also: changes that belong in the same transaction.

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
                also(db)
            return done.rowcount == 1

    def sweep(self, waiting: Collection[int]) -> None:
        """Erases masked rows of batches that are not at work, whatever became of them.

        Args:
            waiting: from `waiting`.
        """
        for path in self._folder.iterdir():
            if path.name.partition(".")[0] not in map(str, waiting):
                path.unlink(missing_ok=True)

    def _file(self, batch: Batch, client: str, kept: bytes) -> Path:
        return self._folder / f"{batch.id}.{client}.{kept.hex()[:32]}"

    def _rows(self, batch: Batch, client: str, kept: bytes) -> bytes:
        if len(kept) != _DIGEST:
            # Of a release that kept rows in the database.
            return kept
        try:
            found = self._file(batch, client, kept).read_bytes()
        except OSError:
            found = b""
        if hashlib.sha256(found).digest() != kept:
            raise ProtocolError(
                f"masked rows of {client!r} are gone or altered on the evaluator's disk"
            )
        return found


def _short(step: int, message: bytes) -> bytes:
    """What the database holds of a message."""
    return hashlib.sha256(message).digest() if step == ROWS else message
