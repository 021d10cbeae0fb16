"""Loops that live as long as their process: a fault is logged, waited out, and the loop goes on.

A loop that fails at every turn for minutes cannot be helped from inside; then the process is ended
with exit code 1, so that whoever started it (systemd, a container's runtime) can start it anew. No
process stays up while one of its loops is dead.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable

log = logging.getLogger("securefl.service")

PATIENCE = 300.0
"""Seconds that a loop may fail at every turn before its process is ended."""
LONGEST_PAUSE = 30.0
"""Seconds between two turns of a loop that fails, at most."""
_FIRST_PAUSE = 0.5


class Watch:
    """What a process knows of one of its loops.

    Args:
        name: of the loop, for people.
        give_up: called once, with a reason, when the loop cannot go on.
        patience: seconds of failures in a row before that.
        failed: called at every failure.

    Attributes:
        name: as given.
    """

    def __init__(
        self,
        name: str,
        give_up: Callable[[str], None],
        *,
        patience: float = PATIENCE,
        failed: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.name = name
        self._give_up, self._patience, self._failed = give_up, patience, failed
        self._failing_since: float | None = None
        self._pause = 0.0
        self._ended = False

    @property
    def alive(self) -> bool:
        """Whether the loop runs and its last turn did not fail."""
        return not self._ended and self._failing_since is None

    def turned(self) -> None:
        """A turn came to its end."""
        self._failing_since, self._pause = None, 0.0

    def stumbled(self, error: Exception) -> float | None:
        """A turn failed; seconds until the next one, None where there is none."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        lasted = now - self._failing_since
        # Of an unforeseen error the text may quote what was sent.
        what = f"{self.name}: {type(error).__name__}"
        self._failed(self.name)
        if lasted >= self._patience:
            self.end(f"{what}, for {lasted:.0f} s")
            return None
        self._pause = min(LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self._pause), self._patience)
        log.error("%s; tried again in %.1f s", what, self._pause)
        return self._pause

    def end(self, reason: str) -> None:
        """The loop is over although it should not be."""
        if not self._ended:
            self._ended = True
            log.critical("%s; the process ends", reason)
            self._give_up(reason)


class Attention:
    """Tells a loop how long it was away: stopped, asleep with its machine, or waiting for a disk.

    Nobody was heard in that time, so nobody was silent. A clock that is set while the loop runs
    looks the same, and is treated so: who is waited for gets the time back.

    Args:
        usual: seconds between two looks.
    """

    SLACK = 1.0
    """Seconds that a look may be late on a busy machine."""

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._looked: float | None = None

    def missed(self, now: float) -> float:
        """Seconds since the last look beyond the usual ones; below 0 where the clock went back."""
        gap = self._usual if self._looked is None else now - self._looked
        if 0 <= gap <= self._usual + self.SLACK:
            return 0.0
        return gap - self._usual

    def looked(self, now: float) -> None:
        """What was missed until then is made good."""
        self._looked = now


class Ending:
    """How a loop that cannot go on ends its process.

    Args:
        stop: begins the process's orderly end.

    Attributes:
        reason: why it ends; None while it need not.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self.reason: str | None = None
        self._stop = stop

    def __call__(self, reason: str) -> None:
        """Ends; the first reason stays."""
        self.reason = self.reason or reason
        self._stop()


async def keep_turning(
    turn: Callable[[], Awaitable[None]], watch: Watch, over: Callable[[], bool]
) -> None:
    """Runs turn after turn in the event loop until `over` says so.

    Args:
        turn: one piece of work, after which the loop may end.
        watch: hears of every turn.
        over: asked before every turn.
    """
    while not over():
        try:
            await turn()
        except Exception as error:
            pause = watch.stumbled(error)
            if pause is None:
                return
            await asyncio.sleep(pause)
        else:
            watch.turned()


def start_turning(
    turn: Callable[[], None], watch: Watch, stop: threading.Event
) -> threading.Thread:
    """Runs turn after turn in a thread of its own until `stop` is set; arguments as above.

    The thread is a daemon: a process that ends does not wait for it.
    """

    def run() -> None:
        try:
            while not stop.is_set():
                try:
                    turn()
                except Exception as error:
                    pause = watch.stumbled(error)
                    if pause is None:
                        return
                    stop.wait(pause)
                else:
                    watch.turned()
        finally:
            if not stop.is_set():
                watch.end(f"{watch.name}: its thread ended")

    thread = threading.Thread(target=run, name=watch.name, daemon=True)
    thread.start()
    return thread
