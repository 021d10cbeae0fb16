"""The evaluator's routes of masked sums: a contributor's message of a step, and its reply."""

import asyncio
from typing import Annotated, Any

import fastapi
from fastapi import FastAPI, Path, Request

from secure_fl.service.evaluator import Evaluator
from secure_fl.service.exchange_store import STEPS
from secure_fl.service.gate import Refusal, reply
from secure_fl.service.masked_words import message_bytes
from secure_fl.service.routes import Wait
from secure_fl.service.schema import Detail
from secure_fl.service.shapes import BINARY, SIGNED, BatchName, FederationName

Step = Annotated[int, Path(ge=1, le=STEPS, description="Of the secure sum.")]


def add_exchange_routes(app: FastAPI, evaluator: Evaluator) -> None:
    """Adds what contributors of masked sums may call."""
    path = "/v1/{federation}/batches/{batch}/exchange/{step}"
    body: dict[str, Any] = {**SIGNED, "requestBody": {**BINARY, "required": True}}

    @app.put(
        path,
        response_model=Detail,
        status_code=201,
        responses={200: {"model": Detail}},
        openapi_extra=body,
    )
    async def say(
        request: Request, federation: FederationName, batch: BatchName, step: Step
    ) -> fastapi.Response:
        """A client sends its message of a step; on the disk when this is answered."""
        caller = await evaluator.gate.admit(request, federation, ["client"])
        found = await evaluator.batch(caller, batch)
        if not found.agreed:
            raise Refusal(409, "state", "the rule of this federation has no secure sum")
        limit = message_bytes(caller.federation.manifest, found.queries, step)
        content = await evaluator.gate.body(request, caller, limit)
        take = evaluator.exchanges.take
        status, news = await asyncio.to_thread(take, found, caller.name, step, content)
        if status == 201:
            evaluator.metrics.contributions.inc()
        if news:
            evaluator.evaluations.changes.tell()
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
        content: list[bytes] = []

        async def closed() -> bool:
            found = await evaluator.batch(caller, batch)
            made = await asyncio.to_thread(evaluator.exchanges.reply, found, caller.name, step)
            content[:] = [] if made is None else [made]
            return bool(content)

        # Sums move in this process, which tells of it.
        await evaluator.news(wait, closed, look=wait)
        if not content:
            return reply(caller, 202, {"detail": "not yet"})
        return reply(caller, 200, content[0])
