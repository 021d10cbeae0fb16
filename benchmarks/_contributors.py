"""Several contributors of the service in one process, each with its own line, memory and loop.

A machine of a hundred interpreters would run out of memory before it answers anything. What each
contributor does and says is that of `securefl serve contributor`; it is not asked for its health.

    python -m benchmarks._contributors FOLDER URL DEGREE NAME [NAME ...]
"""

import json
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from secure_fl.demo.service_parties import IDENTITY
from secure_fl.heads.manifest import load_manifest
from secure_fl.heads.masked import MaskedPolicy
from secure_fl.service.channel import Channel, Reply
from secure_fl.service.contributor import ContributorPolicy, least_quorum
from secure_fl.service.contributor_app import ContributorService, load_contributor
from secure_fl.service.exchange_store import STEPS

READY, TIMES = b"ready\n", b"times\n"
MANY = 1_000_000
TRIES = 600
_EXCHANGE = re.compile("/batches/(?P<batch>[^/]+)/exchange/(?P<step>[0-9]+)")

Times = dict[str, dict[str, list[float]]]
"""By batch and step: seconds since 1970 at which a message began to leave and its reply was in."""


class TimedChannel(Channel):
    """A line that notes when each message of a sum left, and when the last word on it came."""

    times: Times

    def call(self, method: str, path: str, body: bytes | Path = b"") -> Reply:
        """As the line's."""
        begun = time.time()
        reply = super().call(method, path, body)
        found = _EXCHANGE.match(path)
        if found is not None:
            self.times[found["batch"]].setdefault(found["step"], [begun, 0.0])[1] = time.time()
        return reply


def _started(folder: Path, url: str, name: str, degree: int, times: Times) -> ContributorService:
    """A contributor at work; its terms allow whatever a benchmark asks."""
    own = folder / name
    quorum = least_quorum(load_manifest(own))
    terms = ContributorPolicy(
        quorum=quorum, daily_queries=MANY, near=0.0, repeats=MANY, degree=degree
    )
    places = (own, name, None, own / IDENTITY, own / "state")
    made = load_contributor(*places, terms, MaskedPolicy(exact_heads=True))
    channel = TimedChannel(url, made.member, made.manifest, patience=600.0)
    channel.times = times
    service = ContributorService(made, channel)
    service.start()
    return service


class Hosts:
    """Processes with contributors.

    Args:
        running: they.
    """

    def __init__(self, running: Sequence["subprocess.Popen[bytes]"]) -> None:
        self._running = running

    def times(self, batches: Collection[str]) -> list[Times]:
        """Of every contributor, with all steps of those batches to the last.

        A querier may have its answer before a contributor has heard that its last message came.

        Raises:
            RuntimeError: one was not in a batch to its end.
        """
        for _ in range(TRIES):
            found = [times for process in self._running for times in _asked(process)]
            if all(str(STEPS) in times.get(name, ()) for times in found for name in batches):
                return found
            time.sleep(0.1)
        raise RuntimeError("a contributor was not in a batch to its end")


def _asked(process: "subprocess.Popen[bytes]") -> list[Times]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(TIMES)
    process.stdin.flush()
    return list(json.loads(process.stdout.readline()))


@contextmanager
def hosted(
    folder: Path, url: str, names: Sequence[str], *, processes: int, degree: int
) -> Iterator[Hosts]:
    """Contributors that are stopped when the block ends.

    Args:
        folder: of all parties, as `set_up` made it.
        url: of the evaluator.
        names: of the clients.
        processes: that share them.
        degree: that they mask with at least; 0 for all others.
    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        for part in (names[i::processes] for i in range(min(processes, len(names)))):
            command = [sys.executable, "-m", __name__, str(folder), url, str(degree), *part]
            pipe = subprocess.PIPE
            running.append(subprocess.Popen(command, stdin=pipe, stdout=pipe))
        for process in running:
            if process.stdout is None or process.stdout.readline() != READY:
                raise RuntimeError("contributors do not start; see above")
        yield Hosts(running)
    finally:
        for process in running:
            process.kill()
            process.wait()


def slowest_exchange(times: Sequence[Mapping[str, Any]], batch: str) -> float:
    """Seconds of a batch's longest exchange: from its first message to the last reply to it."""
    of_batch = [each[batch] for each in times]
    spans = []
    for step in of_batch[0]:
        begun, ended = zip(*(each[step] for each in of_batch), strict=True)
        spans.append(max(ended) - min(begun))
    return max(spans)


def main() -> None:
    """Works until its standard input is closed, as it is when its parent ends."""
    folder, url, degree, *names = sys.argv[1:]
    times: list[Times] = [defaultdict(dict) for _ in names]
    # Kept: they work for as long as somebody has them.
    services = [
        _started(Path(folder), url, name, int(degree), own)
        for name, own in zip(names, times, strict=True)
    ]
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(times) + "\n")
        sys.stdout.flush()
    for service in services:
        service.stop()


if __name__ == "__main__":
    main()
