"""Evaluations one after the other in a process of their own, which may die and is started again."""

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secure_fl.service.limits import Limits
from secure_fl.service.metrics import Metrics
from secure_fl.service.store import Batch, Store
from secure_fl.service.worker import ARGUMENTS, GRACE

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
        metrics: seconds are counted there.

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
    ) -> None:
        self.changes = Changes()
        self._store, self._limits, self._metrics = store, limits, metrics
        self._command = [sys.executable, *ARGUMENTS, str(path), *map(str, folders)]
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def alive(self) -> bool:
        """Whether the process that evaluates and the tasks that feed it run."""
        return self._runs and not any(task.done() for task in self._tasks)

    @property
    def _runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Takes up what a former process left, and begins."""
        self._store.hand_back(self._limits.attempts, died=False)
        self._tasks = [asyncio.create_task(self._clock()), asyncio.create_task(self._evaluate())]
        for task in self._tasks:
            task.add_done_callback(_log_failure)

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
        self._store.hand_back(self._limits.attempts, died=False)

    async def _clock(self) -> None:
        while not self._stopping:
            now = time.time()
            if await asyncio.to_thread(self._store.advance, now):
                self.changes.tell()
            await asyncio.to_thread(self._store.forget, now - self._limits.keep)
            await self.changes.wait(TICK)

    async def _evaluate(self) -> None:
        while not self._stopping:
            if not self._runs and not await self._launch():
                continue
            batch = await asyncio.to_thread(self._store.begin)
            if batch is None:
                await self.changes.wait(TICK)
                continue
            started = time.monotonic()
            self.changes.tell()
            if await self._run(batch):
                self._metrics.evaluations.observe(time.monotonic() - started)
            else:
                log.error("the evaluation process died; it is started again")
                self._store.hand_back(self._limits.attempts, died=True)
            self.changes.tell()

    async def _launch(self) -> bool:
        """Starts the process; False where it could not begin."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        if await self._hear() is not None:
            return True
        log.error("the evaluation process does not start; its own message is above")
        await asyncio.sleep(1)
        return False

    async def _run(self, batch: Batch) -> bool:
        """Has a batch evaluated; False where the process died over it."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps({"batch": batch.id}).encode() + b"\n")
            await self._process.stdin.drain()
        while (message := await self._hear()) is not None:
            if "done" in message:
                self._store.progress(batch, message["done"], message["total"])
                self.changes.tell()
                continue
            if "failed" in message:
                self._store.fail(batch, message["failed"])
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


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()) is not None:
        log.error("batches are not moved on any more: %s", problem)
