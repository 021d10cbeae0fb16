"""One secure sum in a test, with every message in hand."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import Stage
from secure_fl.federation.secagg import (
    Identity,
    Member,
    Parameters,
    ProtocolClient,
    ProtocolServer,
)
from secure_fl.federation.secagg.local import LocalRun, SecureTotal
from secure_fl.federation.secagg.parameters import default_threshold, share_threshold

SESSION = bytes(range(16))
AGREED = bytes(32)


def names_of(n: int) -> tuple[str, ...]:
    return tuple(f"client{i:03}" for i in range(n))


@dataclass
class Party:
    """n clients with their vectors and keys.

    Attributes:
        transcript: (sender, receiver, message) of everything that was sent; the server is "".
    """

    n: int
    length: int = 5
    bits: int = 64
    degree: int | None = None
    threshold: int | None = None
    shares: int | None = None
    round: int = 0
    call: int = 0
    session: bytes = SESSION
    agreed: bytes = AGREED
    sums: int = 1
    common: bytes = bytes(32)
    entropy: Callable[[int], bytes] = os.urandom
    identities: dict[str, Identity] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    transcript: list[tuple[str, str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = names_of(self.n)
        for name in self.names:
            self.identities.setdefault(name, Identity())
        self.directory = {name: each.public for name, each in self.identities.items()}
        degree = self.n - 1 if self.degree is None else self.degree
        threshold = self.threshold or default_threshold(self.n)
        shares = self.shares or share_threshold(self.n, degree, threshold)
        self.parameters = Parameters(
            self.session,
            self.round,
            self.call,
            self.names,
            threshold,
            degree,
            shares,
            self.bits,
            sums=self.sums,
            common=self.common,
            agreed=self.agreed,
        )
        rng = np.random.default_rng(self.n)
        dtype = np.dtype(f"u{self.bits // 8}")
        self.vectors: dict[str, NDArray[Any]] = {
            name: rng.integers(0, 2**self.bits, self.length, dtype) for name in self.names
        }
        self.server = ProtocolServer(self.parameters)
        for name in self.names:
            self.members.setdefault(name, self.member(name))
        self.clients = {name: self.client(name) for name in self.names}

    def member(self, name: str) -> Member:
        """The client in a session that begins anew for it."""
        identity = self.identities[name]
        return Member(name, identity, self.directory, self.session, self.entropy)

    def client(self, name: str) -> ProtocolClient:
        return ProtocolClient(self.members[name], self.parameters, self.entropy)

    def run(self, lost: Mapping[str, Stage] | None = None) -> SecureTotal:
        def observe(sender: str, receiver: str, message: bytes) -> None:
            self.transcript.append((sender, receiver, message))

        run = LocalRun(self.server, self.clients, self.vectors, lost or {}, "x", observe)
        return run.run()

    def plain(self, names: tuple[str, ...]) -> list[int]:
        """The sum modulo 2^bits in Python's integers."""
        columns = [self.vectors[name].tolist() for name in names]
        return [sum(column) % 2**self.bits for column in zip(*columns, strict=True)]

    # --------------------------------------------------------------- step by step, for attacks

    def advertise(self) -> dict[str, bytes]:
        for name in self.names:
            self.server.receive(name, self.clients[name].advertise())
        return self.server.close_step()

    def share(self, replies: Mapping[str, bytes]) -> dict[str, bytes]:
        for name, reply in replies.items():
            self.server.receive(name, self.clients[name].share(reply))
        return self.server.close_step()

    def mask(self, replies: Mapping[str, bytes], without: tuple[str, ...] = ()) -> dict[str, bytes]:
        for name, reply in replies.items():
            if name not in without:
                message = self.clients[name].mask(reply, self.vectors[name], "x")
                self.server.receive(name, message)
        return self.server.close_step()

    def confirm(self, replies: Mapping[str, bytes]) -> dict[str, bytes]:
        for name, reply in replies.items():
            self.server.receive(name, self.clients[name].confirm(reply))
        return self.server.close_step()

    def unmask(self, replies: Mapping[str, bytes]) -> list[int]:
        for name, reply in replies.items():
            self.server.receive(name, self.clients[name].unmask(reply))
        return self.server.total().tolist()
