"""An evaluator's workers: slices of a batch answered by other machines, and one answer of theirs.

Every worker is asked by a thread of its own, for one slice at a time. What one had at work that
goes away, makes no progress or misbehaves is given to another one; nothing else is lost
(`slice_job`). Workers learn what an evaluator learns, and no more: evaluation keys, public keys and
ciphertexts.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

import fhe
from fhe.evaluator import Progress
from fhe.slicing import join_answers, spans_of
from secure_fl.errors import InputError, ServiceError
from secure_fl.service.channel import Channel
from secure_fl.service.coordinator import TrainingCircle, read_circle, read_party
from secure_fl.service.members import Member
from secure_fl.service.slice_job import Dropped, Job, Sources, Tick
from secure_fl.service.slices import EVALUATOR, Slice

PATIENCE = 60.0
"""Seconds without any worker before a batch is given up."""
LIMIT = 600.0
"""Seconds without progress that a worker may have a slice: more than its longest step takes, which
is to compile a circuit, and more than a file or an answer needs on its way."""
LONGEST = 86400.0
"""Seconds of a batch in all. No honest batch comes near: a decision takes seconds."""
PAUSE = 1.0
"""Seconds between two requests for the answer to a slice, however soon a worker replies."""
SLICES = 4
"""Slices a worker of a batch, so that the last of them leaves nobody idle for long."""
_UPLOADS = 3
"""Times that a worker may lack files of one slice: it makes room for others meanwhile."""


@frozen
class Remote:
    """A worker as its evaluator sees it.

    Attributes:
        name: among the members.
        channel: to it.
        line: held by the thread that asks it.
    """

    name: str
    channel: Channel
    line: threading.Lock = field(factory=threading.Lock, init=False, eq=False, repr=False)

    def answer(self, wanted: Slice, sources: Sources, tick: Tick) -> bytes:
        """The answer to a slice.

        Args:
            wanted: the slice.
            sources: its files.
            tick: told of steps that are done, and of files that were taken; ends this by an error.

        Raises:
            AwayError: the worker is away.
            ServiceError: it refuses, is of another release, or answers something else.
        """
        body, uploads = wanted.to_bytes(), 0
        while True:
            asked = time.monotonic()
            reply = self.channel.heard("POST", "/slices", body, what=f'worker "{self.name}"')
            if reply.status == 200:
                return reply.content
            told = reply.told
            if reply.status == 202:
                tick(_steps(told))
                time.sleep(max(0.0, asked + PAUSE - time.monotonic()))
                continue
            if reply.status != 404 or uploads == _UPLOADS:
                detail = told.get("detail", f"answered {reply.status}")
                raise ServiceError(f'worker "{self.name}": {detail!s:.300}')
            uploads += 1
            self._upload(told.get("absent"), sources, tick)

    def _upload(self, absent: object, sources: Sources, tick: Tick) -> None:
        listed = [e for e in absent if isinstance(e, str)] if isinstance(absent, list) else []
        if listed != absent or len(set(listed)) != len(listed) or not set(listed) <= set(sources):
            raise ServiceError(f'worker "{self.name}": asks for files that are none of the slice')
        for each in listed:
            what = f'worker "{self.name}", a file'
            self.channel.expect("PUT", f"/files/{each}", sources[each](), what=what)
            tick(None)


def _steps(told: Mapping[str, Any]) -> int:
    done = told.get("done")
    return done if type(done) is int else 0


@frozen(kw_only=True)
class Calling:
    """How an evaluator calls its workers.

    Attributes:
        addresses: NAME=URL each; at least one.
        members: file of the evaluator's and all workers' keys.
        identity: the evaluator's secret file.
        authority: PEM file of who signed the workers' certificates; None trusts the system's.
        insecure: allow plain HTTP beyond loopback.
        longest: seconds that a batch may take in all.
    """

    addresses: tuple[str, ...]
    members: Path
    identity: Path
    authority: Path | None = None
    insecure: bool = False
    longest: float = LONGEST

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
                "longest": self.longest,
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
            longest=found["longest"],
        )


def read_worker_circle(members: Path, identity: Path, name: str) -> tuple[Member, TrainingCircle]:
    """A worker's secrets and its circle.

    Raises:
        InputError: a file cannot be used, or the key is not the one that is listed.
    """
    circle = read_circle(members, EVALUATOR)
    return read_party(identity, name, circle), circle


def unheard(name: str, why: str) -> None:
    """Tells nobody of a worker that was dropped."""


def evaluate_on(
    workers: Sequence[Remote],
    contributions: Sequence[Any],
    keys: Path,
    *,
    progress: Progress,
    size: int | None = None,
    dropped: Dropped = unheard,
    patience: float = PATIENCE,
    limit: float = LIMIT,
    longest: float = LONGEST,
    clock: Callable[[], float] = time.monotonic,
) -> fhe.AnyAnswer:
    """Has a batch answered by workers.

    Args:
        workers: at least one.
        contributions: one of every contributor, of any engine.
        keys: folder with `evaluation.key` and `public.key`.
        progress: told of queries.
        size: queries of a slice; by default a quarter of a worker's share, in whole blocks.
        dropped: told of every worker that is asked no more, and why: it made no progress, refused,
            or sent what is no answer to its slice. Another one gets the slice.
        patience: seconds without any worker before the batch is given up.
        limit: seconds without progress that a worker may have a slice.
        longest: seconds that the batch may take in all.
        clock: seconds.

    Raises:
        ServiceError: no worker is left, or the time is over; says what each of them did.
    """
    first = contributions[0]
    size = size or slice_size(first.parameters, first.queries, len(workers))
    job = Job(
        workers,
        contributions,
        keys,
        spans_of(first.parameters, first.queries, size),
        progress=progress,
        dropped=dropped,
        patience=patience,
        limit=limit,
        longest=longest,
        clock=clock,
    )
    job.run()
    return join_answers(job.parts, first)


def slice_size(parameters: fhe.AnyParameters, queries: int, workers: int) -> int:
    """Queries of a slice: a part of a worker's share, in whole blocks of compiled functions."""
    share = -(-queries // (SLICES * workers))
    block = parameters.block if isinstance(parameters, fhe.RuleParameters) else parameters.degree
    return -(-share // block) * block
