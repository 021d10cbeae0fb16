"""Training over the service's own channel: the server that its clients' nodes call.

Requests and responses are signed and bound to each other, as the encrypted queries' are
(`secure_fl.service.gate`); what they say is that of training over Flower, with the same plans,
nodes and owners' terms. A node keeps one request open until there is a message for it.
"""

import asyncio
import contextlib
import logging
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fastapi
import uvicorn
from attrs import frozen
from fastapi import FastAPI, Request

from secure_fl.crypto.identities import Members, read_members
from secure_fl.crypto.keys import Directory
from secure_fl.errors import FederationError, InputError, ServiceError
from secure_fl.federation import wire
from secure_fl.flower.descriptions import as_array
from secure_fl.service.gate import Gate, Refusal, reply
from secure_fl.service.limits import Limits, Nonces
from secure_fl.service.mailbox import Mailbox
from secure_fl.service.members import Member, read_secrets
from secure_fl.service.metrics import Metrics
from secure_fl.service.serving import Address, configured, sockets_of
from secure_fl.service.signing import LIFETIME

log = logging.getLogger("securefl.service")

SERVER = "server"
"""Name of the training server among the members."""
FETCH, MESSAGE = "training fetch", "training message"
PATIENCE = 25.0
"""Seconds that a request for a message is kept open; less than what proxies commonly allow."""
UNFIT = (AttributeError, KeyError, TypeError, ValueError)
"""What a value of the wire encoding raises that is another than was expected."""
_LARGEST = 1 << 30
"""Bytes of an answer."""
_RATE = Limits(rate=500.0, burst=1000, seconds=600.0)
"""A client asks as often as it is answered."""


@frozen
class TrainingCircle:
    """Who works together under one head: clients that train, or workers that evaluate.

    Attributes:
        listed: everybody's keys, the head's among them.
        head: the one that leads.
    """

    listed: Members
    head: str = SERVER

    @property
    def members(self) -> Directory:
        """Everybody's signature keys."""
        return self.listed.directory

    @property
    def clients(self) -> tuple[str, ...]:
        """Those that the head works with."""
        return tuple(self.listed.clients)

    @property
    def queriers(self) -> tuple[str, ...]:
        """Those that ask, which have no part in this."""
        return self.listed.queriers

    @property
    def fingerprint(self) -> str:
        """Of names and keys."""
        return self.listed.fingerprint


def read_circle(path: Path, head: str = SERVER) -> TrainingCircle:
    """Everybody's keys, with the head's: the training server, or the evaluator of workers.

    Raises:
        InputError: the file cannot be used, or does not name the head.
    """
    members = read_members(path)
    if head not in members.listed:
        raise InputError(f'{path}: has no "{head}"; add its keys (securefl identity gather)')
    return TrainingCircle(members, head)


def read_party(path: Path, name: str, circle: TrainingCircle) -> Member:
    """A party's secrets, if the circle lists their public half under its name.

    Raises:
        InputError: the file cannot be used, or the circle has another key, or none.
    """
    found = read_secrets(path, name)
    if circle.members.get(name) != found.identity.public:
        raise InputError(
            f'{path}: not the key that the members\' file lists for "{name}", which is'
            f" {circle.members.get(name, b'').hex() or 'none'}"
        )
    return found


class Coordinator:
    """A training server in a thread; see `coordinated`.

    Args:
        own: the server's secrets.
        circle: who trains.
        names: of the run's clients.
        settings: of the run, told with each message.
        wait: seconds that the first messages wait for all clients.
        folder: for nonces.
    """

    def __init__(
        self,
        own: Member,
        circle: TrainingCircle,
        names: tuple[str, ...],
        settings: Mapping[str, Any],
        wait: float,
        folder: Path,
    ) -> None:
        self._settings = dict(settings)
        self._names, self._wait = names, wait
        self._mailbox: Mailbox | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        nonces = Nonces(folder / "nonces.db", 2 * LIFETIME)
        self._gate = Gate({circle.fingerprint: (circle, own)}, _RATE, nonces, Metrics())

    def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        """See `secure_fl.flower.transport.Transport`."""
        assert self._mailbox is not None
        assert self._loop is not None
        answers = self._mailbox.exchange(requests, seconds)
        return asyncio.run_coroutine_threadsafe(answers, self._loop).result()

    def end(self) -> None:
        """Tells all nodes that wait that the run is over."""
        assert self._mailbox is not None
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._mailbox.end(), self._loop).result()

    def app(self) -> FastAPI:
        """The application."""

        @contextlib.asynccontextmanager
        async def lifespan(_: FastAPI) -> Any:
            self._loop, self._mailbox = asyncio.get_running_loop(), Mailbox(self._names, self._wait)
            yield

        app = FastAPI(lifespan=lifespan, openapi_url=None)

        @app.exception_handler(Refusal)
        async def refused(request: Request, refusal: Refusal) -> fastapi.Response:
            return self._gate.refuse(request, refusal)

        @app.post("/v1/{circle}/training")
        async def fetch(request: Request, circle: str) -> fastapi.Response:
            return await self._fetch(request, circle)

        return app

    async def _fetch(self, request: Request, circle: str) -> fastapi.Response:
        caller = await self._gate.admit(request, circle, {"client"})
        last, answer = handed_in(await self._gate.body(request, caller, _LARGEST))
        mailbox, found = self._mailbox, None
        assert mailbox is not None
        if caller.name in self._names:
            found = await mailbox.fetch(caller.name, last, answer, PATIENCE)
        else:
            # Of another run, before or after this one.
            await mailbox.until_the_end(PATIENCE)
        if mailbox.ended:
            raise Refusal(503, "ended", "the run is over", retry_after=2)
        if found is None:
            return reply(caller, 200, b"")
        number, content = found
        told = {"number": number, "request": as_array(content), "settings": self._settings}
        return reply(caller, 200, wire.encode(told, kind=MESSAGE))


def handed_in(body: bytes) -> tuple[str, bytes]:
    """Number of the message that a client answers, "" for none, and the answer.

    Raises:
        Refusal: 422, it holds something else.
    """
    from fhe.errors import FormatError, VersionError

    try:
        found = wire.decode(body, kind=FETCH, source="client")
        return str(found["last"]), bytes(found["answer"].tobytes())
    except (FederationError, FormatError, VersionError, *UNFIT):
        raise Refusal(422, "invalid", "no request for a message") from None


@contextlib.contextmanager
def coordinated(
    own: Member,
    circle: TrainingCircle,
    names: tuple[str, ...],
    settings: Mapping[str, Any],
    *,
    address: Address,
    wait: float,
) -> Iterator[Coordinator]:
    """A training server that listens until the block ends.

    Args:
        own: the server's secrets.
        circle: who trains.
        names: of the run's clients, all in the circle.
        settings: of the run.
        address: where it listens.
        wait: seconds that the first messages wait for all clients.

    Raises:
        InputError: the address cannot be used so, or a client is not in the circle.
    """
    strangers = [name for name in names if name not in circle.clients]
    if strangers:
        raise InputError(f'client "{strangers[0]}": the members\' file has no key of it')
    address.check()
    with tempfile.TemporaryDirectory(prefix="securefl-") as folder:
        made = Coordinator(own, circle, names, settings, wait, Path(folder))
        server = uvicorn.Server(configured(made.app(), address))
        sockets = sockets_of(address)
        thread = threading.Thread(target=server.run, args=(sockets,), daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise ServiceError(f"{address.host}:{address.port}: the server ended at once")
                thread.join(0.01)
            yield made
        finally:
            if server.started:
                made.end()
            server.should_exit = True
            thread.join()
