"""Who may come in: every request's signature, time, rate, nonce, role and size, in this order.

A refusal is one line in the log, with the sender's name and a reason of a fixed list and nothing of
the request's content. The body is read when everything before it is in order, and not beyond its
limit.
"""

import asyncio
import hashlib
import json
import logging
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

from attrs import frozen
from fastapi import Request as HttpRequest
from fastapi import Response as HttpResponse
from starlette.requests import ClientDisconnect

from secure_fl.crypto.keys import Directory
from secure_fl.errors import ServiceError
from secure_fl.service.blobs import BLOCK, Arrival
from secure_fl.service.limits import Buckets, Limits, Nonces, OversizedError, read_capped
from secure_fl.service.members import Member
from secure_fl.service.metrics import Metrics, Receive, Scope, Send
from secure_fl.service.signing import (
    LIFETIME,
    REPLY_HEADER,
    SCHEME,
    Request,
    Response,
    read_token,
    signed,
)

log = logging.getLogger("securefl.service")


class Circle(Protocol):
    """Parties that speak with one service about one thing."""

    @property
    def fingerprint(self) -> str:
        """Of all that they must agree on; requests name it."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of those that are clients."""

    @property
    def queriers(self) -> tuple[str, ...]:
        """Names of those that ask."""

    @property
    def members(self) -> Directory:
        """Keys that check signatures, by name."""


Of = TypeVar("Of", bound=Circle)


class Refusal(Exception):  # noqa: N818  # the answer to a request, not a defect
    """A request that is not granted.

    Args:
        status: of HTTP.
        reason: a word of a fixed list, for log and metrics.
        detail: one line for the sender; never logged, since it may quote what was sent.
        retry_after: seconds, where trying again later makes sense.
    """

    def __init__(
        self, status: int, reason: str, detail: str, *, retry_after: float | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.reason, self.detail = status, reason, detail
        self.retry_after = retry_after


@frozen
class Caller(Generic[Of]):
    """A member whose request was admitted.

    Attributes:
        federation: it speaks in; whatever circle it is.
        own: this service's secrets in that federation.
        claims: that it signed.
    """

    federation: Of
    own: Member
    claims: Request

    @property
    def name(self) -> str:
        """The member's name."""
        return self.claims.sender

    @property
    def role(self) -> str:
        """What it does: "client", "querier", or its name."""
        if self.name in self.federation.clients:
            return "client"
        return "querier" if self.name in self.federation.queriers else self.name

    @property
    def sender(self) -> str:
        """The member in its federation, as limits count it."""
        return f"{self.claims.federation} {self.claims.sender}"


class Gate(Generic[Of]):
    """Admits requests and signs what they are answered.

    Args:
        federations: by fingerprint, each with this service's secrets.
        limits: rates and sizes.
        nonces: used ones.
        metrics: refusals are counted there.
        succeeded: fingerprints of federations that are not served any more, with that of the one
            that took their place.
    """

    def __init__(
        self,
        federations: Mapping[str, tuple[Of, Member]],
        limits: Limits,
        nonces: Nonces,
        metrics: Metrics,
        succeeded: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._federations, self._succeeded = federations, succeeded
        self._limits, self._nonces, self._metrics = limits, nonces, metrics
        self._rates = Buckets(limits.rate, limits.burst)

    async def admit(
        self, request: HttpRequest, federation: str, roles: Collection[str]
    ) -> Caller[Of]:
        """The member that sent a request.

        Args:
            request: its body is not touched.
            federation: that its path names.
            roles: "querier", "client" or both.

        Raises:
            Refusal: anything is not in order.
        """
        # Nobody is slowed down for refused signatures of his address: others may share it.
        caller = request.state.caller = self._identify(request, federation)
        self._check_claims(request, caller)
        await self._check_nonce(caller)
        if caller.role not in roles:
            raise Refusal(403, "role", f"a {caller.role} may not do this")
        return caller

    async def body(self, request: HttpRequest, caller: Caller[Of], limit: int) -> bytes:
        """A request's body, if it is what the sender signed and not longer than allowed.

        Raises:
            Refusal: 413, 408 or 400.
        """
        if caller.claims.length > limit:
            raise Refusal(413, "size", f"a body of more than {limit} bytes")
        try:
            async with asyncio.timeout(self._limits.seconds):
                content, hashed = await read_capped(request.stream(), caller.claims.length)
        except OversizedError:
            raise Refusal(413, "size", "a body longer than was signed") from None
        except ClientDisconnect:
            raise Refusal(400, "body", "the connection ended within the body") from None
        except TimeoutError:
            raise Refusal(408, "slow", "the body took too long to arrive") from None
        if len(content) != caller.claims.length or hashed != caller.claims.body:
            raise Refusal(400, "body", "not the body that was signed")
        return content

    async def body_into(
        self, request: HttpRequest, caller: Caller[Of], limit: int, arrival: Arrival
    ) -> None:
        """A large body, to a file; a piece of it is in memory at a time.

        Args:
            request: its body is not touched.
            caller: that sends it.
            limit: bytes.
            arrival: takes it; to be dropped where this raises.

        Raises:
            Refusal: as `body`.
            StorageError: the disk is full.
        """
        length = caller.claims.length
        if length > limit:
            raise Refusal(413, "size", f"a body of more than {limit} bytes")
        try:
            async with asyncio.timeout(self._limits.seconds + length / self._limits.slowest):
                await self._receive_into(request, length, arrival)
        except ClientDisconnect:
            raise Refusal(400, "body", "the connection ended within the body") from None
        except TimeoutError:
            raise Refusal(408, "slow", "the body took too long to arrive") from None
        if arrival.size != length or arrival.digest != caller.claims.body:
            raise Refusal(400, "body", "not the body that was signed")

    async def _receive_into(self, request: HttpRequest, length: int, arrival: Arrival) -> None:
        held, stream, ended = bytearray(), aiter(request.stream()), False
        while not ended:
            async with asyncio.timeout(self._limits.silence):
                chunk = await anext(stream, None)
            ended = chunk is None
            held += chunk or b""
            if arrival.size + len(held) > length:
                raise Refusal(413, "size", "a body longer than was signed")
            if ended or len(held) >= BLOCK:
                await asyncio.to_thread(arrival.write, bytes(held))
                held.clear()

    def _identify(self, request: HttpRequest, federation: str) -> Caller[Of]:
        """Whose signature it is; nothing of the request is believed before."""
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme != SCHEME:
            raise Refusal(401, "unsigned", f"not signed; expected Authorization: {SCHEME} ...")
        known = self._federations.get(federation)
        try:
            token, claims = read_token(value, Request)
            if known is None:
                raise ServiceError(self._unserved(federation))
            token.check(known[0].members)
        except ServiceError as error:
            raise Refusal(401, "unknown", str(error)) from None
        return Caller(*known, claims)

    def _unserved(self, federation: str) -> str:
        """Why a federation is not served; fingerprints are public."""
        successor = self._succeeded.get(federation)
        if successor is None:
            return "no such federation is registered here"
        return (
            f"a successor of this federation is served, {successor[:16]}; take it over (securefl"
            " members adopt) and start again"
        )

    def _check_claims(self, request: HttpRequest, caller: Caller[Of]) -> None:
        """That the request is for this service, now, for the first time, and as it was signed."""
        claims, now = caller.claims, time.time()
        path, query = request.scope["raw_path"], request.scope["query_string"]
        target = (path + b"?" + query if query else path).decode("latin-1")
        if (claims.recipient, claims.federation, claims.method, claims.target) != (
            caller.own.name,
            caller.federation.fingerprint,
            request.method,
            target,
        ):
            raise Refusal(403, "misrouted", "signed for another recipient, federation or target")
        if not abs(now - claims.issued) <= LIFETIME:
            raise Refusal(
                401, "expired", f"signed more than {LIFETIME:.0f} s ago, or clocks differ"
            )

    async def _check_nonce(self, caller: Caller[Of]) -> None:
        """That the request is sent for the first time, within the sender's rate.

        What is beyond the rate is not stored, and a replayed request costs its sender nothing.
        """
        sender, nonce, now = caller.sender, caller.claims.nonce, time.time()
        replayed = Refusal(409, "replayed", "this request was sent before")
        wait = self._rates.wait(sender)
        if wait:
            if await asyncio.to_thread(self._nonces.known, sender, nonce, now):
                raise replayed
            raise Refusal(429, "rate", "too many requests", retry_after=wait)
        if not await asyncio.to_thread(self._nonces.fresh, sender, nonce, now):
            self._rates.give_back(sender)
            raise replayed

    def refuse(self, request: HttpRequest, refusal: Refusal) -> HttpResponse:
        """The answer to a request that is not granted; signed where the sender is known."""
        caller: Caller[Of] | None = getattr(request.state, "caller", None)
        self._metrics.refusals.labels(refusal.reason).inc()
        sender = f"member {caller.name}" if caller else "an unknown sender"
        log.warning("refused %d (%s): %s", refusal.status, refusal.reason, sender)
        # What is left of the body is not read, so the connection cannot be used again.
        headers = {"Connection": "close"}
        if refusal.retry_after is not None:
            headers["Retry-After"] = str(max(1, round(refusal.retry_after)))
        content = {"detail": refusal.detail, "reason": refusal.reason}
        return reply(caller, refusal.status, content, headers=headers)


PIECE = 64 * 1024
"""Bytes of an answer that are handed to the transport at once."""


class _FromFile(HttpResponse):
    """A response whose body is an open file's."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__(b"", 200, {"Content-Length": str(size)}, "application/octet-stream")
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads the next piece when there is room for it."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        with self._file as file:
            await send({"type": "http.response.start", **start})
            while block := await asyncio.to_thread(file.read, BLOCK):
                for begin in range(0, len(block), PIECE):
                    piece = block[begin : begin + PIECE]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def reply_file(caller: Caller[Any], path: Path, digest: str) -> HttpResponse:
    """A response whose body is a file, signed for the caller.

    Args:
        caller: that hears it.
        path: of the file.
        digest: SHA-256 of its content, hexadecimal.

    Raises:
        FileNotFoundError: it is gone.
    """
    file = path.open("rb")
    response = _FromFile(file, os.fstat(file.fileno()).st_size)
    claims = Response(sender=caller.own.name, nonce=caller.claims.nonce, status=200, body=digest)
    response.headers[REPLY_HEADER] = signed(caller.own, claims)
    return response


class _InPieces(HttpResponse):
    """A response that is held once in memory, however slowly it is taken."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the next piece when there is room for it."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        for begin in range(0, len(self.body), PIECE):
            piece = bytes(self.body[begin : begin + PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def reply(
    caller: Caller[Any] | None,
    status: int,
    content: Mapping[str, Any] | bytes,
    *,
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    """A response, signed for the caller where there is one."""
    binary = isinstance(content, bytes)
    body = content if isinstance(content, bytes) else json.dumps(dict(content)).encode()
    media = "application/octet-stream" if binary else "application/json"
    kind = _InPieces if len(body) > PIECE else HttpResponse
    response = kind(body, status, dict(headers or {}), media)
    if caller is not None:
        claims = Response(
            sender=caller.own.name,
            nonce=caller.claims.nonce,
            status=status,
            body=hashlib.sha256(body).hexdigest(),
        )
        response.headers[REPLY_HEADER] = signed(caller.own, claims)
    return response
