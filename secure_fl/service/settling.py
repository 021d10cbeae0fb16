"""Which keys a batch's sum uses: those of an earlier batch where everybody asked still has them.

Contributors hold set-ups in memory alone and name them whenever they ask for a sum. A batch goes on
with a set-up if all that it asks are there and hold it; else it makes a new one, so a contributor
that was started again is in the next answer as any other. The evaluator that chooses wrongly has a
sum that does not open, and nothing else.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from attrs import define
from fastapi import Request

from secure_fl.service.batch import Batch
from secure_fl.service.gate import Caller
from secure_fl.service.masked_offer import Offer
from secure_fl.service.registry import Federation
from secure_fl.service.setup_store import SetUpStore
from secure_fl.service.store import Store

PATIENCE = 2.0
"""Seconds that a contributor may be silent before a batch does without its set-up: longer than it
takes from the end of one sum to its next call."""
LONGEST = 3 * PATIENCE
"""Seconds that a batch waits for its contributors to be there together; then it makes keys. One
that asks without waiting, again and again, is never seen beside the others."""


@define(eq=False)
class _Call:
    """A contributor's call for a sum, which waits."""

    request: Request
    holds: frozenset[str]


class Settling:
    """Settles the keys of batches, in the event loop.

    Args:
        store: of the batches.
        setups: of the same database.
        tell: called when something is settled, or may be now.
    """

    def __init__(self, store: Store, setups: SetUpStore, tell: Callable[[], None]) -> None:
        self._store, self._setups, self._tell = store, setups, tell
        self._calls: dict[str, _Call] = {}
        self._heard: dict[str, float] = {}
        self._since: dict[int, float] = {}
        # One after the other: of ten that wake at once, the first settles and nine find it done.
        self._lock = asyncio.Lock()

    def heard(self, caller: Caller[Federation]) -> None:
        """A contributor is there, busy with another batch."""
        self._heard[caller.sender] = time.monotonic()

    @contextmanager
    def calling(
        self, caller: Caller[Federation], request: Request, holds: frozenset[str]
    ) -> Iterator[None]:
        """While a contributor waits for a sum, with the set-ups that it holds."""
        call = self._calls[caller.sender] = _Call(request, holds)
        try:
            yield
        finally:
            # Another call of it may have come since, after a line that broke.
            if self._calls.get(caller.sender) is call:
                del self._calls[caller.sender]
            self.heard(caller)

    async def offer(self, caller: Caller[Federation]) -> Offer | None:
        """The oldest sum that waits for a contributor and whose keys are settled."""
        federation = caller.federation.manifest.fingerprint
        look = partial(asyncio.to_thread, self._setups.asked, federation, caller.name)
        async with self._lock:
            unsettled, offer = await look()
            settled = [number for number in unsettled if await self._settled(number)]
            return (await look())[1] if settled else offer

    async def begun(self, batch: Batch) -> None:
        """A contributor begins with new keys: the batch makes a set-up, if none is settled."""
        async with self._lock:
            await asyncio.to_thread(self._setups.settle, batch, None)

    async def _settled(self, number: int) -> bool:
        """Whether a batch's keys are settled, now if they can be."""
        batch = await asyncio.to_thread(self._store.by_number, number)
        if batch is None or batch.setup:
            return True
        name = await asyncio.to_thread(self._setups.fitting, batch)
        if name is not None:
            fits = await self._fits(batch, name)
            if fits is None:
                return False
            if not fits:
                await asyncio.to_thread(self._setups.retire, batch.federation, name)
                name = None
        await asyncio.to_thread(self._setups.settle, batch, name)
        self._since.pop(number, None)
        self._tell()
        return True

    async def _fits(self, batch: Batch, name: str) -> bool | None:
        """Whether all that a batch asks hold a set-up; None while somebody is awaited."""
        now = time.monotonic()
        if batch.id not in self._since:
            self._since[batch.id] = now
            for seconds in (PATIENCE, LONGEST):
                asyncio.get_running_loop().call_later(seconds, self._tell)
        if now - self._since[batch.id] >= LONGEST:
            return False
        awaited = False
        for client in batch.clients:
            sender = f"{batch.federation} {client}"
            call = self._calls.get(sender)
            if call is not None and not await call.request.is_disconnected():
                if name not in call.holds:
                    return False
                continue
            last = max(self._since[batch.id], self._heard.get(sender, 0.0))
            if now - last >= PATIENCE:
                return False
            awaited = True
        return None if awaited else True
