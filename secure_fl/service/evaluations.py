"""Evaluations one after the other in a process of their own, which may die and is started again."""

import asyncio
import contextlib
import json
import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from secure_fl.errors import ServiceError
from secure_fl.service.batch import Batch
from secure_fl.service.cluster import Calling
from secure_fl.service.limits import Limits
from secure_fl.service.metrics import Metrics
from secure_fl.service.store import Store
from secure_fl.service.supervision import Attention, Watch, keep_turning
from secure_fl.service.worker import ARGUMENTS, GRACE, WORKERS

log = logging.getLogger("securefl.service")

TICK = 0.2
"""Seconds between looks at the clock for batches whose time is up."""


class Changes:
    """Wakes whoever waits for a change of the store."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Something changed."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Returns at the next change, or after some seconds."""
        # Not wait_for: in Python 3.11 it swallows a cancellation that comes with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


class Evaluations:
    """Moves batches on and has them evaluated.

    Args:
        store: of the batches.
        path: of the store, for the process.
        folders: of the federations, for the process.
        limits: attempts, and how long answers are kept.
        metrics: seconds and failures are counted there.
        give_up: called with a reason when batches cannot be moved on any more.
        advance: moves masked sums on, at seconds since 1970, of which some were missed; returns
            whether one moved.
        calling: how workers are called that answer batches; None has the process answer.

    Attributes:
        changes: told of every change.
    """

    def __init__(
        self,
        store: Store,
        path: Path,
        folders: Sequence[Path],
        limits: Limits,
        metrics: Metrics,
        give_up: Callable[[str], None],
        advance: Callable[[float, float], bool] = lambda now, missed: False,
        calling: Calling | None = None,
    ) -> None:
        self._advance, self._attention = advance, Attention(TICK)
        self.changes = Changes()
        patience = limits.failing
        self._watches = [
            Watch(name, give_up, patience=patience, failed=metrics.stumbled)
            for name in ("clock", "evaluations")
        ]
        self._store, self._limits, self._metrics = store, limits, metrics
        called = [] if calling is None else [WORKERS, calling.to_json()]
        self._command = [sys.executable, *ARGUMENTS, *called, str(path), *map(str, folders)]
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._left: bool | None = None
        """Set while a batch is in mid-evaluation: whether the process died over it."""

    @property
    def alive(self) -> bool:
        """Whether the process that evaluates runs, and the loops that feed it do their work."""
        return self._runs and all(self.loops.values())

    @property
    def loops(self) -> dict[str, bool]:
        """Of every loop whether it runs and its last turn did not fail."""
        running = [not task.done() for task in self._tasks]
        pairs = zip(self._watches, running, strict=False)
        return {watch.name: watch.alive and runs for watch, runs in pairs}

    @property
    def _runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Takes up what a former process left, and begins."""
        await self._hand_back(died=False)
        turns = (self._tick, self._evaluate_next)
        self._tasks = [
            asyncio.create_task(keep_turning(turn, watch, lambda: self._stopping))
            for turn, watch in zip(turns, self._watches, strict=True)
        ]

    async def stop(self, grace: float) -> None:
        """Ends: a running evaluation gets some seconds, then its batch is handed back."""
        self._stopping = True
        self.changes.tell()
        clock, evaluate = self._tasks
        clock.cancel()
        done, _ = await asyncio.wait([evaluate], timeout=grace)
        if not done:
            log.warning("an evaluation did not end in %.0f s; its batch is handed back", grace)
            evaluate.cancel()
        await asyncio.gather(clock, evaluate, return_exceptions=True)
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * GRACE):
                    await self._process.wait()
            if self._runs:
                self._process.kill()
                await self._process.wait()
        await self._hand_back(died=False)

    async def _hand_back(self, *, died: bool) -> None:
        await asyncio.to_thread(self._store.hand_back, self._limits.attempts, died=died)

    async def _tick(self) -> None:
        now = time.time()
        missed = self._attention.missed(now)
        if missed:
            log.warning("the clock went %+.1f s, nobody was heard: patience moves on", missed)
            await asyncio.to_thread(self._store.wait_longer, missed)
        moved = await asyncio.to_thread(self._store.advance, now)
        if await asyncio.to_thread(self._advance, now, missed) or moved:
            self.changes.tell()
        self._attention.looked(now)
        await asyncio.to_thread(self._store.forget, now - self._limits.keep)
        await self.changes.wait(TICK)

    async def _evaluate_next(self) -> None:
        if not self._runs:
            await self._launch()
        await self._settle()
        batch = await asyncio.to_thread(self._store.begin)
        if batch is None:
            await self.changes.wait(TICK)
            return
        started = time.monotonic()
        self.changes.tell()
        self._left = False
        try:
            finished = await self._run(batch)
        except Exception:
            # Whatever the process is at: nobody listens to it any more.
            if self._process is not None and self._runs:
                self._process.kill()
                await self._process.wait()
            raise
        if finished:
            self._left = None
            self._metrics.evaluations.observe(time.monotonic() - started)
        else:
            log.error("the evaluation process died; it is started again")
            self._left = True
            await self._settle()
        self.changes.tell()

    async def _settle(self) -> None:
        """Queues again what a turn left in mid-evaluation, before anything else begins."""
        if self._left is not None:
            await self._hand_back(died=self._left)
            self._left = None

    async def _launch(self) -> None:
        """Starts the process.

        Raises:
            ServiceError: it could not begin.
        """
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        if await self._hear() is None:
            log.error("the evaluation process does not start; its own message is above")
            raise ServiceError("the evaluation process does not start")

    async def _run(self, batch: Batch) -> bool:
        """Has a batch evaluated; False where the process died over it.

        Raises:
            ServiceError: the process could not read or write the database.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps({"batch": batch.id}).encode() + b"\n")
            await self._process.stdin.drain()
        while (message := await self._hear()) is not None:
            if "done" in message:
                with contextlib.suppress(sqlite3.OperationalError):
                    # How far it is is news, no more; a busy database must not end the evaluation.
                    await asyncio.to_thread(
                        self._store.progress, batch, message["done"], message["total"]
                    )
                self.changes.tell()
                continue
            if "again" in message:
                raise ServiceError("the evaluation process cannot use the database")
            if "failed" in message:
                await asyncio.to_thread(self._store.fail, batch, message["failed"])
            return True
        return False

    async def _hear(self) -> dict[str, Any] | None:
        """The next message of the process; None where it ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        await self._process.wait()
        return None
