"""Who does the tasks of an evaluation: this process, or several.

The library holds Python's lock, so threads would take turns. A worker is a fresh interpreter that
finds keys and contributions in files; a line of JSON tells it a task, and a line comes back after
every step. Nothing is pickled.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import attrs

from fhe.envelope import Payload, read_envelope
from fhe.errors import ContributionError, FormatError, InputError, LibraryError
from fhe.keys import EVALUATION_FILE, EVALUATION_KIND
from fhe.public_key import PUBLIC_FILE, PUBLIC_KIND

from .keys import (
    BatchedEvaluationKeys,
    BatchedPublicKey,
    batched_evaluation_keys,
    batched_public_key,
    save_batched_evaluation_keys,
    save_batched_public_key,
)
from .messages import BatchedContribution
from .tasks import Desk, Task, Tick

_PROGRAM = "from fhe.batched.crew import main; main()"
_ERRORS: dict[str, type[Exception]] = {
    each.__name__: each for each in (ContributionError, FormatError, InputError, LibraryError)
}
_CONTRIBUTIONS = "contributions"


class Crew(Protocol):
    """Does tasks that need nothing of each other."""

    def do(self, tasks: Sequence[Task], tick: Tick) -> None:
        """All of them; tells after every step."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@attrs.frozen
class Alone:
    """This process.

    Attributes:
        desk: where it works.
    """

    desk: Desk

    def do(self, tasks: Sequence[Task], tick: Tick) -> None:
        """See `Crew`."""
        for task in tasks:
            self.desk.do(task, tick)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def lay_out(
    keys: BatchedEvaluationKeys,
    public: BatchedPublicKey,
    contributions: Sequence[BatchedContribution],
    scratch: Path,
) -> None:
    """Puts what workers need into the scratch folder; arguments as `Desk`."""
    save_batched_evaluation_keys(scratch, keys)
    save_batched_public_key(scratch, public)
    listed = [_described(each, scratch) for each in contributions]
    (scratch / _CONTRIBUTIONS).write_text(json.dumps(listed))


class Processes:
    """Worker processes.

    Args:
        count: of them.
        scratch: a folder where everything is laid out.
    """

    def __init__(self, count: int, scratch: Path) -> None:
        self._messages: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self._workers = [self._started(i, scratch) for i in range(count)]

    def _started(self, number: int, scratch: Path) -> "subprocess.Popen[str]":
        worker = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        threading.Thread(target=self._listen, args=(number, worker), daemon=True).start()
        return worker

    def _listen(self, number: int, worker: "subprocess.Popen[str]") -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            self._messages.put((number, json.loads(line)))
        self._messages.put((number, {"ended": True}))

    def do(self, tasks: Sequence[Task], tick: Tick) -> None:
        """See `Crew`.

        Raises:
            LibraryError: a worker died.
        """
        left, idle, busy = list(tasks), list(range(len(self._workers))), 0
        while left or busy:
            while left and idle:
                self._send(idle.pop(), left.pop(0))
                busy += 1
            number, message = self._messages.get()
            if "ended" in message:
                raise LibraryError(
                    "engine bgv: a worker process ended early, perhaps for want of memory; evaluate"
                    " again with fewer processes"
                )
            if "error" in message:
                raise _ERRORS.get(message["error"], LibraryError)(message["text"])
            if "done" in message:
                idle.append(number)
                busy -= 1
            else:
                tick()

    def _send(self, number: int, task: Task) -> None:
        pipe = self._workers[number].stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            # A dead worker is told of by its listener.
            pipe.write(json.dumps(attrs.asdict(task)) + "\n")
            pipe.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def _described(contribution: BatchedContribution, scratch: Path) -> dict[str, Any]:
    """A contribution as JSON types, and where its ciphertexts are; in memory they become a file."""
    content = contribution.content
    if isinstance(content.source, bytes):
        path = scratch / f"content-{contribution.contributor}"
        path.write_bytes(contribution.payload())
        content = Payload(path, 0, content.size)
    facts = attrs.asdict(contribution, recurse=False)
    return {
        **facts,
        "parameters": contribution.parameters.to_json(),
        "content": [str(content.source), content.start, content.size],
    }


def _contribution(facts: dict[str, Any], keys: BatchedEvaluationKeys) -> BatchedContribution:
    path, start, size = facts["content"]
    content = Payload(Path(path), start, size)
    return BatchedContribution(**{**facts, "parameters": keys.parameters, "content": content})


def main() -> None:
    """A worker: does the tasks that come on standard input until it ends."""
    scratch = Path(sys.argv[1])
    speak = os.fdopen(os.dup(1), "w", buffering=1)
    # What a library prints must not be taken for a message.
    os.dup2(2, 1)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_hear, args=(lines,), daemon=True).start()
    desk: Desk | None = None
    while True:
        line = lines.get()
        try:
            desk = desk or _desk(scratch)
            desk.do(Task(**json.loads(line)), lambda: print("{}", file=speak))
        except Exception as error:  # whatever it is, the evaluator must hear of it
            print(json.dumps({"error": type(error).__name__, "text": str(error)}), file=speak)
            continue
        print(json.dumps({"done": True}), file=speak)


def _hear(lines: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    # Nobody waits for what is at work: a task may take minutes and gigabytes.
    os._exit(0)


def _desk(scratch: Path) -> Desk:
    evaluation, public = scratch / EVALUATION_FILE, scratch / PUBLIC_FILE
    keys = batched_evaluation_keys(read_envelope(evaluation, EVALUATION_KIND), evaluation)
    found = batched_public_key(read_envelope(public, PUBLIC_KIND), public)
    listed = json.loads((scratch / _CONTRIBUTIONS).read_text())
    return Desk(keys, found, [_contribution(each, keys) for each in listed], scratch)
