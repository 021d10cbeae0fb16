"""Connections that cost more than they bring: counted by address, and closed when they idle.

A connection is counted from the moment it is accepted, before TLS, so that silence in the middle of
a handshake counts too. Behind a proxy all callers have the proxy's address: there the cap is the
proxy's business (docs/service.md).
"""

import asyncio
import ipaddress
import logging
import socket
from collections import Counter
from typing import Any

from attrs import frozen
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger("securefl.service")


@frozen(kw_only=True)
class Doors:
    """How connections are bounded.

    Attributes:
        per_address: connections of one address at once (IPv6: of one /64); 0 for no cap.
        head: seconds for a TLS handshake, and for a request's line and headers from the moment the
            connection is there or the request before is answered; and for what is left of a body
            after the answer.
        stalled: seconds in which a caller must take a piece of its answer (`gate.PIECE`), and what
            is left of it at the end.
    """

    per_address: int = 100
    head: float = 10.0
    stalled: float = 30.0


class CappedSocket(socket.socket):
    """A listening socket that closes connections beyond an address's cap as they come.

    Attributes:
        most: connections of one address; 0 for no cap.
        open: connections by address.
    """

    most: int
    open: Counter[str]

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that is within its address's cap.

        Raises:
            BlockingIOError: there is none.
        """
        while True:
            line, address = super().accept()
            caller = _caller(address[0])
            if self.most and self.open[caller] >= self.most:
                line.close()
                continue
            self.open[caller] += 1
            counted = _Counted(self.family, self.type, self.proto, fileno=line.detach())
            counted.of, counted.caller = self.open, caller
            return counted, address


def listening(host: str, port: int, most: int) -> list[socket.socket]:
    """Sockets bound to all addresses of a host, with one cap for an address's connections.

    Args:
        host: name or address; empty for all of this machine's.
        port: to listen on.
        most: connections of one address; 0 for no cap.

    Raises:
        OSError: one cannot be bound.
    """
    wanted = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    counts: Counter[str] = Counter()
    made: list[CappedSocket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(wanted):
            each = CappedSocket(family, kind, protocol)
            made.append(each)
            each.most, each.open = most, counts
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(address)
    except BaseException:
        for each in made:
            each.close()
        raise
    return [*made]


class _Counted(socket.socket):
    """A connection that is counted until it is closed."""

    of: Counter[str] | None = None
    caller = ""

    def close(self) -> None:
        """Closes it, and counts it no more."""
        counted, self.of = self.of, None
        if counted is not None:
            counted[self.caller] -= 1
            if not counted[self.caller]:
                del counted[self.caller]
        super().close()


def _caller(address: str) -> str:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, 64), strict=False))
        found = found.ipv4_mapped
    return str(found)


def protocol_of(doors: Doors) -> type[H11Protocol]:
    """Uvicorn's HTTP with bounds on silence."""

    class Bounded(H11Protocol):
        """One connection."""

        _deadline: asyncio.TimerHandle | None = None
        _reader: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            """Begins to wait for a request."""
            super().connection_made(transport)
            self._allow(doors.head)

        def connection_lost(self, exc: Exception | None) -> None:
            """Ends every wait."""
            self._stop_waiting()
            self._stop_watching()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            """Ends the wait when the headers are complete; more bytes alone do not extend it."""
            super().data_received(data)
            if self._answering:
                self._stop_waiting()
            elif self._deadline is None:
                self._allow(doors.head)

        def on_response_complete(self) -> None:
            """Waits for the end of the answer's way, then for the next request."""
            super().on_response_complete()
            if not self._answering and self._deadline is None:
                self._allow(max(doors.head, doors.stalled))

        def pause_writing(self) -> None:
            """Waits for a caller that takes its answer slowly."""
            super().pause_writing()
            if self._reader is None:
                self._reader = self.loop.call_later(doors.stalled, self._drop)

        def resume_writing(self) -> None:
            """The caller took it."""
            self._stop_watching()
            super().resume_writing()

        @property
        def _answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _allow(self, seconds: float) -> None:
            self._deadline = self.loop.call_later(seconds, self._close)

        def _close(self) -> None:
            self._deadline = None
            if not self._answering:
                self.transport.abort()

        def _drop(self) -> None:
            log.warning("a connection is closed: its answer is not taken")
            self.transport.abort()

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _stop_watching(self) -> None:
            if self._reader is not None:
                self._reader.cancel()
                self._reader = None

    return Bounded
