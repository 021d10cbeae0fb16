"""One secure sum with all parties in this process: real messages, passed on by a loop."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from attrs import frozen

from secure_fl.errors import QuorumError
from secure_fl.federation.metering import Traffic
from secure_fl.federation.participation import Stage
from secure_fl.federation.secagg.client import ProtocolClient
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.server import ProtocolServer

log = logging.getLogger(__name__)

Observer: TypeAlias = Callable[[str, str, bytes], None]
"""(sender, receiver, message); the server is "". For tests and transcripts."""


@frozen
class SecureTotal:
    """What one secure sum gave.

    Attributes:
        total: sum of the survivors' vectors modulo 2^bits, shape (d,).
        survivors: in the fixed order.
        traffic: of every client that was asked; `floats` counts masked entries.
    """

    total: Words
    survivors: tuple[str, ...]
    traffic: Mapping[str, Traffic]


class LocalRun:
    """Drives clients and server through the five steps.

    Args:
        server: fresh.
        clients: fresh, those that are there at the start.
        vectors: of the clients that have one; the others fall silent before MASK.
        lost: clients that fall silent earlier than that, and before which message.
        structure: public description of the vectors.
        observe: sees every message.
    """

    def __init__(
        self,
        server: ProtocolServer,
        clients: Mapping[str, ProtocolClient],
        vectors: Mapping[str, Words],
        lost: Mapping[str, Stage],
        structure: str = "",
        observe: Observer | None = None,
    ) -> None:
        self._server = server
        self._clients = dict(clients)
        self._vectors = vectors
        self._lost = lost
        self._structure = structure
        self._observe = observe
        self._up = dict.fromkeys(clients, 0)
        self._down = dict.fromkeys(clients, 0)

    def run(self) -> SecureTotal:
        """The sum.

        Raises:
            QuorumError: fewer clients left than the threshold; nothing is revealed.
            ProtocolError: a party caught another one cheating.
        """
        for name, client in self._present(Stage.ADVERTISE):
            self._send(name, client.advertise)
        replies = self._close()
        for name, client in self._present(Stage.SHARE):
            self._send(name, partial(client.share, replies[name]))
        replies = self._close()
        for name, client in self._present(Stage.MASK):
            vector = self._vectors[name]
            self._send(name, partial(client.mask, replies[name], vector, self._structure))
        replies = self._close()
        for name, client in self._present(Stage.UNMASK):
            self._send(name, partial(client.confirm, replies[name]))
        replies = self._close()
        for name, client in self._present(Stage.UNMASK):
            self._send(name, partial(client.unmask, replies[name]))
        total = self._server.total()
        sent = set(self._server.survivors)
        traffic = {
            name: Traffic(self._down[name], up, 0, len(total) if name in sent else 0)
            for name, up in self._up.items()
        }
        return SecureTotal(total, self._server.survivors, traffic)

    def _present(self, stage: Stage) -> list[tuple[str, ProtocolClient]]:
        for name in list(self._clients):
            gone = self._lost.get(name, len(Stage)) <= stage
            if gone or (stage >= Stage.MASK and name not in self._vectors):
                del self._clients[name]
        return list(self._clients.items())

    def _send(self, name: str, answer: Callable[[], bytes]) -> None:
        try:
            message = answer()
        except QuorumError as error:
            # It saw too few neighbours: for the others it has dropped out.
            log.info("%s", error)
            return
        self._up[name] += len(message)
        if self._observe is not None:
            self._observe(name, "", message)
        self._server.receive(name, message)

    def _close(self) -> dict[str, bytes]:
        replies = self._server.close_step()
        for name, message in replies.items():
            self._down[name] += len(message)
            if self._observe is not None:
                self._observe("", name, message)
        # Whose message could not be used hears no more of this sum.
        self._clients = {n: client for n, client in self._clients.items() if n in replies}
        return replies
