"""A batch in slices: who has which one, who is away, and who is asked no more.

Progress is counted by the evaluator's own measure, so that no worker can go on for ever by telling
of it: a file that it took, or a step more of those that the slice has. A worker that makes none
within the limit, refuses, or sends what is no answer, is dropped from the batch and named; what it
had at work is given to another one. One that does make progress keeps its slice; where it takes
longer than the limit, a worker that has nothing else to do begins the slice as well, and the first
answer counts. Where nobody else is left, one that is slow and one that is slow on purpose look the
same, so that the batch as a whole has a limit too.
"""

import hashlib
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import define

import fhe
from fhe.evaluator import Progress
from fhe.keys import EVALUATION_FILE
from fhe.messages import Answer
from fhe.public_key import PUBLIC_FILE
from fhe.slicing import check_part, most_steps, needed
from secure_fl.errors import AwayError, InputError, ServiceError, WorkError
from secure_fl.files import digest_of
from secure_fl.service.slices import Slice, release

RETRY = 1.0
"""Seconds between two calls of a worker that is away."""
FALLS = 3
"""Times that a worker may go away within a slice with no answer between: the slice may be why."""
_TELL = 900
"""Characters of what is said of all workers together; an error has 1,000."""

Source = Callable[[], bytes | Path]
"""Content of a file, made when it is wanted, or where a large one lies."""
Sources = Mapping[str, Source]
"""Files by their SHA-256."""
Tick = Callable[[int | None], None]
"""Told of steps that a worker says it has done, or, None, that it took a file."""
Dropped = Callable[[str, str], None]
"""Told of a worker that is asked no more, and why."""


class Worker(Protocol):
    """Whoever answers slices."""

    @property
    def name(self) -> str:
        """Of the worker."""

    @property
    def line(self) -> threading.Lock:
        """Held by the thread that waits for it; one that was given up may take its time to end."""

    def answer(self, wanted: Slice, sources: Sources, tick: Tick, /) -> bytes:
        """The answer to a slice."""


@define(eq=False)
class _Attempt:
    """A slice that a worker has.

    Attributes:
        worker: that has it.
        number: of the slice.
        most: steps that it has.
        begun: when.
        since: of the last progress.
        done: steps that the worker told of.
        heard: whether the worker said anything.
    """

    worker: Worker
    number: int
    most: int
    begun: float
    since: float
    done: int = 0
    heard: bool = False


class Job:
    """A batch in slices; every worker's thread takes one after the other.

    Args:
        workers: at least one.
        contributions: to the batch.
        keys: folder with `evaluation.key` and `public.key`.
        spans: queries of the slices.
        progress: told of queries.
        dropped: see `Dropped`.
        patience: seconds without any worker before the batch is given up.
        limit: seconds without progress that a worker may have a slice.
        longest: seconds that the batch may take in all.
        clock: seconds.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        contributions: Sequence[Any],
        keys: Path,
        spans: list[range],
        *,
        progress: Progress,
        dropped: Dropped,
        patience: float,
        limit: float,
        longest: float,
        clock: Callable[[], float],
    ) -> None:
        self._workers, self._contributions, self._spans = workers, contributions, spans
        self._progress, self._dropped = progress, dropped
        self._patience, self._limit, self._clock = patience, limit, clock
        self._longest, self._end = longest, clock() + longest
        key_files = (keys / EVALUATION_FILE, keys / PUBLIC_FILE)
        self._keys = {digest_of(path): _lying(path) for path in key_files}
        self._digests = tuple(self._keys)
        self._left = list(reversed(range(len(spans))))
        self._found: dict[int, Any] = {}
        self._under_way: dict[int, list[_Attempt]] = {}
        self._away: dict[str, tuple[float, str]] = {}
        """Of workers that are away: since when, and what was found."""
        self._falls: dict[str, int] = {}
        self._lost: dict[str, str] = {}
        """Of workers that are asked no more: why."""
        self._news = threading.Condition()
        self._error: Exception | None = None
        self._whole: dict[str, Source] | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="securefl-")
        progress("slices", 0, contributions[0].queries)

    @property
    def parts(self) -> list[Any]:
        """All answers, in order."""
        return [self._found[i] for i in range(len(self._spans))]

    def run(self) -> None:
        """Until all slices are answered.

        Raises:
            ServiceError: no worker is left, or the time is over; says what each did.
            InputError: a file of this side cannot be read.
        """
        for each in self._workers:
            threading.Thread(target=self._serve, args=(each,), daemon=True).start()
        with self._scratch, self._news:
            while self._error is None and len(self._found) < len(self._spans):
                self._news.wait(0.5)
                self._drop_stalled()
            if self._error is not None:
                raise self._error

    def _serve(self, worker: Worker) -> None:
        """Has slices answered by one worker until there are none, or it is asked no more."""
        while (attempt := self._take(worker)) is not None:
            try:
                wanted, sources = self._asked(attempt)
            except Exception as error:  # this side's own; who waits must hear of it
                self._fail(error)
                return
            try:
                answer = self._answered(attempt, wanted, sources)
            except AwayError as error:
                self._give_back(attempt, error)
                time.sleep(RETRY)
            except Exception as error:  # whatever its bytes raise costs nobody else anything
                typed = isinstance(error, InputError | WorkError | fhe.InputError)
                text = str(error) if typed else f"{type(error).__name__}: {error}"
                with self._news:
                    self._drop(attempt, text)
            else:
                self._keep(attempt, answer)

    def _asked(self, attempt: _Attempt) -> tuple[Slice, Sources]:
        messages, within = needed(self._contributions, self._spans[attempt.number])
        sources = self._sources(messages)
        wanted = Slice(
            release=release(),
            evaluation=self._digests[0],
            public=self._digests[1],
            contributions=tuple(sources),
            first=within.start,
            last=within.stop,
        )
        return wanted, {n: self._own(read) for n, read in {**self._keys, **sources}.items()}

    def _own(self, read: Source) -> Source:
        """The same; where a file of this side cannot be read, no worker is at fault."""

        def reading() -> bytes | Path:
            try:
                return read()
            except Exception as error:  # raised again; without this the worker would be blamed
                self._fail(error)
                raise

        return reading

    def _answered(self, attempt: _Attempt, wanted: Slice, sources: Sources) -> Any:
        worker, first = attempt.worker, self._contributions[0]
        if not worker.line.acquire(blocking=False):
            raise AwayError("still waited for by a batch that gave it up")
        try:
            content = worker.answer(wanted, sources, lambda done: self._tick(attempt, done))
        finally:
            worker.line.release()
        kind = fhe.BatchedAnswer if isinstance(first, fhe.BatchedContribution) else Answer
        found = kind.from_bytes(content, source="its answer")
        check_part(found, first, len(self._spans[attempt.number]))
        return found

    def _tick(self, attempt: _Attempt, done: int | None) -> None:
        with self._news:
            if self._has(attempt):
                self._away.pop(attempt.worker.name, None)
                attempt.heard = True
                if done is None or attempt.done < done <= attempt.most:
                    attempt.since, attempt.done = self._clock(), done or attempt.done
                    self._tell()
                self._drop_stalled()
            if self._error is not None:
                # Its worker is free for another batch, and nobody waits for what it makes.
                raise ServiceError("its batch was given up")
            if not self._has(attempt):
                raise ServiceError("its slice was given to another worker")

    def _sources(self, messages: Sequence[Any]) -> dict[str, Source]:
        """Contributions by digest; what is the same for every slice is hashed once."""
        whole = messages[0] is self._contributions[0]
        if whole and self._whole is not None:
            return self._whole
        made = dict(map(self._source, messages))
        if whole:
            self._whole = made
        return made

    def _source(self, message: Any) -> tuple[str, Source]:
        if not isinstance(message, fhe.BatchedContribution):
            return hashlib.sha256(message.to_bytes()).hexdigest(), message.to_bytes
        path = message.file()
        if path is None:
            # A part of one, or made here: a hundred megabytes that need not be in memory.
            path = Path(self._scratch.name) / secrets.token_hex(8)
            message.save(path)
        return digest_of(path), _lying(path)

    def _take(self, worker: Worker) -> _Attempt | None:
        with self._news:
            while True:
                self._drop_stalled()
                ended = self._error is not None or len(self._found) == len(self._spans)
                if ended or worker.name in self._lost:
                    return None
                number = self._left.pop() if self._left else self._late()
                if number is not None:
                    break
                self._news.wait(0.5)
            now, queries = self._clock(), len(self._spans[number])
            most = most_steps(self._contributions[0].parameters, queries)
            attempt = _Attempt(worker, number, most, now, now)
            self._under_way.setdefault(number, []).append(attempt)
            return attempt

    def _late(self) -> int | None:
        """A slice that all who have it have had for longer than the limit."""
        late = self._clock() - self._limit
        found = (i for i, each in self._under_way.items() if all(a.begun <= late for a in each))
        return next(found, None)

    def _has(self, attempt: _Attempt) -> bool:
        return attempt in self._under_way.get(attempt.number, ())

    def _give_back(self, attempt: _Attempt, error: AwayError) -> None:
        with self._news:
            if not self._has(attempt):
                return
            name = attempt.worker.name
            self._falls[name] = self._falls.get(name, 0) + attempt.heard
            if self._falls[name] >= FALLS:
                self._drop(attempt, f"went away within a slice {FALLS} times; {error}")
                return
            since, _ = self._away.get(name, (self._clock(), ""))
            self._away[name] = since, str(error)
            self._free(attempt)

    def _drop(self, attempt: _Attempt, why: str) -> None:
        """Asks its worker no more, unless this side failed or the slice was taken from it."""
        if not self._has(attempt) or self._error is not None:
            return
        name = attempt.worker.name
        # Its words may be in it, and must not pass for somebody else's lines.
        self._lost[name] = str(ServiceError(why)).removeprefix(f'worker "{name}": ')
        self._free(attempt)
        self._dropped(name, self._lost[name])

    def _drop_stalled(self) -> None:
        if self._clock() >= self._end and len(self._found) < len(self._spans):
            self._give_up()
        for attempt in [a for each in self._under_way.values() for a in each]:
            if self._clock() - attempt.since >= self._limit:
                span = self._spans[attempt.number]
                where = f"queries {span.start} to {span.stop - 1}"
                self._drop(attempt, f"no progress for {self._limit:.0f} s with {where}")

    def _give_up(self) -> None:
        """Ends a batch that took too long, and says who had it."""
        wrong = dict(self._lost)
        for number, each in self._under_way.items():
            span = self._spans[number]
            for attempt in each:
                wrong[attempt.worker.name] = (
                    f"{attempt.done} of {attempt.most} steps of queries {span.start} to"
                    f" {span.stop - 1} in {(self._clock() - attempt.begun) / 3600:.1f} h"
                )
        self._fail(
            ServiceError(f"not answered within {self._longest / 3600:g} h: {self._told(wrong)}")
        )

    def _told(self, wrong: Mapping[str, str]) -> str:
        """What each worker did, however much it said itself."""
        room = max(40, _TELL // len(self._workers) - 20)
        names = (each.name for each in self._workers)
        return "; ".join(f'"{n}": {wrong[n]:.{room}}' for n in names if n in wrong)

    def _free(self, attempt: _Attempt) -> None:
        """For another worker, if there may be one."""
        self._under_way[attempt.number].remove(attempt)
        if not self._under_way[attempt.number]:
            del self._under_way[attempt.number]
            self._left.append(attempt.number)
        now, wrong = self._clock(), dict(self._lost)
        for name, (since, why) in self._away.items():
            if name not in wrong and now - since >= self._patience:
                wrong[name] = f"away; {why}"
        names = [each.name for each in self._workers]
        if all(name in wrong for name in names):
            self._error = self._error or ServiceError(f"no worker is left: {self._told(wrong)}")
        self._news.notify_all()

    def _keep(self, attempt: _Attempt, answer: Any) -> None:
        with self._news:
            if not self._has(attempt):
                return
            del self._under_way[attempt.number]
            self._found[attempt.number] = answer
            self._away.pop(attempt.worker.name, None)
            self._falls.pop(attempt.worker.name, None)
            self._tell()
            self._news.notify_all()

    def _tell(self) -> None:
        done = float(sum(len(self._spans[i]) for i in self._found))
        for number, each in self._under_way.items():
            done += len(self._spans[number]) * max(a.done / a.most for a in each)
        try:
            self._progress("slices", int(done), self._contributions[0].queries)
        except Exception as error:  # this side's own; who waits must hear of it
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        with self._news:
            self._error = self._error or error
            self._news.notify_all()


def _lying(path: Path) -> Source:
    """A file that is sent from where it lies; one that is gone shows before it is sent."""

    def there() -> Path:
        path.open("rb").close()
        return path

    return there
