"""Messages of a training server to its clients: each waits until it is fetched, and answered.

A client fetches by asking for its next message, and hands in its answer to the last one with the
same request. Whatever is lost on the way, it asks again: a message that has no answer is handed out
again, and an answer that is there already is passed over. So each is delivered at least once, and
done once, because nodes know their messages again (`secure_fl.flower.node.Node`).
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from secure_fl.service.supervision import Attention

PRESENT = 60.0
"""Seconds after its last request for which a client counts as there."""
_LOOK = 0.2
"""Seconds between two looks at the clock while answers are awaited."""


@frozen(eq=False)
class Letter:
    """A message that waits for its answer.

    Attributes:
        number: its name, drawn for it alone.
        request: its bytes.
        answer: of the client, when it is there.
    """

    request: bytes
    number: str = field(factory=lambda: secrets.token_hex(16))
    answer: "asyncio.Future[bytes]" = field(
        factory=lambda: asyncio.get_running_loop().create_future()
    )


class Mailbox:
    """One message at a time for every client; all within one event loop.

    Args:
        names: of all clients.
        wait: seconds that the first messages wait for all of them to be there.
    """

    def __init__(self, names: Sequence[str], wait: float) -> None:
        self._wait = wait
        self._letters: dict[str, Letter] = {}
        self._news = {name: asyncio.Event() for name in names}
        self._seen: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._arrived = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether there will be no messages any more."""
        return self._ended.is_set()

    async def end(self) -> None:
        """Lets all go that wait for a message."""
        self._ended.set()
        for each in self._news.values():
            each.set()

    async def until_the_end(self, patience: float) -> None:
        """Waits as a client does for which there is no message."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._ended.wait()

    async def exchange(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        """See `secure_fl.flower.transport.Transport`; clients that are not there are not asked."""
        await self._gather()
        now = time.monotonic()
        for name, request in requests.items():
            if self._there(name, now):
                self._letters[name] = Letter(request)
                self._news[name].set()
        letters = dict(self._letters)
        await _settled({each.answer for each in letters.values()}, seconds)
        self._letters.clear()
        found = {n: e.answer.result() for n, e in letters.items() if e.answer.done()}
        for each in letters.values():
            # Answers that come from now on are late.
            each.answer.cancel()
        return found

    async def fetch(
        self, name: str, last: str, answer: bytes, patience: float
    ) -> tuple[str, bytes] | None:
        """The next message of a client, with its number; None where none came.

        Args:
            name: of the client.
            last: number of the message that is answered, or "".
            answer: to it.
            patience: seconds to wait.
        """
        self._seen[name] = time.monotonic()
        self._waiting.add(name)
        self._arrived.set()
        open_letter = self._letters.get(name)
        if open_letter is not None and last == open_letter.number and not open_letter.answer.done():
            open_letter.answer.set_result(answer)
        try:
            async with asyncio.timeout(patience):
                while (letter := self._letters.get(name)) is None or letter.answer.done():
                    if self.ended:
                        return None
                    self._news[name].clear()
                    await self._news[name].wait()
        except TimeoutError:
            return None
        finally:
            self._waiting.discard(name)
            self._seen[name] = time.monotonic()
        return letter.number, letter.request

    def _there(self, name: str, now: float) -> bool:
        # Of who waits a server that stood still heard nothing either, and need not.
        return name in self._waiting or now - self._seen.get(name, -PRESENT) < PRESENT

    async def _gather(self) -> None:
        """Before the first messages: until all clients are there, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait):
                while len(self._seen) < len(self._news):
                    self._arrived.clear()
                    await self._arrived.wait()
        self._wait = 0.0


async def _settled(answers: "set[asyncio.Future[bytes]]", seconds: float) -> None:
    """Waits for answers, some seconds at most in which they could come."""
    attention, end = Attention(_LOOK), time.monotonic() + seconds
    attention.looked(time.monotonic())
    while answers and (left := end - time.monotonic()) > 0:
        _, answers = await asyncio.wait(answers, timeout=min(left, _LOOK))
        now = time.monotonic()
        end += attention.missed(now)
        attention.looked(now)
