"""Runs an application until it is told to stop, with TLS or on loopback."""

import asyncio
import functools
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from attrs import field, frozen

from secure_fl.errors import InputError, ServiceError
from secure_fl.service.doors import Doors, listening, protocol_of
from secure_fl.service.supervision import Ending


@frozen(kw_only=True)
class Address:
    """Where a service listens.

    Attributes:
        host: name or address.
        port: 1 to 65535.
        certificate: PEM file; None serves plain HTTP.
        key: PEM file of the certificate's private key.
        insecure: allow plain HTTP beyond loopback.
        doors: bounds on connections.
    """

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    doors: Doors = field(factory=Doors)

    def check(self) -> None:
        """Refuses plain HTTP beyond this machine, and half of a certificate.

        Raises:
            InputError: so.
        """
        if (self.certificate is None) != (self.key is None):
            raise InputError("--certificate and --certificate-key: give both, or none")
        if self.certificate is None and not (self.insecure or is_loopback(self.host)):
            raise InputError(
                f"{self.host}: others can reach it, so it needs TLS: give --certificate and"
                " --certificate-key (or --insecure behind a proxy that has them)"
            )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_url(url: str, *, insecure: bool) -> str:
    """A service's address as its callers use it, without a slash at the end.

    Raises:
        InputError: not http(s), or plain HTTP beyond this machine without `insecure`.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url}: expected https://HOST:PORT")
    if parts.scheme == "http" and not (insecure or is_loopback(parts.hostname)):
        raise InputError(f"{url}: not encrypted; use https, or --insecure for a trial")
    return url.rstrip("/")


class _Server(uvicorn.Server):
    """Tells the application that it will end, so that requests that wait return at once."""

    should_exit: bool

    def __init__(
        self, config: uvicorn.Config, stop: Callable[[], None], ending: Ending, head: float
    ) -> None:
        super().__init__(config)
        self._stop, self._ending, self._head = stop, ending, head

    async def on_tick(self, counter: int) -> bool:
        """Ends when a loop of the application has given up."""
        return self._ending.reason is not None or await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens; a TLS handshake gets no longer than a request's head."""
        loop = asyncio.get_running_loop()
        if self.config.is_ssl:
            # Uvicorn passes no such option on, and asyncio's default is a minute.
            bounded = functools.partial(loop.create_server, ssl_handshake_timeout=self._head)
            setattr(loop, "create_server", bounded)  # noqa: B010  # mypy forbids the assignment
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begins to end; a second Ctrl+C ends at once.

        Without uvicorn's own way, which repeats the signal at the end and so skips what Python
        does when it ends.
        """
        self._stop()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def serve(app: Any, address: Address, *, stop: Callable[[], None], ending: Ending) -> None:
    """Serves until SIGTERM or SIGINT, then lets running requests end.

    Args:
        app: an ASGI application.
        address: where.
        stop: called when the signal comes.
        ending: tells when the application cannot go on.

    Raises:
        InputError: the address may not be used so.
        ServiceError: the application could not go on.
    """
    address.check()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    config = configured(app, address)
    _Server(config, stop, ending, address.doors.head).run(sockets_of(address))
    if ending.reason is not None:
        raise ServiceError(f"the service cannot go on: {ending.reason}; start it again")


def configured(app: Any, address: Address) -> uvicorn.Config:
    """How uvicorn runs an application of ours.

    Args:
        app: an ASGI application.
        address: where, checked.
    """
    return uvicorn.Config(
        app,
        host=address.host,
        port=address.port,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        log_config=None,
        access_log=False,
        server_header=False,
        # The pure-Python parser bounds headers.
        http=protocol_of(address.doors),
        # Sockets count their connections, as asyncio's own loop closes them.
        loop="asyncio",
        ws="none",
        h11_max_incomplete_event_size=16 * 1024,
        limit_concurrency=1000,
        timeout_graceful_shutdown=30,
    )


def sockets_of(address: Address) -> list[socket.socket]:
    """What listens at an address.

    Raises:
        InputError: nothing can.
    """
    try:
        return listening(address.host, address.port, address.doors.per_address)
    except OSError as error:
        raise InputError(
            f"{address.host}:{address.port}: cannot be listened on ({error.strerror or error});"
            " choose another --host or --port"
        ) from error
