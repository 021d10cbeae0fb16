"""The evaluator's routes, for queriers, each for its own batches, and for the clients."""

import asyncio
import base64
import hashlib
from typing import Annotated, Any

import fastapi
from fastapi import FastAPI, Query, Request

from secure_fl.errors import InputError
from secure_fl.service.arrivals import accept_contribution, open_batch
from secure_fl.service.batch import Batch
from secure_fl.service.declining import MOST_BYTES
from secure_fl.service.evaluator import Evaluator
from secure_fl.service.gate import Refusal, reply
from secure_fl.service.large_routes import large_query
from secure_fl.service.schema import Asked, Detail, Opening, Status
from secure_fl.service.shapes import BINARY, SIGNED, BatchName, FederationName

LONGEST_WAIT = 25.0
"""Seconds that a request may wait for news; below what proxies take for a dead connection."""

Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for news.")]


def add_querier_routes(app: FastAPI, evaluator: Evaluator) -> None:
    """Adds what a querier may call, of its own batches."""
    path = "/v1/{federation}/batches/{batch}"
    opening = {"content": {"application/json": {"schema": Opening.model_json_schema()}}}

    @app.put(
        path,
        response_model=Status,
        status_code=201,
        responses={200: {"model": Status}},
        openapi_extra={**SIGNED, "requestBody": {**opening, "required": True}},
    )
    async def open_(
        request: Request, federation: FederationName, batch: BatchName
    ) -> fastapi.Response:
        """The querier opens a batch with a sealed query for every client."""
        caller = await evaluator.gate.admit(request, federation, ["querier"])
        most = caller.federation.most_queries(caller.name, evaluator.limits.queries)
        limit = caller.federation.opening_bytes(caller.name, most)
        content = await evaluator.gate.body(request, caller, limit)
        digest = hashlib.sha256(content).hexdigest()
        status = await asyncio.to_thread(
            open_batch, evaluator.store, evaluator.limits, caller, batch, content, digest
        )
        evaluator.evaluations.changes.tell()
        return reply(caller, status, _status(await evaluator.batch(caller, batch)))

    @app.get(path, response_model=Status, openapi_extra=SIGNED)
    async def batch_status(
        request: Request, federation: FederationName, batch: BatchName, wait: Wait = 0
    ) -> fastapi.Response:
        """The querier asks how far a batch is; with `wait`, when that changes."""
        caller = await evaluator.gate.admit(request, federation, ["querier"])
        first = await evaluator.batch(caller, batch)

        async def changed() -> bool:
            return _news(await evaluator.batch(caller, batch)) != _news(first)

        if first.state in ("collecting", "queued", "evaluating"):
            await evaluator.news(wait, changed)
        return reply(caller, 200, _status(await evaluator.batch(caller, batch)))

    @app.get(
        f"{path}/answer",
        response_class=fastapi.Response,
        responses={200: BINARY},
        openapi_extra=SIGNED,
    )
    async def answer(
        request: Request, federation: FederationName, batch: BatchName
    ) -> fastapi.Response:
        """The querier fetches the encrypted answers."""
        caller = await evaluator.gate.admit(request, federation, ["querier"])
        found = await evaluator.batch(caller, batch)
        content = await asyncio.to_thread(evaluator.store.answer, found)
        if content is None:
            raise Refusal(409, "state", f"the batch is {found.state}, not answered")
        return reply(caller, 200, content)

    @app.delete(path, response_model=Detail, openapi_extra=SIGNED)
    async def close_batch(
        request: Request, federation: FederationName, batch: BatchName
    ) -> fastapi.Response:
        """The querier has its answer, or wants none any more; only the name is kept."""
        caller = await evaluator.gate.admit(request, federation, ["querier"])
        found = await evaluator.batch(caller, batch)
        await asyncio.to_thread(evaluator.store.close_batch, found)
        evaluator.evaluations.changes.tell()
        return reply(caller, 200, {"detail": "closed"})


def add_client_routes(app: FastAPI, evaluator: Evaluator) -> None:
    """Adds what clients may call."""
    path = "/v1/{federation}/batches/{batch}"
    binary = {**SIGNED, "requestBody": {**BINARY, "required": True}}

    @app.get("/v1/{federation}/asked", response_model=Asked, openapi_extra=SIGNED)
    async def asked(
        request: Request, federation: FederationName, wait: Wait = 0
    ) -> fastapi.Response:
        """A client asks which batches wait for it; with `wait`, when there is one."""
        caller = await evaluator.gate.admit(request, federation, ["client"])
        names: list[str] = []

        async def found() -> bool:
            names[:] = await asyncio.to_thread(evaluator.store.asked, federation, caller.name)
            return bool(names)

        await evaluator.news(wait, found)
        return reply(caller, 200, {"batches": names})

    @app.get(
        f"{path}/query",
        response_class=fastapi.Response,
        responses={200: BINARY},
        openapi_extra=SIGNED,
    )
    async def query(
        request: Request, federation: FederationName, batch: BatchName
    ) -> fastapi.Response:
        """A client fetches the query that is sealed to it."""
        caller = await evaluator.gate.admit(request, federation, ["client"])
        found = await evaluator.batch(caller, batch)
        if caller.federation.batched(found.querier):
            return await large_query(evaluator, caller, found)
        content = await asyncio.to_thread(evaluator.store.sealed, found, caller.name)
        if content is None:
            raise Refusal(409, "state", "this client is not asked any more")
        return reply(caller, 200, content)

    sealed_words = {**SIGNED, "requestBody": {**BINARY, "required": False}}

    @app.delete(f"{path}/query", response_model=Detail, openapi_extra=sealed_words)
    async def decline(
        request: Request, federation: FederationName, batch: BatchName
    ) -> fastapi.Response:
        """A client will not contribute to a batch; its reason is sealed to the querier."""
        caller = await evaluator.gate.admit(request, federation, ["client"])
        found = await evaluator.batch(caller, batch)
        words = await evaluator.gate.body(request, caller, MOST_BYTES) or None
        if not await asyncio.to_thread(evaluator.store.decline, found, caller.name, words):
            raise Refusal(409, "state", "this client is not asked any more")
        evaluator.evaluations.changes.tell()
        return reply(caller, 200, {"detail": "declined"})

    @app.put(
        f"{path}/contribution",
        response_model=Detail,
        status_code=201,
        responses={200: {"model": Detail}},
        openapi_extra=binary,
    )
    async def contribute(
        request: Request, federation: FederationName, batch: BatchName
    ) -> fastapi.Response:
        """A client sends its encrypted integers; on the disk when this is answered."""
        caller = await evaluator.gate.admit(request, federation, ["client"])
        found = await evaluator.batch(caller, batch)
        if found.agreed:
            raise Refusal(409, "state", "the rule of this federation is a secure sum")
        try:
            limit = caller.federation.contribution_bytes(found.querier, found.queries)
        except InputError as error:
            raise Refusal(409, "keys", str(error)) from None
        if caller.federation.batched(found.querier):
            status = await evaluator.large.contribution(request, caller, found, limit)
        else:
            content = await evaluator.gate.body(request, caller, limit)
            status = await asyncio.to_thread(
                accept_contribution, evaluator.store, caller, found, content
            )
        if status == 201:
            evaluator.metrics.contributions.inc()
        evaluator.evaluations.changes.tell()
        return reply(caller, status, {"detail": "accepted"})


def _news(batch: Batch) -> dict[str, Any]:
    """Of a status, what a querier waits for: not the steps of a secure sum, which are short."""
    found = _status(batch)
    return {**found, "done": 0, "total": 0} if batch.agreed else found


def _status(batch: Batch) -> dict[str, Any]:
    return Status(
        state=batch.state,
        reason=batch.reason,
        done=batch.done,
        total=batch.total,
        present=list(batch.present),
        clients=dict(batch.clients),
        refusals={name: base64.b64encode(words).decode() for name, words in batch.refusals.items()},
    ).model_dump()
