"""An evaluator's workers: slices of a batch answered by other machines, and one answer of theirs.

Every worker is asked by a thread of its own, for one slice at a time. What a worker that goes away
had at work is given to another one; nothing else is lost. Workers learn what an evaluator learns,
and no more: evaluation keys, public keys and ciphertexts.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

import fhe
from fhe.evaluator import Progress
from fhe.keys import EVALUATION_FILE
from fhe.messages import Answer
from fhe.public_key import PUBLIC_FILE
from fhe.slicing import check_part, join_answers, needed, spans_of
from secure_fl.errors import AwayError, FormatError, InputError, ServiceError
from secure_fl.files import digest_of
from secure_fl.service.channel import Channel
from secure_fl.service.coordinator import TrainingCircle, read_circle, read_party
from secure_fl.service.members import Member
from secure_fl.service.slices import EVALUATOR, Slice, as_json, release

RETRY = 1.0
"""Seconds between two calls of a worker that is away."""
PATIENCE = 60.0
"""Seconds without any worker before a batch is given up."""
SLICES = 4
"""Slices a worker of a batch, so that the last of them leaves nobody idle for long."""
_UPLOADS = 3
"""Times that a worker may lack files of one slice: it makes room for others meanwhile."""

Sources = Mapping[str, Callable[[], bytes]]
"""Content of files by their SHA-256, made when it is wanted."""


@frozen
class Remote:
    """A worker as its evaluator sees it.

    Attributes:
        name: among the members.
        channel: to it.
    """

    name: str
    channel: Channel

    def answer(self, wanted: Slice, sources: Sources, tick: Callable[[float], None]) -> bytes:
        """The answer to a slice.

        Args:
            wanted: the slice.
            sources: its files.
            tick: told which part of it is done, 0 to 1.

        Raises:
            AwayError: the worker is away.
            ServiceError: it refuses, is of another release, or answers something else.
        """
        body, uploads = wanted.to_bytes(), 0
        while True:
            reply = self.channel.heard("POST", "/slices", body, what=f'worker "{self.name}"')
            if reply.status == 200:
                return reply.content
            told = as_json(reply.content)
            if reply.status == 202:
                tick(_part(told))
                continue
            if reply.status != 404 or uploads == _UPLOADS:
                detail = told.get("detail", f"answered {reply.status}")
                raise ServiceError(f'worker "{self.name}": {detail!s:.300}')
            uploads += 1
            self._upload(told.get("absent"), sources)

    def _upload(self, absent: object, sources: Sources) -> None:
        if not isinstance(absent, list) or not all(each in sources for each in absent):
            raise ServiceError(f'worker "{self.name}": asks for files that are none of the slice')
        for each in absent:
            what = f'worker "{self.name}", a file'
            self.channel.expect("PUT", f"/files/{each}", sources[each](), what=what)


def _part(told: Mapping[str, Any]) -> float:
    done, total = told.get("done"), told.get("total")
    if type(done) is not int or type(total) is not int or not 0 <= done <= total or not total:
        return 0.0
    return done / total


@frozen(kw_only=True)
class Calling:
    """How an evaluator calls its workers.

    Attributes:
        addresses: NAME=URL each; at least one.
        members: file of the evaluator's and all workers' keys.
        identity: the evaluator's secret file.
        authority: PEM file of who signed the workers' certificates; None trusts the system's.
        insecure: allow plain HTTP beyond loopback.
    """

    addresses: tuple[str, ...]
    members: Path
    identity: Path
    authority: Path | None = None
    insecure: bool = False

    def workers(self) -> list[Remote]:
        """The workers, not called yet.

        Raises:
            InputError: a file or an address cannot be used, or a worker is no member.
        """
        circle = read_circle(self.members, EVALUATOR)
        own = read_party(self.identity, EVALUATOR, circle)
        urls: dict[str, str] = {}
        for each in self.addresses:
            name, equals, url = each.partition("=")
            if not equals or name in urls:
                raise InputError(f"--workers {each[:80]!r}: expected NAME=URL, each name once")
            if name not in circle.clients:
                raise InputError(f"--workers {name[:80]!r}: {self.members} has no key of it")
            urls[name] = url
        return [Remote(name, self._channel(name, url, own, circle)) for name, url in urls.items()]

    def _channel(self, name: str, url: str, own: Member, circle: TrainingCircle) -> Channel:
        return Channel(
            *(url, own, circle),
            recipient=name,
            authority=self.authority,
            insecure=self.insecure,
            patience=0.0,
        )

    def to_json(self) -> str:
        """For the process that evaluates; names files, holds no secret."""
        return json.dumps(
            {
                "addresses": self.addresses,
                "members": str(self.members),
                "identity": str(self.identity),
                "authority": None if self.authority is None else str(self.authority),
                "insecure": self.insecure,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Calling":
        """Reads what `to_json` wrote."""
        found = json.loads(text)
        authority = found["authority"]
        return cls(
            addresses=tuple(found["addresses"]),
            members=Path(found["members"]),
            identity=Path(found["identity"]),
            authority=None if authority is None else Path(authority),
            insecure=found["insecure"],
        )


def read_worker_circle(members: Path, identity: Path, name: str) -> tuple[Member, TrainingCircle]:
    """A worker's secrets and its circle.

    Raises:
        InputError: a file cannot be used, or the key is not the one that is listed.
    """
    circle = read_circle(members, EVALUATOR)
    return read_party(identity, name, circle), circle


def evaluate_on(
    workers: Sequence[Remote],
    contributions: Sequence[Any],
    keys: Path,
    *,
    progress: Progress,
    size: int | None = None,
    patience: float = PATIENCE,
) -> fhe.AnyAnswer:
    """Has a batch answered by workers.

    Args:
        workers: at least one.
        contributions: one of every contributor, of any engine.
        keys: folder with `evaluation.key` and `public.key`.
        progress: told of queries.
        size: queries of a slice; by default a quarter of a worker's share, in whole blocks.
        patience: seconds without any worker before the batch is given up.

    Raises:
        ServiceError: no worker is left, or one refuses, for its release or for what it was sent.
        FormatError: a worker's answer is not one to its slice.
    """
    first = contributions[0]
    size = size or slice_size(first.parameters, first.queries, len(workers))
    job = _Job(contributions, keys, spans_of(first.parameters, first.queries, size), progress)
    threads = [
        threading.Thread(target=job.serve, args=(each, patience), daemon=True) for each in workers
    ]
    for each in threads:
        each.start()
    job.wait()
    return join_answers(job.parts, first)


def slice_size(parameters: fhe.AnyParameters, queries: int, workers: int) -> int:
    """Queries of a slice: a part of a worker's share, in whole blocks of compiled functions."""
    share = -(-queries // (SLICES * workers))
    block = parameters.block if isinstance(parameters, fhe.RuleParameters) else parameters.degree
    return -(-share // block) * block


class _Job:
    """A batch in slices; its threads take one after the other."""

    def __init__(
        self, contributions: Sequence[Any], keys: Path, spans: list[range], progress: Progress
    ) -> None:
        self._contributions, self._spans, self._progress = contributions, spans, progress
        key_files = (keys / EVALUATION_FILE, keys / PUBLIC_FILE)
        self._keys = {digest_of(path): path.read_bytes for path in key_files}
        self._digests = tuple(self._keys)
        self._left = list(reversed(range(len(spans))))
        self._found: dict[int, Any] = {}
        self._under_way: dict[int, float] = {}
        self._away: dict[str, float] = {}
        """Of workers that are away since when; each is changed by its own thread alone."""
        self._news = threading.Condition()
        self._error: Exception | None = None
        self._whole: dict[str, Callable[[], bytes]] | None = None
        progress("slices", 0, contributions[0].queries)

    @property
    def parts(self) -> list[Any]:
        """All answers, in order."""
        return [self._found[i] for i in range(len(self._spans))]

    def wait(self) -> None:
        """Until all slices are answered.

        Raises:
            ServiceError, FormatError: as `evaluate_on`.
        """
        with self._news:
            while self._error is None and len(self._found) < len(self._spans):
                self._news.wait(0.5)
            if self._error is not None:
                raise self._error

    def serve(self, worker: Remote, patience: float) -> None:
        """Has slices answered by one worker until there are none, or somebody failed."""
        while (number := self._take()) is not None:
            try:
                answer = self._answered(worker, number)
            except AwayError as error:
                since = self._away.setdefault(worker.name, time.monotonic())
                late = time.monotonic() - since >= patience
                self._give_back(number, error if late else None)
                time.sleep(RETRY)
            except Exception as error:  # whatever it is, who waits must hear of it
                self._fail(error)
                return
            else:
                self._away.pop(worker.name, None)
                self._keep(number, answer)

    def _answered(self, worker: Remote, number: int) -> Any:
        span = self._spans[number]
        messages, within = needed(self._contributions, span)
        sources = self._sources(messages)
        wanted = Slice(
            release=release(),
            evaluation=self._digests[0],
            public=self._digests[1],
            contributions=tuple(sources),
            first=within.start,
            last=within.stop,
        )

        def tick(part: float) -> None:
            self._away.pop(worker.name, None)
            with self._news:
                self._under_way[number] = part * len(span)
                self._tell()

        content = worker.answer(wanted, {**self._keys, **sources}, tick)
        kind = fhe.BatchedAnswer if isinstance(messages[0], fhe.BatchedContribution) else Answer
        found = kind.from_bytes(content, source=f'worker "{worker.name}"')
        try:
            check_part(found, self._contributions[0], len(span))
        except fhe.FormatError as error:
            raise FormatError(f'worker "{worker.name}": {error}') from None
        return found

    def _sources(self, messages: Sequence[Any]) -> dict[str, Callable[[], bytes]]:
        """Contributions by digest; what is the same for every slice is hashed once."""
        whole = messages[0] is self._contributions[0]
        if whole and self._whole is not None:
            return self._whole
        made = {hashlib.sha256(each.to_bytes()).hexdigest(): each.to_bytes for each in messages}
        if whole:
            self._whole = made
        return made

    def _take(self) -> int | None:
        with self._news:
            while not self._left:
                if self._error is not None or len(self._found) == len(self._spans):
                    return None
                self._news.wait(0.5)
            return None if self._error is not None else self._left.pop()

    def _give_back(self, number: int, lost: AwayError | None) -> None:
        with self._news:
            self._left.append(number)
            self._under_way.pop(number, None)
            if lost is not None and not self._busy():
                self._error = self._error or ServiceError(f"no worker is left: {lost}")
            self._news.notify_all()

    def _busy(self) -> bool:
        """Whether a slice is neither answered nor waiting, so that some worker has it."""
        return len(self._left) + len(self._found) < len(self._spans)

    def _keep(self, number: int, answer: Any) -> None:
        with self._news:
            self._found[number] = answer
            self._under_way.pop(number, None)
            self._tell()
            self._news.notify_all()

    def _tell(self) -> None:
        done = sum(len(self._spans[i]) for i in self._found) + sum(self._under_way.values())
        self._progress("slices", int(done), self._contributions[0].queries)

    def _fail(self, error: Exception) -> None:
        with self._news:
            self._error = self._error or error
            self._news.notify_all()
