"""The evaluator's routes of masked sums: the next one for a client, a message, and its reply."""

import asyncio
from typing import Annotated, Any

import fastapi
from fastapi import FastAPI, Path, Query, Request

from secure_fl.service.batch import Batch
from secure_fl.service.evaluator import Evaluator
from secure_fl.service.exchange_store import STEPS
from secure_fl.service.gate import Caller, Refusal, reply
from secure_fl.service.masked_offer import HELD, Offer
from secure_fl.service.masked_words import message_bytes
from secure_fl.service.registry import Federation
from secure_fl.service.routes import Wait
from secure_fl.service.schema import Detail
from secure_fl.service.shapes import BINARY, SIGNED, BatchName, FederationName

NAME = "[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}"
Holds = Annotated[
    str, Query(pattern=f"^({NAME}(,{NAME}){{0,{HELD - 1}}})?$", description="Its set-ups of keys.")
]
Step = Annotated[int, Path(ge=1, le=STEPS, description="Of the secure sum.")]


def add_exchange_routes(app: FastAPI, evaluator: Evaluator) -> None:
    """Adds what contributors of masked sums may call."""

    @app.get(
        "/v1/{federation}/sums",
        response_class=fastapi.Response,
        responses={200: BINARY, 202: {"model": Detail}},
        openapi_extra=SIGNED,
    )
    async def next_sum(
        request: Request, federation: FederationName, holds: Holds = "", wait: Wait = 0
    ) -> fastapi.Response:
        """A client asks for the next sum, with its sealed query; with `wait`, when there is one."""
        caller = await evaluator.gate.admit(request, federation, ["client"])
        if not caller.federation.masked:
            raise Refusal(409, "state", "the rule of this federation has no secure sum")
        offered: list[Offer] = []

        async def found() -> bool:
            offer = await evaluator.settling.offer(caller)
            offered[:] = [] if offer is None else [offer]
            return offer is not None

        with evaluator.settling.calling(caller, request, frozenset(filter(None, holds.split(",")))):
            # Batches are opened and settled in this process, which tells of it.
            await evaluator.news(wait, found, look=wait)
        if not offered:
            return reply(caller, 202, {"detail": "not yet"})
        return reply(caller, 200, offered[0].to_bytes())

    def reply_to(caller: Caller[Federation], batch: str, step: int) -> bytes | None:
        found = evaluator.store.find(caller.federation.manifest.fingerprint, batch)
        if found is None:
            raise Refusal(404, "absent", "no such batch")
        return evaluator.exchanges.reply(found, caller.name, step)

    async def ended(
        caller: Caller[Federation], batch: Batch, step: int, wait: float
    ) -> fastapi.Response:
        """What a client gets at the end of a step."""
        content: list[bytes] = []

        async def closed() -> bool:
            known, made = evaluator.exchanges.look(batch, caller.name, step)
            if not known:
                made = await asyncio.to_thread(reply_to, caller, batch.name, step)
            content[:] = [] if made is None else [made]
            return bool(content)

        # Sums move in this process, which tells of it.
        await evaluator.news(wait, closed, look=wait)
        if not content:
            return reply(caller, 202, {"detail": "not yet"})
        return reply(caller, 200, content[0])

    path = "/v1/{federation}/batches/{batch}/exchange/{step}"
    body: dict[str, Any] = {**SIGNED, "requestBody": {**BINARY, "required": True}}

    @app.put(
        path,
        response_model=Detail,
        status_code=201,
        responses={200: BINARY, 202: {"model": Detail}},
        openapi_extra=body,
    )
    async def say(
        request: Request,
        federation: FederationName,
        batch: BatchName,
        step: Step,
        wait: Wait = 0,
    ) -> fastapi.Response:
        """A client sends its message of a step; on the disk when this is answered.

        With `wait` the answer is that of the step's end, as it is to GET.
        """
        caller = await evaluator.gate.admit(request, federation, ["client"])
        found = await evaluator.batch(caller, batch)
        if not found.agreed:
            raise Refusal(409, "state", "the rule of this federation has no secure sum")
        limit = message_bytes(caller.federation.manifest, found.queries, step)
        content = await evaluator.gate.body(request, caller, limit)
        evaluator.settling.heard(caller)
        if step == 1 and not found.setup:
            await evaluator.settling.begun(found)
            found = await evaluator.batch(caller, batch)
        take = evaluator.exchanges.take
        status, news = await asyncio.to_thread(take, found, caller.name, step, content)
        if status == 201:
            evaluator.metrics.contributions.inc()
        if news:
            evaluator.evaluations.changes.tell()
        if wait and step < STEPS:
            return await ended(caller, found, step, wait)
        return reply(caller, status, {"detail": "accepted"})

    @app.get(
        path,
        response_class=fastapi.Response,
        responses={200: BINARY, 202: {"model": Detail}},
        openapi_extra=SIGNED,
    )
    async def hear(
        request: Request,
        federation: FederationName,
        batch: BatchName,
        step: Step,
        wait: Wait = 0,
    ) -> fastapi.Response:
        """A client asks for the end of a step; with `wait`, when it is there."""
        caller = await evaluator.gate.admit(request, federation, ["client"])
        evaluator.settling.heard(caller)
        found = await evaluator.batch(caller, batch)
        return await ended(caller, found, step, wait)
