"""A server that tells some clients that the victim survived and others that it was lost.

With both kinds of its shares the victim's masks come off and its vector is read. Each honest client
opens one kind by one list, and wants its list confirmed by enough others; colluding clients confirm
both lists and give both shares. Of n holders and a threshold t the server needs 2 t - n of them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fl.crypto.keys import KEY, KeyPair, authenticate, names_digest
from secure_fl.federation import ProtocolError, QuorumError, wire
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg import shares
from secure_fl.federation.secagg.client import pair_mask_key, self_mask_key
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.masks import add_masks
from secure_fl.federation.secagg.parameters import default_threshold, share_threshold
from secure_fl.objectives import SquaredLoss
from secure_fl.trainers.linear._client import local_gradient
from tests.attacks.cheat import Cheat, terms
from tests.attacks.table import Attack
from tests.secure_fl.federation.conftest import make_clients
from tests.secure_fl.federation.protocol import Party
from tests.secure_fl.flower.post import Post

ATTACK = Attack(
    name="tells clients different lists of survivors",
    holds="the training server and c of the n clients of a sum; its own choice of the threshold t",
    before="the victim's vector at c = 2t - n: 1 of 3 at the default threshold, 2 of 99 others at"
    " t = 51, 1 neighbour on any ring",
    after="nothing below that bound, which the default thresholds set at a third of the clients"
    " (of the neighbours, on a ring); nodes refuse sums that withstand fewer than their owner says",
)


class SplitServer:
    """The server of one sum, with clients that do all it wants.

    Args:
        party: n clients in the protocol; the first is the victim.
        colluding: clients that the server has in its hands, keys included.
        lost_at: honest clients that are told that the victim was lost.
    """

    def __init__(self, party: Party, colluding: Sequence[str], lost_at: Sequence[str]) -> None:
        self.party = party
        self.victim = party.names[0]
        self.colluding = frozenset(colluding)
        self._lists = {True: party.names, False: party.names[1:]}
        self._alive_at = {name: name not in lost_at for name in party.names}
        self._context = party.parameters.context
        self._setup_context = party.parameters.setup_context
        self._graph = Graph(party.names, party.parameters.degree, self._setup_context)
        self._adverts: dict[str, bytes] = {}
        self._vector: Any = None

    def learned(self) -> Any:
        """The victim's vector, or None: too few opened their shares."""
        masked = self._until_masked()
        confirmations = self._confirmations(masked)
        opened: dict[bool, dict[int, bytes]] = {True: {}, False: {}}
        numbers = self._graph.holders(self.victim)
        for name in numbers:
            for alive, share in self._shares_of(name, confirmations).items():
                opened[alive][numbers[name]] = share
        t = self.party.parameters.share_threshold
        if min(map(len, opened.values())) < t:
            return None
        return self._unmasked(*(shares.combine(opened[kind], t) for kind in (True, False)))

    def _until_masked(self) -> Mapping[str, bytes]:
        party = self.party
        for name in party.names:
            message = party.clients[name].advertise()
            keys = wire.decode(message, kind=m.ADVERTISE)["mask_keys"].tobytes()
            self._adverts[name] = keys[:KEY]
            party.server.receive(name, message)
        replies = party.share(party.server.close_step())
        for name, reply in replies.items():
            message = party.clients[name].mask(reply, party.vectors[name], "x")
            if name == self.victim:
                self._vector = wire.decode(message, kind=m.MASK)["masked"].copy()
            party.server.receive(name, message)
        return party.server.close_step()

    def _confirmations(self, masked: Mapping[str, bytes]) -> dict[str, dict[bool, Any]]:
        """What everybody says to each neighbour; a colluding client says both."""
        said: dict[str, dict[bool, Any]] = {}
        for name, reply in masked.items():
            client = self.party.clients[name]
            near = self._graph.neighbours(name)
            if name in self.colluding:
                said[name] = {
                    alive: {other: self._said(client, other, names) for other in near}
                    for alive, names in self._lists.items()
                }
                continue
            alive = self._alive_at[name]
            fields = {**wire.decode(reply, kind=m.MASKED), "names": list(self._lists[alive])}
            try:
                message = client.confirm(wire.encode(fields, kind=m.MASKED))
            except (QuorumError, ProtocolError):
                continue
            rows = wire.decode(message, kind=m.CONFIRM)["confirmations"]
            said[name] = {alive: {o: r.tobytes() for o, r in zip(near, rows, strict=True)}}
        return said

    def _said(self, client: Any, other: str, names: Any) -> bytes:
        key = client.setup.pairs[other].confirm_out
        return authenticate(key, self._context, names_digest(names))

    def _shares_of(self, name: str, said: Mapping[str, dict[bool, Any]]) -> dict[bool, bytes]:
        """The victim's shares that a holder gives, by whether its own masks are opened by them."""
        client = self.party.clients[name]
        if name in self.colluding:
            of_pair, of_self = client._shares.held[self.victim]
            return {True: of_self, False: of_pair}
        alive = self._alive_at[name]
        others = [
            other
            for other in self._graph.neighbours(name)
            if alive in said.get(other, {}) and other in self._lists[alive]
        ]
        rows = [said[other][alive][name] for other in others]
        fields = {"names": others, "confirmations": m.blobs(rows, 32)}
        try:
            message = client.unmask(m.pack(m.CONFIRMED, self._context, fields))
        except (QuorumError, ProtocolError):
            return {}
        found = wire.decode(message, kind=m.UNMASK)
        kind = "alive" if alive else "lost"
        place = found[kind].index(self.victim)
        return {alive: found[f"{kind}_shares"][place].tobytes()}

    def _unmasked(self, self_seed: bytes, mask_seed: bytes) -> Any:
        pair = KeyPair.from_seed(mask_seed, self._setup_context)
        plus = [self_mask_key(self_seed, self._context, self.victim)]
        minus: list[bytes] = []
        for other in self._graph.neighbours(self.victim):
            key = pair_mask_key(pair, self._adverts[other], self._context, self.victim, other)
            (plus if self.victim < other else minus).append(key)
        vector = self._vector
        add_masks(vector, minus, plus)
        return vector


def split(party: Party, count: int) -> Any:
    """What the server learns at best, over all ways to split a complete graph."""
    colluding = party.names[len(party.names) - count :]
    honest = party.names[1 : len(party.names) - count]
    needed = party.parameters.share_threshold - count
    for size in {len(honest) // 2, max(0, needed), len(honest) - max(0, needed - 1)}:
        fresh = Party(party.n, threshold=party.threshold, identities=party.identities)
        found = SplitServer(fresh, colluding, honest[:size]).learned()
        if found is not None:
            assert np.array_equal(found, fresh.vectors[fresh.names[0]])
            return found
    return None


HUNDRED = pytest.param(100, 51, marks=pytest.mark.slow)


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 9, 10, 12])
def test_a_third_of_the_clients_learn_nothing_at_the_default_threshold(n: int) -> None:
    colluding = n // 3
    assert split(Party(n, threshold=default_threshold(n)), colluding) is None


@pytest.mark.parametrize(("n", "t"), [(3, 2), (4, 3), (5, 4), (6, 4), (10, 7), HUNDRED])
def test_the_bound_is_exact(n: int, t: int) -> None:
    """At 2 t - n the attack works, whatever a client does; one client fewer learns nothing."""
    assert split(Party(n, threshold=t), 2 * t - n) is not None
    if 2 * t - n > 1:
        assert split(Party(n, threshold=t), 2 * t - n - 1) is None


def ring(n: int, degree: int, share: int, count: int) -> Any:
    """The same on a ring: one side of the victim is told that it was lost."""
    party = Party(n, degree=degree, shares=share, threshold=n // 2 + 1)
    graph = Graph(party.names, degree, party.parameters.context)
    place = graph._ring.index(party.names[0])
    around = graph._ring[place:] + graph._ring[:place]
    return SplitServer(party, around[n - count :], around[1 : n // 2]).learned()


@pytest.mark.parametrize(("degree", "count"), [(6, 1), (10, 1), (10, 3), (30, 5), (30, 10)])
def test_a_third_of_a_neighbourhood_learns_nothing_on_a_ring(degree: int, count: int) -> None:
    assert ring(100, degree, share_threshold(100, degree, 100), count) is None


@pytest.mark.parametrize("degree", [4, 10, 30])
def test_with_shares_just_above_half_one_neighbour_was_enough(degree: int) -> None:
    """2 s - (degree + 1) is 1 then; an owner's `colluding` refuses such a ring."""
    assert ring(100, degree, degree // 2 + 1, 1) is not None
    assert ring(100, degree, degree // 2 + 1, 0) is None


# ------------------------------------------------------------------------------ the owner's policy


def asked(
    folder: Path, n: int, threshold: int, owner: dict[str, Any], **changed: int
) -> dict[str, Any]:
    """What a node answers to the beginning of a sum of n clients."""
    clients = make_clients(n)
    for client in clients:
        client.targets = (client.targets > 0).astype(int)
    post = Post(clients, folder, {"a": terms(secure=True, **owner)})
    cheat = Cheat(post.node, [client.name for client in clients], threshold)
    request = cheat.request(local_gradient, SquaredLoss(0.1, 2), np.zeros((4, 2)))
    request["sum"] |= changed
    return cheat.ask("a", request)


@pytest.mark.parametrize(
    ("n", "threshold", "owner"),
    [
        (3, 2, {"colluding": 1}),
        (3, 2, {}),
        (6, 4, {}),
        (10, 7, {"colluding": 4}),
        (10, 7, {"threshold": 8}),
        (10, 6, {}),
        (10, 6, {"threshold": 6, "colluding": 2}),
    ],
)
def test_a_node_takes_no_part_in_a_sum_that_its_owner_finds_too_weak(
    tmp_path: Path, n: int, threshold: int, owner: dict[str, Any]
) -> None:
    assert "dropped" in asked(tmp_path, n, threshold, owner)


@pytest.mark.parametrize(
    ("n", "threshold", "owner"),
    [(3, 3, {}), (10, 7, {"colluding": 3}), (10, 8, {"threshold": 8}), (10, 6, {"threshold": 6})],
)
def test_a_node_takes_part_at_its_owners_bound(
    tmp_path: Path, n: int, threshold: int, owner: dict[str, Any]
) -> None:
    assert "message" in asked(tmp_path, n, threshold, owner)


@pytest.mark.parametrize("colluding", [1, 2])
def test_a_node_counts_the_colluders_of_a_ring_by_neighbourhood(
    tmp_path: Path, colluding: int
) -> None:
    """The server may ask for a ring on which the threshold of all says nothing."""
    sparse = {"degree": 4, "share_threshold": 3}
    assert "dropped" in asked(tmp_path, 10, 9, {"colluding": colluding}, **sparse)
