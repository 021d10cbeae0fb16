"""A worker of an evaluator: another machine that answers slices of its batches.

It holds evaluation keys, public keys and ciphertexts, by their digests, and opens none of them. It
answers one slice at a time, and only its evaluator, whose key its owner wrote into the members'
file.
"""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import fastapi
from attrs import define, field
from fastapi import FastAPI, Request

import fhe
from fhe.envelope import MAX_PAYLOAD, read_in_parts
from fhe.errors import LibraryError
from fhe.keys import EVALUATION_FILE, EVALUATION_KIND
from fhe.messages import Contribution
from fhe.public_key import PUBLIC_FILE, PUBLIC_KIND
from secure_fl.service.blobs import Arrival, Blobs
from secure_fl.service.coordinator import TrainingCircle
from secure_fl.service.gate import Caller, Gate, Refusal, reply
from secure_fl.service.holding import Held
from secure_fl.service.limits import Limits, Nonces
from secure_fl.service.members import Member
from secure_fl.service.metrics import Metrics
from secure_fl.service.signing import LIFETIME
from secure_fl.service.slices import EVALUATOR, PATIENCE, Slice, is_digest, release
from secure_fl.service.supervision import Ending

log = logging.getLogger("securefl.service")

KINDS = (EVALUATION_KIND, PUBLIC_KIND, Contribution.KIND)
"""Files that a worker takes, of any engine; none holds a secret."""
_RATE = Limits(rate=500.0, burst=1000, seconds=600.0)


@define
class _Work:
    """A slice that is being answered.

    Attributes:
        key: the bytes that asked for it.
        done: steps, over all levels and rounds of the rule.
        task: gives the answer's bytes.
    """

    key: bytes
    task: "asyncio.Future[bytes]" = field(init=False)
    done: int = 0


class SliceWorker:
    """Files by digest, and the slice at work.

    Args:
        own: the worker's secrets.
        circle: the evaluator and its workers.
        state: folder of files, made where absent, mode 0700; one process's at a time.
        room: bytes of files that are kept; the least lately used go first.

    Attributes:
        ending: as `secure_fl.service.serving.serve` takes it.

    Raises:
        InputError: another process uses the folder.
    """

    def __init__(self, own: Member, circle: TrainingCircle, state: Path, room: int) -> None:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._held = Held(state)
        self._state, self._room = state, room
        self._files = Blobs(state / "files")
        self._files.clean()
        self._nonces = Nonces(state / "nonces.db", 2 * LIFETIME)
        self._gate = Gate({circle.fingerprint: (circle, own)}, _RATE, self._nonces, Metrics())
        self._work: _Work | None = None
        self._keys: tuple[str, fhe.AnyEvaluationKeys, fhe.AnyPublicKey] | None = None
        self.ending = Ending(self.stop)

    def stop(self) -> None:
        """Called when the process is told to end; a slice at work is somebody else's then."""
        if self._work is not None and not self._work.task.done():
            log.warning("a slice is left unfinished; the evaluator gives it to another worker")

    def close(self) -> None:
        """Gives the folder free."""
        self._nonces.close()
        self._held.release()

    def app(self) -> FastAPI:
        """The application."""

        @contextlib.asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            yield
            self.close()

        app = FastAPI(lifespan=lifespan, openapi_url=None)

        @app.exception_handler(Refusal)
        async def refused(request: Request, refusal: Refusal) -> fastapi.Response:
            return self._gate.refuse(request, refusal)

        @app.exception_handler(Exception)
        async def failed(request: Request, error: Exception) -> fastapi.Response:
            # Unsigned it would pass for a worker that is away, and be asked again and again.
            detail = f"{type(error).__name__}: {error!s:.200}"
            return self._gate.refuse(request, Refusal(500, "failed", detail))

        @app.put("/v1/{circle}/files/{digest}")
        async def put(request: Request, circle: str, digest: str) -> fastapi.Response:
            return await self._put(request, circle, digest)

        @app.post("/v1/{circle}/slices")
        async def answer(request: Request, circle: str) -> fastapi.Response:
            return await self._answer(request, circle)

        return app

    async def _put(self, request: Request, circle: str, digest: str) -> fastapi.Response:
        caller = await self._gate.admit(request, circle, {EVALUATOR})
        with self._files.arriving() as arrival:
            await self._gate.body_into(request, caller, MAX_PAYLOAD, arrival)
            # The gate compared the body with the digest that the evaluator signed.
            if not is_digest(digest) or arrival.digest != digest:
                raise Refusal(422, "invalid", "a file's name is the SHA-256 of its content")
            try:
                await asyncio.to_thread(self._keep, arrival)
            except fhe.InputError as error:
                said = str(error).replace(str(arrival.path), "a file of the evaluator")
                raise Refusal(422, "invalid", said) from None
        return reply(caller, 200, {})

    def _keep(self, arrival: Arrival) -> None:
        read_in_parts(arrival.path, KINDS)
        self._make_room(arrival.size)
        arrival.keep()

    def _make_room(self, size: int) -> None:
        found = [each for each in self._files.folder.iterdir() if is_digest(each.name)]
        files = sorted(found, key=lambda each: each.stat().st_mtime)
        total = sum(each.stat().st_size for each in files) + size
        for each in files:
            if total <= self._room:
                return
            total -= each.stat().st_size
            each.unlink()

    def _file(self, digest: str) -> Path:
        return self._files.path(digest)

    async def _answer(self, request: Request, circle: str) -> fastapi.Response:
        caller = await self._gate.admit(request, circle, {EVALUATOR})
        body = await self._gate.body(request, caller, 1 << 20)
        try:
            wanted = Slice.from_bytes(body)
        except (ValueError, TypeError):
            raise Refusal(422, "invalid", "not a slice") from None
        if wanted.release != release():
            raise Refusal(
                426, "version", f"this worker has {release()}, the evaluator {wanted.release}"
            )
        await self._until_free(body)
        if self._busy_with_another(body):
            return reply(caller, 202, {"done": 0})
        work = self._taken_up(caller, wanted, body)
        if work is None:
            absent = [each for each in wanted.files if not self._file(each).exists()]
            return reply(caller, 404, {"absent": absent})
        await asyncio.wait([work.task], timeout=PATIENCE)
        if not work.task.done():
            return reply(caller, 202, {"done": work.done})
        try:
            return reply(caller, 200, work.task.result())
        except Exception as error:
            # Who asks once more has it tried once more.
            self._work = None
            if isinstance(error, fhe.InputError | LibraryError):
                raise Refusal(422, "invalid", str(error)) from None
            raise

    async def _until_free(self, key: bytes) -> None:
        """Waits a while for the end of another slice."""
        if self._work is not None and self._busy_with_another(key):
            await asyncio.wait([self._work.task], timeout=PATIENCE)

    def _busy_with_another(self, key: bytes) -> bool:
        work = self._work
        return work is not None and work.key != key and not work.task.done()

    def _taken_up(self, caller: Caller[TrainingCircle], wanted: Slice, key: bytes) -> _Work | None:
        """The work on a slice, begun if it is not; None where files are absent."""
        if self._work is not None and self._work.key == key:
            return self._work
        if not all(self._file(each).exists() for each in wanted.files):
            return None
        for each in wanted.files:
            os.utime(self._file(each))
        work = _Work(key)
        work.task = asyncio.ensure_future(asyncio.to_thread(self._evaluated, wanted, work))
        self._work = work
        log.info("a slice of %d queries for %s", wanted.last - wanted.first, caller.name)
        return work

    def _evaluated(self, wanted: Slice, work: _Work) -> bytes:
        keys, public = self._key_pair(wanted)
        found = [fhe.load_contribution(self._file(each)) for each in wanted.contributions]

        def progress(_phase: str, done: int, _total: int) -> None:
            # Preparations and the beginnings of rounds are told as well, with nothing done.
            work.done += done > 0

        span = range(wanted.first, wanted.last)
        return fhe.evaluate(found, keys, public, progress=progress, queries=span).to_bytes()

    def _key_pair(self, wanted: Slice) -> tuple[fhe.AnyEvaluationKeys, fhe.AnyPublicKey]:
        """Keys of a querier; those of the last slice stay loaded."""
        name = f"{wanted.evaluation}{wanted.public}"
        if self._keys is None or self._keys[0] != name:
            folder = self._state / "keys"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            os.link(self._file(wanted.evaluation), folder / EVALUATION_FILE)
            os.link(self._file(wanted.public), folder / PUBLIC_FILE)
            self._keys = name, fhe.load_evaluation_keys(folder), fhe.load_public_key(folder)
        return self._keys[1], self._keys[2]
