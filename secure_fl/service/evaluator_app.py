"""The evaluator as an HTTP application: the mailbox of a federation, and the encrypted rule.

It holds evaluation keys and ciphertexts, and opens none of what passes it.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import fastapi
from fastapi import FastAPI, Request

from fhe.errors import StorageError
from secure_fl.service.evaluator import Evaluator
from secure_fl.service.exchange_routes import add_exchange_routes
from secure_fl.service.gate import Refusal, reply
from secure_fl.service.large_routes import add_large_routes
from secure_fl.service.metrics import CONTENT_TYPE, App, counted
from secure_fl.service.routes import add_client_routes, add_querier_routes
from secure_fl.service.schema import Detail, Health
from secure_fl.service.signing import SCHEME

Found = TypeVar("Found")
_SOON = 2.0
"""Seconds that health and metrics wait for the database."""


def make_app(evaluator: Evaluator, *, grace: float = 30.0) -> App:
    """The application.

    Args:
        evaluator: to serve.
        grace: seconds that a running evaluation gets when the service stops.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await evaluator.evaluations.start()
        yield
        evaluator.stop()
        await evaluator.evaluations.stop(grace)
        await asyncio.to_thread(evaluator.close)

    app = FastAPI(
        title="securefl evaluator",
        version="1",
        description=__doc__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={
            code: {"model": Detail}
            for code in (400, 401, 403, 404, 408, 409, 410, 413, 422, 429, 503)
        },
    )

    @app.exception_handler(Refusal)
    async def refused(request: Request, refusal: Refusal) -> fastapi.Response:
        return evaluator.gate.refuse(request, refusal)

    @app.exception_handler(fastapi.exceptions.RequestValidationError)
    async def invalid(
        request: Request, error: fastapi.exceptions.RequestValidationError
    ) -> fastapi.Response:
        # FastAPI's own answer repeats what was sent.
        where = " ".join(str(part) for part in error.errors()[0]["loc"][:2])
        return evaluator.gate.refuse(request, Refusal(422, "invalid", f"{where}: not valid"))

    @app.exception_handler(sqlite3.OperationalError)
    async def locked(request: Request, _: sqlite3.OperationalError) -> fastapi.Response:
        busy = Refusal(503, "database", "the database is busy", retry_after=5)
        return evaluator.gate.refuse(request, busy)

    @app.exception_handler(StorageError)
    async def full(request: Request, _: StorageError) -> fastapi.Response:
        return evaluator.gate.refuse(request, Refusal(503, "disk", "the disk is full"))

    @app.get("/health", response_model=Health)
    async def health() -> fastapi.Response:
        """Whether the service works and its evaluation process runs."""
        alive, loops = evaluator.evaluations.alive, evaluator.evaluations.loops
        waiting = await soon(evaluator.store.waiting)
        fine = alive and waiting is not None and not evaluator.stopping
        found = Health(
            status="ok" if fine else "unavailable",
            evaluation_process=alive,
            waiting=waiting,
            loops=loops,
        )
        return reply(None, 200 if fine else 503, found.model_dump())

    @app.get("/metrics", response_class=fastapi.responses.PlainTextResponse)
    async def metrics() -> fastapi.Response:
        """Counts and times for Prometheus."""
        evaluator.metrics.set_loops(evaluator.evaluations.loops)
        evaluator.metrics.set_batches(await soon(evaluator.store.states))
        return fastapi.Response(evaluator.metrics.text(), media_type=CONTENT_TYPE)

    add_querier_routes(app, evaluator)
    add_client_routes(app, evaluator)
    add_exchange_routes(app, evaluator)
    add_large_routes(app, evaluator)
    schema = app.openapi()
    schema["components"]["securitySchemes"] = {SCHEME: _SECURITY}
    return counted(app, evaluator.metrics)


async def soon(look: Callable[[], Found]) -> Found | None:
    """What a look into the database finds; None where that takes longer than a probe may wait."""
    try:
        async with asyncio.timeout(_SOON):
            return await asyncio.to_thread(look)
    except (TimeoutError, sqlite3.OperationalError):
        return None


_SECURITY = {
    "type": "apiKey",
    "in": "header",
    "name": "Authorization",
    "description": f"{SCHEME} CLAIMS.SIGNATURE, both in base64; see secure_fl.service.signing.",
}
