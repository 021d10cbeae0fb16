"""Bounds on what others may ask of a service: how often, how much, and not twice."""

import hashlib
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from attrs import evolve, frozen

from secure_fl.service.supervision import PATIENCE

Clock = Callable[[], float]
DATABASE_WAIT = 30.0
"""Seconds that a database's lock is waited for, never in the event loop."""


@frozen(kw_only=True)
class Limits:
    """What an evaluator allows.

    Attributes:
        rate: requests a second of one member, in the long run.
        burst: requests of one member at once.
        queue: batches at once that are not answered yet, in all federations; each of the queriers
            has an equal part of them to itself.
        queries: of one batch; None for as many as the engine takes (`Federation.most_queries`).
        room: bytes of sealed queries and contributions of engine bgv, of all batches at work; each
            querier with keys of it has an equal part to itself.
        seconds: that a body may take to arrive.
        slowest: bytes a second at which a large body must come at least, beside those seconds.
        silence: seconds without a piece of a large body, after which its line counts as cut: less
            than members repeat their calls, for the same body is not taken twice at once.
        lifetime: seconds that a batch may wait for contributions.
        step: seconds that a contributor has for a message of a masked sum, from the second on.
        keep: seconds that an answer waits for the querier.
        attempts: evaluations of one batch; each but the first follows a death of the process.
        failing: seconds that a loop of the service may fail before the process ends.
        database: seconds that a database's lock is waited for.
    """

    rate: float = 20.0
    burst: int = 200
    queue: int = 64
    queries: int | None = None
    room: int = 64 * 2**30
    seconds: float = 60.0
    slowest: float = 128e3
    silence: float = 20.0
    lifetime: float = 7 * 86400.0
    step: float = 15.0
    keep: float = 86400.0
    attempts: int = 3
    failing: float = PATIENCE
    database: float = DATABASE_WAIT

    def shared_by(self, queriers: int, batched: int) -> "Limits":
        """With each querier's part of the queue, at least 1, and of the room.

        No querier fills them for another, or sees by their being full how much another asks.

        Args:
            queriers: of all federations.
            batched: of these, with keys of engine bgv.
        """
        part = max(1, self.queue // max(1, queriers))
        return evolve(self, queue=part, room=self.room // max(1, batched))


class Buckets:
    """Token buckets by name: `burst` at once, refilled with `rate` a second.

    Args:
        rate: tokens a second.
        burst: of a full bucket.
        names: buckets kept; the one that was least lately used is forgotten first.
        clock: seconds.
    """

    def __init__(
        self, rate: float, burst: float, *, names: int = 10_000, clock: Clock = time.monotonic
    ) -> None:
        self._rate, self._burst, self._names, self._clock = rate, burst, names, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, name: str) -> float:
        """Takes a token and returns 0, or returns the seconds until there is one."""
        now = self._clock()
        level, then = self._levels.pop(name, (self._burst, now))
        level = min(self._burst, level + (now - then) * self._rate)
        missing = max(0.0, 1.0 - level)
        if not missing:
            level -= 1.0
        self._levels[name] = (level, now)
        if len(self._levels) > self._names:
            self._levels.popitem(last=False)
        return missing / self._rate

    def give_back(self, name: str) -> None:
        """Puts a token back that was taken for nothing."""
        level, then = self._levels.get(name, (self._burst, self._clock()))
        self._levels[name] = (min(self._burst, level + 1), then)


class Nonces:
    """Nonces of requests that are still valid, on disk, so that a restart forgets none.

    Not forced to the disk: a death of the process loses none, a power failure may lose the last
    ones, and they expire within two minutes.

    Args:
        path: of the database, made where absent.
        lifetime: seconds that a nonce is kept.
        wait: seconds that the database's lock is waited for.
    """

    def __init__(self, path: Path, lifetime: float, *, wait: float = DATABASE_WAIT) -> None:
        self._db = sqlite3.connect(
            path, check_same_thread=False, isolation_level=None, timeout=wait
        )
        self._lock, self._lifetime = threading.Lock(), lifetime
        self._db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE IF NOT EXISTS nonces"
            " (sender TEXT, nonce TEXT, until REAL, PRIMARY KEY (sender, nonce)) WITHOUT ROWID;"
            "CREATE INDEX IF NOT EXISTS ends ON nonces (until);"
        )

    def known(self, sender: str, nonce: str, now: float) -> bool:
        """Whether a nonce was used before and is still kept."""
        with self._lock:
            query = "SELECT 1 FROM nonces WHERE sender = ? AND nonce = ? AND until >= ?"
            return self._db.execute(query, (sender, nonce, now)).fetchone() is not None

    def fresh(self, sender: str, nonce: str, now: float) -> bool:
        """Whether a nonce was not used before; from now on it was."""
        with self._lock:
            self._db.execute("DELETE FROM nonces WHERE until < ?", (now,))
            done = self._db.execute(
                "INSERT OR IGNORE INTO nonces VALUES (?, ?, ?)",
                (sender, nonce, now + self._lifetime),
            )
            return done.rowcount == 1

    def close(self) -> None:
        """Closes the database."""
        self._db.close()


class OversizedError(ValueError):
    """More bytes than allowed; the rest was not read."""


async def read_capped(chunks: AsyncIterator[bytes], limit: int) -> tuple[bytes, str]:
    """A body of at most `limit` bytes and its SHA-256, hexadecimal.

    Raises:
        OversizedError: there are more; at most one chunk beyond the limit was held.
    """
    parts, size, hashed = [], 0, hashlib.sha256()
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise OversizedError
        hashed.update(chunk)
        parts.append(chunk)
    return b"".join(parts), hashed.hexdigest()
