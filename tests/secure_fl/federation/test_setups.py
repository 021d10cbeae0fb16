"""One set-up of keys and shares for several sums: each exact, each by itself, each once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.crypto.keys import Identity, Member
from secure_fl.errors import FederationError, ProtocolError, QuorumError
from secure_fl.federation import Stage, wire
from secure_fl.federation.secagg import Parameters, ProtocolClient, ProtocolServer
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg.parameters import MOST_SUMS, default_threshold
from secure_fl.federation.secagg.setup import SetUp
from tests.secure_fl.federation.protocol import AGREED, SESSION, names_of

OTHER = bytes([1]) * 32


class Cohort:
    """Clients and a server with one set-up; `run` makes its next sum."""

    def __init__(self, n: int = 5, sums: int = 3, length: int = 4, **changed: Any) -> None:
        self.names, self.sums, self.place = names_of(n), sums, 0
        self.changed = changed
        identities = {name: Identity() for name in self.names}
        directory = {name: each.public for name, each in identities.items()}
        self.members = {
            name: Member(name, identities[name], directory, SESSION) for name in self.names
        }
        self.vectors = {
            name: np.random.default_rng(i).integers(0, 2**64, length, np.uint64)
            for i, name in enumerate(self.names)
        }
        self.setups: dict[str, SetUp] = {}
        self.server: ProtocolServer | None = None
        self.sent: dict[tuple[int, str], bytes] = {}

    def parameters(self, place: int, agreed: bytes = AGREED, **changed: Any) -> Parameters:
        n = len(self.names)
        numbers = {"threshold": default_threshold(n), "degree": n - 1}
        given = {"share_threshold": default_threshold(n), "sums": self.sums, **numbers}
        whole = {"place": place, "agreed": agreed, **given, **self.changed, **changed}
        return Parameters(SESSION, 0, place, self.names, **whole)

    def client(self, name: str, place: int, agreed: bytes = AGREED) -> ProtocolClient:
        setup = self.setups[name] if place else None
        found = ProtocolClient(self.members[name], self.parameters(place, agreed), setup=setup)
        self.setups[name] = found.setup
        return found

    def begin(
        self, told: dict[str, bytes] | None = None
    ) -> tuple[dict[str, ProtocolClient], dict[str, bytes]]:
        """The next sum up to the masked vectors; `told`: clients that were told otherwise."""
        told, place = told or {}, self.place
        self.place += 1
        clients = {n: self.client(n, place, told.get(n, AGREED)) for n in self.names}
        setup = None if self.server is None else self.server.setup
        self.server = server = ProtocolServer(self.parameters(place), setup=setup)
        replies: dict[str, bytes | None] = dict.fromkeys(self.names)
        if place == 0:
            for name, client in clients.items():
                server.receive(name, client.advertise())
            for name, reply in server.close_step().items():
                server.receive(name, clients[name].share(reply))
            replies = dict(server.close_step())
        vectors = self.vectors
        # Shares come with what asks for the vector, so that who is lost then has them too.
        sent = {n: clients[n].mask(reply, vectors[n], "x") for n, reply in replies.items()}
        return clients, sent

    def run(
        self, lost: dict[str, Stage] | None = None, told: dict[str, bytes] | None = None
    ) -> np.ndarray:
        """The next sum; who is lost in it is there again in the one after."""
        lost, place = lost or {}, self.place
        clients, sent = self.begin(told)
        server = self.server
        for name, message in sent.items():
            self.sent[place, name] = message
            if lost.get(name) != Stage.MASK:
                server.receive(name, message)
        for name, reply in server.close_step().items():
            if lost.get(name) != Stage.UNMASK:
                server.receive(name, clients[name].confirm(reply))
        for name, reply in server.close_step().items():
            server.receive(name, clients[name].unmask(reply))
        return server.total()

    def plain(self) -> list[int]:
        whole = [self.vectors[name].tolist() for name in self.server.survivors]
        return [sum(column) % 2**64 for column in zip(*whole, strict=True)]


@pytest.mark.parametrize("degree", [4, 9])
def test_every_sum_of_a_set_up_is_exact(degree: int) -> None:
    cohort = Cohort(10, sums=4, degree=degree, share_threshold=degree // 2 + 2)
    for _ in range(4):
        assert cohort.run().tolist() == cohort.plain()
        assert cohort.server.survivors == cohort.names


LOST = st.dictionaries(st.sampled_from(names_of(5)), st.sampled_from([Stage.MASK, Stage.UNMASK]))


@settings(max_examples=15)
@given(st.lists(LOST, min_size=3, max_size=3))
def test_any_pattern_of_drop_outs_gives_exact_sums_or_a_quorum_error(
    lost: list[dict[str, Stage]],
) -> None:
    """Who is lost in one sum has its shares of the next ones still, and so have the others."""
    cohort = Cohort()
    for each in lost:
        if len(cohort.names) - len(each) < default_threshold(5):
            with pytest.raises(QuorumError):
                cohort.run(each)
        else:
            assert cohort.run(each).tolist() == cohort.plain()
            gone = {name for name, stage in each.items() if stage == Stage.MASK}
            assert set(cohort.server.survivors) == set(cohort.names) - gone


def masked(message: bytes) -> np.ndarray:
    return wire.decode(message, kind=m.MASK)["masked"]


def test_no_two_sums_have_a_mask_in_common() -> None:
    """One vector, masked in every place: no word, and no difference of two, comes twice."""
    cohort = Cohort(3, sums=4, length=500)
    for _ in range(4):
        cohort.run()
    name = cohort.names[0]
    rows = [masked(cohort.sent[place, name]) for place in range(4)]
    assert len({int(word) for row in rows for word in row}) == 4 * 500
    shifts = {int(x) for a in range(4) for b in range(a) for x in rows[a] - rows[b]}
    assert len(shifts) == 6 * 500


def test_a_place_serves_once() -> None:
    cohort = Cohort()
    cohort.run()
    name = cohort.names[0]
    with pytest.raises(ProtocolError, match="asked twice for sum 0"):
        cohort.setups[name].take(0)
    cohort.run()
    again = cohort.parameters(1, agreed=OTHER)
    client = ProtocolClient(cohort.members[name], again, setup=cohort.setups[name])
    with pytest.raises(ProtocolError, match="asked twice for sum 1"):
        client.mask(None, cohort.vectors[name])


def test_what_was_used_is_forgotten() -> None:
    """Seeds and shares of sums that ended are nowhere in what a client keeps."""
    secrets: list[bytes] = []

    def entropy(size: int) -> bytes:
        secrets.append(np.random.default_rng(len(secrets)).bytes(size))
        return secrets[-1]

    cohort = Cohort(3, sums=2)
    name = cohort.names[0]
    setup = SetUp(cohort.members[name], cohort.parameters(0), entropy)
    kept = wire.encode(setup.dump(), kind="x")
    assert all(secret in kept for secret in secrets)
    setup._own_shares = [bytes([7]) * 16, bytes([8]) * 16]
    setup.take(0)
    kept = wire.encode(setup.dump(), kind="x")
    assert [secret in kept for secret in secrets] == [False, False, True, True]
    assert bytes([7]) * 16 not in kept


def test_a_set_up_survives_its_process() -> None:
    cohort = Cohort()
    cohort.run()
    for name, setup in cohort.setups.items():
        kept = wire.decode(wire.encode(setup.dump(), kind="x"), kind="x")
        fresh = Member(name, Identity(), {}, SESSION)
        cohort.setups[name] = SetUp.load(fresh, cohort.parameters(1), kept)
    assert cohort.run().tolist() == cohort.plain()


def test_another_party_opens_a_later_sum() -> None:
    """The querier of a masked batch: it knows the place, and has the sum and the shares."""
    cohort = Cohort()
    cohort.run()
    name = cohort.names[2]
    cohort.run({name: Stage.MASK})
    handed = wire.decode(wire.encode(cohort.server.masked_sum(), kind="x"), kind="x")
    opener = ProtocolServer.opener(cohort.parameters(1), handed, 4)
    assert opener.survivors == cohort.server.survivors
    opener._opened = cohort.server._opened
    assert opener.total().tolist() == cohort.plain()
    wrong = ProtocolServer.opener(cohort.parameters(2), handed, 4)
    wrong._opened = cohort.server._opened
    assert wrong.total().tolist() != cohort.plain()


def test_a_set_up_of_one_sum_is_bound_to_all_of_it_and_of_several_to_what_they_share() -> None:
    one, several = Cohort(sums=1), Cohort(sums=3)
    for cohort, bound in ((one, True), (several, False)):
        first, other = cohort.parameters(0), cohort.parameters(0, agreed=OTHER)
        assert first.context != other.context
        assert (first.setup_context != other.setup_context) == bound
    contexts = {several.parameters(place).context for place in range(3)}
    assert len(contexts) == 3
    plain = several.parameters(0)
    changes: list[dict[str, Any]] = [
        {"setup": 1},
        {"sums": 4},
        {"common": OTHER},
        {"threshold": 5},
        {"share_threshold": 5},
        {"bits": 32},
    ]
    for changed in changes:
        assert several.parameters(0, **changed).setup_context != plain.setup_context


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sums": 0}, "sums: found 0"),
        ({"sums": MOST_SUMS + 1}, f"sums: found {MOST_SUMS + 1}"),
        ({"place": 3}, "place: found 3, expected 0 to 2"),
        ({"place": -1}, "place: found -1"),
    ],
)
def test_a_place_or_number_of_sums_out_of_range_is_refused(
    changed: dict[str, int], words: str
) -> None:
    with pytest.raises(FederationError, match=words):
        Cohort().parameters(**{"place": 0, **changed})


# ------------------------------------------------------------------------------ the server cheats


@pytest.mark.parametrize("place", [0, 1])
def test_clients_that_were_told_otherwise_are_no_part_of_a_sum(place: int) -> None:
    """An honest server finds it in their first message of the sum, and sums the others."""
    cohort = after(place)
    assert cohort.run(told={cohort.names[1]: OTHER}).tolist() == cohort.plain()
    assert cohort.names[1] not in cohort.server.survivors
    assert "told otherwise" in cohort.server.rejected[cohort.names[1]]


def relabelled(kind: str, message: bytes, context: bytes) -> bytes:
    fields = {**wire.decode(message, kind=kind), "context": m.blob(context)}
    return wire.encode(fields, kind=kind)


def after(place: int) -> Cohort:
    """A cohort whose next sum has that place."""
    cohort = Cohort()
    for _ in range(place):
        cohort.run()
    return cohort


@pytest.mark.parametrize("place", [0, 1])
def test_a_masked_vector_of_who_was_told_otherwise_stays_masked(place: int) -> None:
    """The server calls the victim a survivor of the others' sum, and gets its self mask.

    What it holds then is the victim's vector under masks that no other client has.
    """
    cohort = after(place)
    victim, *others = cohort.names
    clients, sent = cohort.begin({victim: OTHER})
    server, context = cohort.server, cohort.parameters(place).context
    for name, message in sent.items():
        server.receive(name, relabelled(m.MASK, message, context))
    listed = server.close_step()
    assert server.survivors == cohort.names
    for name in others:
        server.receive(name, clients[name].confirm(listed[name]))
    for name, reply in server.close_step().items():
        server.receive(name, clients[name].unmask(reply))
    total = server.total()
    rest = sum(cohort.vectors[name] for name in others)
    assert not np.any(total - rest == cohort.vectors[victim])
    assert not np.any(total == rest)


@pytest.mark.parametrize("place", [0, 1])
def test_a_confirmation_of_who_was_told_otherwise_ends_the_sum(place: int) -> None:
    cohort = after(place)
    victim, other = cohort.names[:2]
    clients, sent = cohort.begin({victim: OTHER})
    server = cohort.server
    context, told = cohort.parameters(place).context, cohort.parameters(place, OTHER).context
    for name, message in sent.items():
        server.receive(name, relabelled(m.MASK, message, context))
    for name, reply in server.close_step().items():
        own = told if name == victim else context
        message = clients[name].confirm(relabelled(m.MASKED, reply, own))
        server.receive(name, relabelled(m.CONFIRM, message, context))
    confirmed = server.close_step()
    with pytest.raises(ProtocolError, match="told otherwise"):
        clients[other].unmask(confirmed[other])
    with pytest.raises(ProtocolError, match="told otherwise"):
        clients[victim].unmask(relabelled(m.CONFIRMED, confirmed[victim], told))


def test_a_confirmation_of_another_place_does_not_count() -> None:
    """The list of survivors is the same, and so are the keys; the sum is not."""
    cohort = after(1)
    name = cohort.names[0]
    confirmed = []
    for _ in range(2):
        clients, sent = cohort.begin()
        for each, message in sent.items():
            cohort.server.receive(each, message)
        for each, reply in cohort.server.close_step().items():
            cohort.server.receive(each, clients[each].confirm(reply))
        confirmed.append(cohort.server.close_step()[name])
    replay = relabelled(m.CONFIRMED, confirmed[0], cohort.parameters(2).context)
    with pytest.raises(ProtocolError, match="confirmed another list of survivors, or was told"):
        clients[name].unmask(replay)


def test_a_later_sum_needs_its_set_up_and_takes_no_other_shares() -> None:
    cohort = Cohort()
    cohort.run()
    name = cohort.names[0]
    with pytest.raises(ProtocolError, match="has no keys for sum 1"):
        ProtocolClient(cohort.members[name], cohort.parameters(1))
    client = cohort.client(name, 1)
    with pytest.raises(ProtocolError, match="shares of another set-up, or none"):
        client.mask(b"", cohort.vectors[name])
    with pytest.raises(ProtocolError, match="out of order"):
        cohort.client(cohort.names[1], 1).share(b"")
