"""The evaluator's batches on disk: what was acknowledged survives a kill at any point.

One SQLite file. Every change is one transaction that is forced to the disk before its function
returns. A batch goes through the states

    collecting -> queued -> evaluating -> answered -> closed
         |                      |
         +------> failed <------+        (failed and answered ones are closed by the querier)

and its row stays when it is closed, so that no batch is answered twice. Contributions and sealed
queries are erased as soon as they are not needed.
"""

import json
import math
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from attrs import frozen

from fhe.envelope import PRIVATE
from secure_fl.crypto.identities import QUERIER
from secure_fl.service.batch import COLUMNS, Batch
from secure_fl.service.limits import DATABASE_WAIT
from secure_fl.service.tables import SCHEMA, take_over

FETCHED = "its answer was fetched and erased; ask again as a new batch"
GIVEN_UP = "the querier closed it before it was answered"
KEPT = "its answer was kept as long as answers are, and nobody fetched it"
_OPEN = "('collecting', 'queued', 'evaluating')"


@frozen(kw_only=True)
class Apart:
    """Sealed queries that come apart from the opening, and contributions that are files.

    Attributes:
        clients: that are asked.
        size: bytes that sealed queries and contributions have together, at most.
        room: bytes that all of the querier's batches at work may have.
        patience: seconds to wait for more than the quorum, from the last sealed query on.
    """

    clients: tuple[str, ...] = ()
    size: int = 0
    room: float = math.inf
    patience: float = 0.0


class Store:
    """The evaluator's batches.

    Args:
        path: of the database, made where absent, mode 0600.
        wait: seconds that the database's lock is waited for.
        create: False for a process that uses what another one made.
    """

    def __init__(self, path: Path, *, wait: float = DATABASE_WAIT, create: bool = True) -> None:
        if create:
            path.touch(mode=PRIVATE)
        self._db = sqlite3.connect(
            path, check_same_thread=False, isolation_level=None, timeout=wait
        )
        self._lock = threading.Lock()
        if create:
            self._db.executescript(SCHEMA)
            with self.transaction() as db:
                take_over(db)

    def open(
        self,
        federation: str,
        batch: str,
        opening: str,
        sealed: Mapping[str, bytes],
        *,
        queries: int,
        quorum: int,
        patient_until: float,
        expires: float,
        queue: int,
        agreed: str = "",
        degree: int = 0,
        querier: str = QUERIER,
        apart: Apart | None = None,
    ) -> Literal["opened", "exists", "full"]:
        """Adds a batch, with the sealed query of every client, or what is to come apart.

        Returns:
            "exists" where a batch of that name does, "full" where `queue` of the querier's wait, or
            have all its room.
        """
        coming = apart or Apart()
        with self.transaction() as db:
            whose = (federation, querier)
            if self._waiting(*whose) >= queue or self._taken(*whose) + coming.size > coming.room:
                return "full"
            times = (expires if coming.clients else patient_until, expires)
            row = (federation, batch, opening, queries, quorum, *times, agreed, degree, querier)
            done = db.execute(
                "INSERT OR IGNORE INTO batches (federation, batch, opening, queries, quorum,"
                " patient_until, expires, agreed, degree, querier, room, patience)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, coming.size, coming.patience),
            )
            if done.rowcount != 1:
                return "exists"
            parts = [(done.lastrowid, client, query) for client, query in sealed.items()]
            db.executemany("INSERT INTO parts (batch, client, sealed) VALUES (?, ?, ?)", parts)
            announced = [(done.lastrowid, client) for client in coming.clients]
            insert = "INSERT INTO parts (batch, client, state) VALUES (?, ?, 'announced')"
            db.executemany(insert, announced)
            return "opened"

    def find(self, federation: str, batch: str) -> Batch | None:
        """A batch, or None."""
        with self._lock:
            return self._find("federation = ? AND batch = ?", federation, batch)

    def waiting(self) -> int:
        """Batches that are neither answered nor failed."""
        with self._lock:
            return self._waiting()

    def states(self) -> dict[tuple[str, str], int]:
        """How many batches of each querier are in each state."""
        with self._lock:
            rows = "SELECT querier, state, count(*) FROM batches GROUP BY querier, state"
            return {(querier, state): count for querier, state, count in self._db.execute(rows)}

    def asked(self, federation: str, client: str) -> list[str]:
        """Names of batches that wait for a client's contribution, the oldest first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT b.batch FROM batches b JOIN parts p ON p.batch = b.id WHERE"
                " b.federation = ? AND p.client = ? AND b.state = 'collecting' AND"
                " p.state = 'asked' ORDER BY b.id",
                (federation, client),
            )
            return [name for (name,) in rows]

    def sealed(self, batch: Batch, client: str) -> bytes | None:
        """A client's sealed query; None where it is not asked any more."""
        return self._part(batch, client, "sealed")

    def contribution(self, batch: Batch, client: str) -> bytes | None:
        """What a client sent; None where it did not, or the batch is answered."""
        return self._part(batch, client, "contribution")

    def accept(self, batch: Batch, client: str, contribution: bytes | str) -> bool:
        """Keeps a contribution, or the digest of its file; on the disk when this returns.

        Returns:
            False where the batch does not wait for it any more.
        """
        return self._settle(batch, client, "sent", contribution)

    def decline(self, batch: Batch, client: str, refusal: bytes | None = None) -> bool:
        """Notes that a client will not contribute, and why, sealed to the querier.

        Returns:
            False where it is not asked any more.
        """
        return self._settle(batch, client, "declined", None, refusal)

    def advance(self, now: float) -> bool:
        """Moves every batch on whose turn it is; returns whether one moved.

        A batch is queued when all contributions are in, or the quorum is and nobody else will send
        or the querier's patience ends. It fails when the quorum is out of reach or it expires.
        """
        with self.transaction() as db:
            rows = db.execute(
                "SELECT b.id, quorum, patient_until, expires, count(*), sum(p.state = 'sent'),"
                " sum(p.state = 'declined'), sum(p.state = 'announced')"
                " FROM batches b JOIN parts p ON p.batch = b.id"
                " WHERE b.state = 'collecting' AND b.agreed = '' GROUP BY b.id"
            ).fetchall()
            moved = False
            for number, quorum, patient_until, expires, clients, sent, declined, coming in rows:
                settled = sent + declined == clients
                if sent == clients or (sent >= quorum and (settled or now >= patient_until)):
                    self._queue(number)
                elif clients - declined < quorum:
                    self._fail(number, f"{declined} contributors declined")
                elif now >= expires:
                    silent = clients - sent - declined - coming
                    unsent = f"; {coming} sealed queries never came" if coming else ""
                    self._fail(
                        number,
                        f"it expired with {sent} contributions, {declined} contributors declined"
                        f" and {silent} did not answer{unsent}",
                    )
                else:
                    continue
                moved = True
            return moved

    def wait_longer(self, seconds: float) -> None:
        """Moves the end of the queriers' patience of all batches that collect, not their expiry."""
        with self.transaction() as db:
            db.execute(
                "UPDATE batches SET patient_until = min(expires, patient_until + ?)"
                " WHERE state = 'collecting'",
                (seconds,),
            )

    def begin(self) -> Batch | None:
        """Takes the oldest queued batch for evaluation."""
        with self.transaction() as db:
            first = db.execute(
                "SELECT id FROM batches WHERE state = 'queued' ORDER BY id LIMIT 1"
            ).fetchone()
            if first is None:
                return None
            db.execute(
                "UPDATE batches SET state = 'evaluating', attempts = attempts + 1, done = 0"
                " WHERE id = ?",
                first,
            )
            return self._find("id = ?", first[0])

    def by_number(self, number: int) -> Batch | None:
        """A batch by the store's own number, or None."""
        with self._lock:
            return self._find("id = ?", number)

    def progress(self, batch: Batch, done: int, total: int) -> None:
        """Notes how far an evaluation is."""
        with self.transaction() as db:
            change = "UPDATE batches SET done = ?, total = ? WHERE id = ? AND state = 'evaluating'"
            db.execute(change, (done, total, batch.id))

    def finish(self, batch: Batch, answer: bytes, now: float) -> bool:
        """Keeps an answer and erases what it was made of, both or neither.

        Returns:
            False where the batch is not being evaluated any more.
        """
        with self.transaction() as db:
            done = db.execute(
                "UPDATE batches SET state = 'answered', answer = ?, answered = ?"
                " WHERE id = ? AND state = 'evaluating'",
                (answer, now, batch.id),
            )
            if done.rowcount:
                self.erase(batch.id)
            return done.rowcount == 1

    def fail(self, batch: Batch, reason: str) -> None:
        """Ends a batch that cannot be answered."""
        with self.transaction():
            self._fail(batch.id, reason)

    def end(self, federations: Collection[str], reason: str) -> None:
        """Ends all batches of federations that are not served any more, and erases them."""
        with self.transaction() as db:
            for federation in federations:
                rows = db.execute(
                    f"SELECT id FROM batches WHERE federation = ? AND state IN {_OPEN}",
                    (federation,),
                )
                for (number,) in rows.fetchall():
                    self._fail(number, reason)

    def hand_back(self, attempts: int, *, died: bool) -> None:
        """Queues what was being evaluated again.

        Args:
            attempts: of one batch; it fails when its evaluation died so often.
            died: whether the evaluation died by itself; a stop of the service does not count.
        """
        with self.transaction() as db:
            rows = db.execute("SELECT id, attempts FROM batches WHERE state = 'evaluating'")
            for number, made in rows.fetchall():
                if died and made >= attempts:
                    self._fail(number, f"its evaluation died {made} times")
                else:
                    change = "UPDATE batches SET state = 'queued', attempts = ? WHERE id = ?"
                    db.execute(change, (made if died else made - 1, number))

    def answer(self, batch: Batch) -> bytes | None:
        """The answer; None where there is none."""
        with self._lock:
            row = self._db.execute("SELECT answer FROM batches WHERE id = ?", (batch.id,))
            found: bytes | None = row.fetchone()[0]
            return found

    def close_batch(self, batch: Batch) -> None:
        """Erases everything but the batch's name and why it ended, in whatever state it is."""
        with self.transaction() as db:
            db.execute(
                "UPDATE batches SET state = 'closed', answer = NULL, reason = CASE state"
                " WHEN 'answered' THEN ? WHEN 'failed' THEN 'it failed: ' || reason"
                " WHEN 'closed' THEN reason ELSE ? END WHERE id = ?",
                (FETCHED, GIVEN_UP, batch.id),
            )
            self.erase(batch.id)

    def forget(self, before: float) -> None:
        """Closes batches that were answered before a time."""
        with self.transaction() as db:
            db.execute(
                "UPDATE batches SET state = 'closed', answer = NULL, reason = ?"
                " WHERE state = 'answered' AND answered < ?",
                (KEPT, before),
            )

    def close(self) -> None:
        """Closes the database."""
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction of the writer; others of this store wait."""
        with self._lock:
            # Takes the writer's lock at once: another process writes this file too.
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _taken(self, federation: str, querier: str) -> int:
        return self._at_work("coalesce(sum(room), 0)", federation, querier)

    def _waiting(self, *querier: str) -> int:
        return self._at_work("count(*)", *querier)

    def _at_work(self, what: str, *querier: str) -> int:
        """What there is of batches at work, of all or of a federation's querier."""
        whose = "federation = ? AND querier = ? AND " if querier else ""
        query = f"SELECT {what} FROM batches WHERE {whose}state IN {_OPEN}"
        return int(self._db.execute(query, querier).fetchone()[0])

    def _find(self, condition: str, *values: str | int) -> Batch | None:
        row = self._db.execute(
            f"SELECT {', '.join(COLUMNS)} FROM batches WHERE {condition}", values
        ).fetchone()
        if row is None:
            return None
        parts = self._db.execute(
            "SELECT client, state, refusal FROM parts WHERE batch = ?", row[:1]
        )
        return Batch.of(row, parts)

    def _part(self, batch: Batch, client: str, column: str) -> bytes | None:
        with self._lock:
            row = self._db.execute(
                f"SELECT {column} FROM parts WHERE batch = ? AND client = ?", (batch.id, client)
            ).fetchone()
            found: bytes | None = None if row is None else row[0]
            return found

    def _settle(
        self,
        batch: Batch,
        client: str,
        state: str,
        contribution: bytes | str | None,
        refusal: bytes | None = None,
    ) -> bool:
        column = "sent_file" if isinstance(contribution, str) else "contribution"
        with self.transaction() as db:
            done = db.execute(
                f"UPDATE parts SET state = ?, {column} = ?, refusal = ?, sealed = NULL,"
                " sealed_file = NULL WHERE batch = ? AND client = ? AND state = 'asked' AND"
                " (SELECT state FROM batches WHERE id = parts.batch) = 'collecting'",
                (state, contribution, refusal, batch.id, client),
            )
            return done.rowcount == 1

    def _queue(self, number: int) -> None:
        rows = self._db.execute(
            "SELECT client FROM parts WHERE batch = ? AND state = 'sent'", (number,)
        )
        present = json.dumps([client for (client,) in rows])
        change = "UPDATE batches SET state = 'queued', present = ? WHERE id = ?"
        self._db.execute(change, (present, number))

    def _fail(self, number: int, reason: str) -> None:
        # The querier may have closed it meanwhile.
        change = (
            f"UPDATE batches SET state = 'failed', reason = ? WHERE id = ? AND state IN {_OPEN}"
        )
        if self._db.execute(change, (reason, number)).rowcount:
            self.erase(number)

    def erase(self, number: int) -> None:
        """Erases what a batch was made of, within a transaction."""
        self._db.execute(
            "UPDATE parts SET sealed = NULL, contribution = NULL, sealed_file = NULL,"
            " sent_file = NULL WHERE batch = ?",
            (number,),
        )
        self._db.execute("DELETE FROM exchanges WHERE batch = ?", (number,))
