"""A training server that speaks the real protocol and tells every node what it likes.

The nodes are real ones, with real requests and real answers. Attack files also run on the version
that had no defence, to show that they bite there; what that version did not know is left out here.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import ProtocolError, QuorumError, wire
from secure_fl.federation.secagg import Parameters, ProtocolServer
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg.parameters import PROTOCOL
from secure_fl.federation.secagg.setup_server import ServerSetUp
from secure_fl.federation.steps import step_name
from secure_fl.flower import Node, NodePolicy
from secure_fl.flower.transport import ANSWER, REQUEST

STEPS = ("share", "mask", "confirm", "unmask")
UP = (m.SHARE, m.MASK, m.CONFIRM, m.UNMASK)
DOWN = (m.ADVERTISED, m.SHARED, m.MASKED, m.CONFIRMED)
PLAIN = {
    "clip": 2.0**20,
    "clients": 5,
    "bits": 64,
    "outside": "clip",
    "weighted": False,
    "largest": 1.0,
}
"""Codes of sums without noise."""


def known(cls: type, **options: Any) -> Any:
    """An object of those options that this version knows."""
    return cls(**{name: each for name, each in options.items() if name in attrs.fields_dict(cls)})


def terms(**options: Any) -> NodePolicy:
    """An owner's terms."""
    return known(NodePolicy, **options)


def parameters(session: bytes, names: Sequence[str], threshold: int, **others: Any) -> Parameters:
    """Of one sum over all with all, as far as the server must know them."""
    given = {
        "session": session,
        "round": 0,
        "call": 0,
        "names": tuple(names),
        "threshold": threshold,
        "degree": len(names) - 1,
        "share_threshold": threshold,
        "bits": 64,
        "agreed": bytes(32),
        **others,
    }
    return known(Parameters, **given)


@dataclass
class Cheat:
    """The server.

    Attributes:
        node: the machine of a client, anew for each message.
        names: clients of its sums.
        threshold: of its sums.
        session: of its sums.
        calls: sums begun.
        sums: that a set-up of keys serves.
        place: of the next sum among them; the first makes the set-up.
        setup: that later places go on with.
    """

    node: Callable[[str], Node]
    names: Sequence[str]
    threshold: int
    session: bytes = field(default_factory=lambda: os.urandom(16))
    calls: int = 0
    sums: int = 1
    place: int = 0
    setup: ServerSetUp | None = None

    def request(self, step: Callable[..., Any], *broadcast: Any, **changed: Any) -> dict[str, Any]:
        """What a node is told of a sum that begins; `changed` replaces parts of it."""
        plain = {
            "do": "begin",
            "protocol": PROTOCOL,
            "epoch": "0",
            "step": step_name(step),
            "broadcast": broadcast,
            "key": (0, 0, self.calls),
            "sum": {
                "session": np.frombuffer(self.session, np.uint8),
                "round": 0,
                "call": self.calls,
                "names": list(self.names),
                "threshold": self.threshold,
                "degree": len(self.names) - 1,
                "share_threshold": self.threshold,
                "bits": 64,
                "setup": 0,
                "sums": self.sums,
                "place": self.place,
            },
            "coding": {**PLAIN, "clients": len(self.names)},
        }
        return {**plain, **changed}

    def ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """A node's answer."""
        answer = self.node(name).answer(wire.encode(dict(request), kind=REQUEST))
        return dict(wire.decode(answer, kind=ANSWER))

    def begin(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
        """Begins a sum with every node's own request; what those say first who take part."""
        self.calls += 1
        answers = {name: self.ask(name, request) for name, request in requests.items()}
        return {n: a["message"].tobytes() for n, a in answers.items() if "message" in a}

    def sum(
        self,
        requests: Mapping[str, Mapping[str, Any]],
        until: str = "unmask",
        lost: Sequence[str] = (),
        quiet: Sequence[str] = (),
    ) -> NDArray[np.uint64] | None:
        """The sum of the nodes' codes, or None where it does not come about.

        Args:
            requests: what each node is told at the beginning.
            until: the last step that it asks for.
            lost: who is treated as lost before masking.
            quiet: whose confirmation is not passed on, so that nobody hears what it was told.
        """
        first = self.begin(requests)
        if len(first) < self.threshold:
            return None
        told = {"sums": self.sums, "place": self.place}
        parts = parameters(self.session, self.names, self.threshold, **told)
        if self.place:
            assert self.setup is not None
            parts.__dict__["setup_context"] = self.setup.parameters.setup_context
        server = ProtocolServer(parts, setup=self.setup if self.place else None)
        begun, left = (m.MASK, 2) if self.place else (m.ADVERTISE, 0)
        try:
            own = self._hear(server, parts, begun, first)
            for step, up, down in list(zip(STEPS, UP, DOWN, strict=True))[left:]:
                answers = {}
                for name, reply in server.close_step().items():
                    if step == "mask" and name in lost:
                        continue
                    message = np.frombuffer(_relabelled(down, reply, own[name]), np.uint8)
                    answer = self.ask(name, {"do": step, "message": message})
                    if "message" in answer and not (step == "confirm" and name in quiet):
                        answers[name] = answer["message"].tobytes()
                own = self._hear(server, parts, up, answers)
                if step == until:
                    break
            return server.total() if until == "unmask" else None
        except (QuorumError, ProtocolError):
            return None
        finally:
            self.setup, self.place = server.setup, (self.place + 1) % self.sums

    def _hear(
        self,
        server: ProtocolServer,
        parts: Parameters,
        kind: str,
        messages: Mapping[str, bytes],
    ) -> dict[str, bytes]:
        """Takes messages as of one sum, whatever the nodes were told; each one's own context."""
        own = {name: _context(kind, message) for name, message in messages.items()}
        if kind in (m.ADVERTISE, m.MASK) and own:
            common = Counter(own.values()).most_common(1)[0][0]
            of_setup = kind == m.ADVERTISE and self.sums > 1
            parts.__dict__["setup_context" if of_setup else "context"] = common
            server._context = parts.context
        known = parts.setup_context if kind in (m.ADVERTISE, m.SHARE) else parts.context
        for name, message in messages.items():
            server.receive(name, _relabelled(kind, message, known))
        return own


def decoded(total: NDArray[np.uint64] | None, step: float) -> NDArray[np.float64] | None:
    """The values of a sum of codes that stand `step` apart."""
    return None if total is None else total.view(np.int64) * step


def _context(kind: str, message: bytes) -> bytes:
    found: bytes = wire.decode(message, kind=kind)["context"].tobytes()
    return found


def _relabelled(kind: str, message: bytes, context: bytes) -> bytes:
    fields = {**wire.decode(message, kind=kind), "context": np.frombuffer(context, np.uint8)}
    return wire.encode(fields, kind=kind)
