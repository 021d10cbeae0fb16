"""A contributor as a long-running process: its loop in a thread, health and metrics by HTTP."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import fastapi
from fastapi import FastAPI

import fhe
from secure_fl.errors import InputError
from secure_fl.files import make_folder
from secure_fl.heads.codes import refuse_masked
from secure_fl.heads.head import Head, load_head
from secure_fl.heads.manifest import Manifest, load_manifest
from secure_fl.heads.masked import MaskedPolicy
from secure_fl.service.answers_book import AnswersBook
from secure_fl.service.channel import Channel
from secure_fl.service.contributor import Contributor, ContributorPolicy
from secure_fl.service.contributor_loop import answer_listed
from secure_fl.service.holding import Held
from secure_fl.service.key_folders import key_folders, refuse_shared
from secure_fl.service.members import Member, read_member
from secure_fl.service.metrics import CONTENT_TYPE, Metrics
from secure_fl.service.outbox import Outbox
from secure_fl.service.schema import ContributorHealth
from secure_fl.service.shares import shares_of
from secure_fl.service.supervision import PATIENCE, Ending, Watch, start_turning
from secure_fl.service.watch import DriftWatch


def load_contributor(
    run: Path,
    client: str,
    keys: Path | None,
    identity: Path,
    state: Path,
    terms: ContributorPolicy,
    policy: MaskedPolicy | None = None,
    answers: AnswersBook | None = None,
) -> Contributor:
    """A contributor from its files.

    Args:
        run: folder with federation.json and the client's head.
        client: its name.
        keys: folder with the queriers' public.key (`secure_fl.service.key_folders`); None of the
            rule masked, which has none.
        identity: its secret file.
        state: folder of its memory, made where absent, mode 0700.
        terms: its owner's.
        policy: its owner's of the rule masked; by default heads answer that are releases.
        answers: books of what answers tell, which the rule votes needs.

    Raises:
        InputError, fhe.InputError: a file cannot be used, or they do not belong together.
    """
    manifest = load_manifest(run)
    # Terms that leave a querier with nothing are said now.
    shares_of(terms.daily_queries, terms.repeats, terms.quotas, manifest.queriers)
    member, head = read_member(identity, client, manifest), load_head(run, client, manifest)
    if manifest.summed:
        if keys is not None:
            refuse_masked(manifest)
        (policy or MaskedPolicy()).check(run, manifest, [client])
        if manifest.rule == "votes" and answers is None:
            raise InputError(
                "federation: its rule is votes; its answers need a budget (--answers-epsilon)"
            )
        return _made(member, manifest, head, {}, terms, state, answers)
    if keys is None:
        raise InputError(
            f"federation: its rule is {manifest.rule} (federation.json); name the folder of the"
            " querier's public.key (--keys)"
        )
    folders = key_folders(keys, manifest)
    found = {name: _public_key(own, manifest) for name, own in folders.items()}
    refuse_shared(found, keys)
    return _made(member, manifest, head, found, terms, state)


def _public_key(folder: Path, manifest: Manifest) -> fhe.AnyPublicKey:
    public = fhe.load_public_key(folder)
    if public.parameters.contributors != len(manifest.clients):
        raise InputError(
            f"{folder}: keys for {public.parameters.contributors} contributors, the federation has"
            f" {len(manifest.clients)}; get the new ones"
        )
    return public


def _made(
    member: Member,
    manifest: Manifest,
    head: Head,
    keys: Mapping[str, fhe.AnyPublicKey],
    terms: ContributorPolicy,
    state: Path,
    answers: AnswersBook | None = None,
) -> Contributor:
    make_folder(state, mode=0o700)
    outbox = Outbox(state / "outbox.db")
    metrics = Metrics()
    watch = DriftWatch.of(head, manifest, state, metrics)
    return Contributor(member, manifest, head, keys, terms, outbox, metrics, watch, answers)


class ContributorService:
    """A contributor's loop and whether it is well.

    Args:
        contributor: that answers.
        channel: to the evaluator.
        patience: seconds that the loop may fail before the process ends.

    Attributes:
        contributor: as given.
        ending: ends the process where the loop cannot go on.

    Raises:
        InputError: another process works on the contributor's memory.
    """

    def __init__(
        self, contributor: Contributor, channel: Channel, *, patience: float = PATIENCE
    ) -> None:
        self.contributor, self._channel = contributor, channel
        self._stop, self._reached = threading.Event(), False
        self._busy = threading.Lock()
        self._held = Held(contributor.outbox.path.parent)
        contributor.outbox.clean()
        self.ending = Ending(self.stop)
        metrics = contributor.metrics
        self._watch = Watch("answers", self.ending, patience=patience, failed=metrics.stumbled)
        self._thread: threading.Thread | None = None

    @property
    def loops(self) -> dict[str, bool]:
        """Whether the loop runs and its last turn did not fail."""
        runs = self._thread is not None and self._thread.is_alive()
        return {self._watch.name: runs and self._watch.alive}

    @property
    def reached(self) -> bool:
        """Whether the evaluator answered the last call and the loop does its work."""
        return self._reached and all(self.loops.values())

    def start(self) -> None:
        """Begins."""
        # At the end it may be waiting for batches, where nothing is lost with it.
        self._thread = start_turning(self._answer, self._watch, self._stop)

    def stop(self) -> None:
        """Ends after the batch at hand; what is not delivered is delivered after the next start."""
        self._stop.set()

    def finish(self) -> None:
        """Waits for the batch at hand."""
        with self._busy:
            self.contributor.outbox.close()
            self._held.release()

    def _answer(self) -> None:
        def told(reached: bool) -> None:
            self._reached = reached

        # Whether the evaluator is there is known when it answers: the first call must not wait.
        answer_listed(
            self.contributor,
            self._channel,
            self._stop,
            self._busy,
            told,
            at_once=not self._reached,
        )


def make_contributor_app(service: ContributorService) -> FastAPI:
    """The application; it takes no query, those come by the evaluator."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()
        await asyncio.to_thread(service.finish)

    app = FastAPI(
        title="securefl contributor",
        version="1",
        description=__doc__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )

    @app.get("/health", responses={503: {"model": ContributorHealth}})
    async def health(response: fastapi.Response) -> ContributorHealth:
        """Whether the loop runs and the evaluator answers it."""
        fine = service.reached
        response.status_code = 200 if fine else 503
        return ContributorHealth(
            status="ok" if fine else "unavailable", evaluator=fine, loops=service.loops
        )

    @app.get("/metrics", response_class=fastapi.responses.PlainTextResponse)
    async def metrics() -> fastapi.Response:
        """Counts for Prometheus."""
        service.contributor.metrics.set_loops(service.loops)
        return fastapi.Response(service.contributor.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/watch", response_class=fastapi.responses.HTMLResponse)
    async def watch() -> fastapi.responses.HTMLResponse:
        """Whether the queries drift, and who asked how many, for the client's owner."""
        if service.contributor.watch is None:
            raise fastapi.HTTPException(404, "a head of one machine cannot say what is usual")
        asked = await asyncio.to_thread(service.contributor.asked, time.time())
        return fastapi.responses.HTMLResponse(service.contributor.watch.page(asked))

    return app
