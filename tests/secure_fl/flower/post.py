"""Nodes of this process in place of machines, with real requests and real answers."""

from collections.abc import Callable, Mapping
from pathlib import Path

from secure_fl.crypto.keys import Identity
from secure_fl.federation import Client, wire
from secure_fl.flower import Node, NodePolicy
from secure_fl.flower.transport import REQUEST


class Post:
    """Hands messages to nodes of this process; forgets everything of a node but its folder."""

    def __init__(
        self, clients: list[Client], folder: Path, terms: Mapping[str, NodePolicy] | None = None
    ) -> None:
        self._identities = {client.name: Identity() for client in clients}
        self._directory = {name: each.public for name, each in self._identities.items()}
        self._clients = {client.name: client for client in clients}
        self._folder = folder
        self.terms = dict(terms or {})
        self.lost: Callable[[str, str], bool] = lambda name, what: False
        self.seen: list[tuple[str, bytes]] = []

    def node(self, name: str) -> Node:
        records = self._clients[name]

        def load() -> Client:
            return Client(name, records.features, records.targets)

        return Node(
            name,
            load,
            self._folder / name,
            identity=self._identities[name],
            directory=self._directory,
            terms=self.terms.get(name),
        )

    def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        answers = {}
        for name, request in requests.items():
            what = wire.decode(request, kind=REQUEST)["do"]
            if not self.lost(name, what):
                answers[name] = self.node(name).answer(request)
                self.seen.append((name, answers[name]))
        # Another order than that of the sum: answers come as they come.
        return dict(reversed(answers.items()))
