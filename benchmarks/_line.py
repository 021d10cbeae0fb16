"""A line between two machines, on one: what passes arrives later, and some of it is lost first.

`python -m benchmarks._line FROM TO DELAY LOSS` listens on port FROM of this machine and passes
connections on to port TO. Every segment takes DELAY seconds each way; one is lost with the chance
LOSS and sent again, as TCP does: after a round trip where three later ones tell of the loss, else
after its timer (200 ms and a round trip, doubled every time). What follows a lost segment waits for
it. A connection costs a round trip before its first byte. Bandwidth is not bounded, and a
connection does not start slowly.

It stands where the kernel's own emulator (`tc netem`) cannot be had; what it leaves out makes real
lines slower, by bytes, of which rounds of training have few.
"""

import asyncio
import contextlib
import random
import sys

SEGMENT = 1448
"""Bytes of a segment on Ethernet."""
TIMER = 0.2
"""Seconds that Linux waits at least, beside a round trip, before it sends again."""
TELLING = 3
"""Later segments that tell the sender of a loss."""


def lateness(segments: int, delay: float, loss: float, rng: random.Random) -> float:
    """Seconds by which a train of segments arrives later than its delay, for those lost in it."""
    late = 0.0
    for place in range(segments):
        timer, wait = TIMER + 2 * delay, 0.0
        told = segments - place > TELLING
        while rng.random() < loss:
            wait += 2 * delay if told else timer
            timer *= 1 if told else 2
            told = False
        late = max(late, wait)
    return late


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float, loss: float
) -> None:
    rng, loop = random.Random(), asyncio.get_running_loop()
    coming: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            when, content = await coming.get()
            await asyncio.sleep(max(0.0, when - loop.time()))
            if not content:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            writer.write(content)
            await writer.drain()

    there = asyncio.create_task(deliver())
    last, content = 0.0, b"?"
    while content:
        content = await reader.read(64 * SEGMENT)
        segments = max(1, -(-len(content) // SEGMENT))
        arrives = loop.time() + delay + lateness(segments, delay, loss, rng)
        # Bytes are delivered in order: none overtakes one that was lost.
        last = max(last, arrives)
        coming.put_nowait((last, content))
    await there


async def _serve(listens: int, calls: int, delay: float, loss: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * delay + lateness(1, delay, loss, random.Random()))
        with contextlib.suppress(OSError):
            far, to_far = await asyncio.open_connection("127.0.0.1", calls)
            await asyncio.gather(
                _carry(reader, to_far, delay, loss),
                _carry(far, writer, delay, loss),
                return_exceptions=True,
            )
            to_far.close()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", listens)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
