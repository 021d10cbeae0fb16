"""Bodies of engine bgv, while they come in: one at a time of each, checked, then kept.

Size limits are the federation's and the batch's. What a body says of itself is looked at when all
of it is in a file and is what its sender signed.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from fastapi import Request

import fhe
from fhe.batched.evaluator import check_ciphertexts
from secure_fl.errors import InputError
from secure_fl.service.arrivals import check_facts
from secure_fl.service.batch import Batch
from secure_fl.service.gate import Caller, Gate, Refusal
from secure_fl.service.registry import Federation
from secure_fl.service.sealed_query import facts_of_file
from secure_fl.service.shelf import Shelf

Found = TypeVar("Found")


class LargeArrivals:
    """What comes in.

    Args:
        shelf: where it stays.
        gate: that lets it in.
    """

    def __init__(self, shelf: Shelf, gate: Gate[Federation]) -> None:
        self._shelf, self._gate = shelf, gate
        self._coming: set[tuple[int, str, str]] = set()
        # A look at all residues of a contribution takes a second or two of a core.
        self._looking = threading.Lock()

    async def sealed(
        self, request: Request, caller: Caller[Federation], batch: Batch, client: str
    ) -> int:
        """Takes a sealed query; 201, or 200 where it was there before.

        Raises:
            Refusal: it is not this batch's to this client, or not what was signed.
            StorageError: the disk is full.
        """
        federation = caller.federation
        terms = (batch.name, client, batch.queries, batch.quorum, batch.expires)

        def check(path: Path) -> None:
            facts = _read(lambda: facts_of_file(path, federation.manifest), path, "sealed query")
            check_facts(facts, terms, caller)

        limit = federation.sealed_bytes(batch.queries)
        with self._alone(batch, client, "sealed"), self._shelf.arriving() as arrival:
            await self._gate.body_into(request, caller, limit, arrival)
            await asyncio.to_thread(check, arrival.path)
            take = self._shelf.take_sealed
            return _settled(await asyncio.to_thread(take, batch, client, arrival, time.time()))

    async def contribution(
        self, request: Request, caller: Caller[Federation], batch: Batch, limit: int
    ) -> int:
        """Takes a contribution of at most `limit` bytes; returns and raises as `sealed`."""
        federation = caller.federation

        def check(path: Path) -> None:
            def whole() -> None:
                found = fhe.BatchedContribution.load(path)
                federation.check(found, caller.name, batch)
                check_ciphertexts(found)

            with self._looking:
                _read(whole, path, "contribution")

        with self._alone(batch, caller.name, "sent"), self._shelf.arriving() as arrival:
            await self._gate.body_into(request, caller, limit, arrival)
            await asyncio.to_thread(check, arrival.path)
            take = self._shelf.take_sent
            return _settled(await asyncio.to_thread(take, batch, caller.name, arrival))

    @contextlib.contextmanager
    def _alone(self, batch: Batch, client: str, what: str) -> Iterator[None]:
        """One body of a kind at a time: many at once would fill the disk."""
        key = (batch.id, client, what)
        if key in self._coming:
            raise Refusal(503, "busy", "the same is being sent at this moment", retry_after=2)
        self._coming.add(key)
        try:
            yield
        finally:
            self._coming.remove(key)


def _read(look: Callable[[], Found], path: Path, what: str) -> Found:
    try:
        return look()
    except (fhe.InputError, InputError) as error:
        # Where it lies is nobody else's business.
        raise Refusal(422, "invalid", str(error).replace(str(path), what)) from None


def _settled(status: int | None) -> int:
    if status is None:
        raise Refusal(409, "state", "this client is not asked any more, or sent something else")
    return status
