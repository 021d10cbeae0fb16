"""The evaluator's routes of engine bgv: bodies that come and go in pieces."""

import asyncio
from typing import Any

import fastapi
from fastapi import FastAPI, Request

from secure_fl.service.batch import Batch
from secure_fl.service.evaluator import Evaluator
from secure_fl.service.gate import Caller, Refusal, reply, reply_file
from secure_fl.service.registry import Federation
from secure_fl.service.schema import Detail, Part
from secure_fl.service.shapes import BINARY, SIGNED, BatchName, FederationName


def add_large_routes(app: FastAPI, evaluator: Evaluator) -> None:
    """Adds what comes apart: each client's sealed query, and what that client is to the batch."""
    path = "/v1/{federation}/batches/{batch}"
    binary: dict[str, Any] = {**SIGNED, "requestBody": {**BINARY, "required": True}}

    @app.put(
        f"{path}/sealed/{{client}}",
        response_model=Detail,
        status_code=201,
        responses={200: {"model": Detail}},
        openapi_extra=binary,
    )
    async def sealed(
        request: Request, federation: FederationName, batch: BatchName, client: str
    ) -> fastapi.Response:
        """The querier sends one client's sealed query; on the disk when this is answered."""
        caller = await evaluator.gate.admit(request, federation, ["querier"])
        found = await evaluator.batch(caller, batch)
        if not caller.federation.batched(caller.name) or client not in found.clients:
            raise Refusal(409, "state", "no sealed query of this client comes apart")
        status = await evaluator.large.sealed(request, caller, found, client)
        evaluator.evaluations.changes.tell()
        return reply(caller, status, {"detail": "accepted"})

    @app.get(f"{path}/part", response_model=Part, openapi_extra=SIGNED)
    async def part(
        request: Request, federation: FederationName, batch: BatchName
    ) -> fastapi.Response:
        """A client asks whether its contribution is waited for, before it sends megabytes."""
        caller = await evaluator.gate.admit(request, federation, ["client"])
        found = await evaluator.batch(caller, batch)
        if found.state != "collecting" or caller.name not in found.clients:
            raise Refusal(409, "state", "this client is not asked any more")
        return reply(caller, 200, {"state": found.clients[caller.name]})


async def large_query(
    evaluator: Evaluator, caller: Caller[Federation], batch: Batch
) -> fastapi.Response:
    """A client's sealed query, from its file."""
    digest = await asyncio.to_thread(evaluator.shelf.sealed, batch, caller.name)
    if digest is not None:
        try:
            return reply_file(caller, evaluator.shelf.path(digest), digest)
        except FileNotFoundError:
            # Erased since it was looked up.
            pass
    raise Refusal(409, "state", "this client is not asked any more")
