"""A querier that sends one contributor of a masked sum the real query and the others a far one.

The others' codes at a query far from all their records are the largest, so the smallest integer of
the sum is the victim's own: code and class. The cheat is the server and the querier in one, speaks
the real protocol to real contributors, and opens whatever sum it gets: one whose keys are its own,
the first of a set-up of keys of several, or a later one, whose rows leave before anybody has heard
what the others were told.
"""

import contextlib
import hashlib
from typing import Any

import numpy as np
import pytest

from secure_fl.errors import ProtocolError, QuorumError
from secure_fl.federation import wire
from secure_fl.federation.secagg import Identity, Member, Parameters, ProtocolClient, ProtocolServer
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg.setup import SetUp
from secure_fl.federation.secagg.setup_server import ServerSetUp
from secure_fl.heads.codes import head_codes
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.manifest import make_manifest
from secure_fl.masked import Opened, RowCoding, Told
from tests.attacks.table import Attack

ATTACK = Attack(
    name="asks the contributors of one masked sum different queries",
    holds="the querier and the evaluator, and what they tell each contributor: queries, batch,"
    " manifest",
    before="the victim's smallest code and its class, exactly (a sum that binds cohort and session"
    " alone)",
    after="nothing: masks and confirmations of contributors that were told differently do not meet,"
    " whether keys were made for the sum or for an earlier one",
)

NAMES = tuple("abcde")
VICTIM = "a"
SESSION = bytes(16)
THRESHOLD = 4


def federation() -> tuple[Any, dict[str, Any]]:
    rng = np.random.default_rng(0)
    manifest = make_manifest(
        classes=("x", "y", "z"), clients=NAMES, n_features=4, bits=6, rule="masked"
    )
    parties = [(n, rng.normal(size=(30, 4)), np.arange(30) % 3) for n in NAMES]
    return manifest, {head.client: head for head in train_heads(parties, manifest)}


MANIFEST, HEADS = federation()
CODING = RowCoding(MANIFEST.bits, len(MANIFEST.classes))
REAL = np.array([[0.3, -0.2, 0.1, 0.4]], np.float32)
FAR = np.full((1, 4), 1e6, np.float32)


SUMS = 3


class Contributor:
    """A real one: it folds what it is told, and makes the digest of that itself."""

    def __init__(self, name: str, identities: dict[str, Identity], sums: int) -> None:
        directory = {other: each.public for other, each in identities.items()}
        self._member = Member(name, identities[name], directory, SESSION)
        self._sums = sums
        self._setup: SetUp | None = None

    def told(self, told: Told, place: int, *, bound: bool) -> None:
        """The next sum."""
        self.codes = head_codes(HEADS[self._member.name], told.queries, MANIFEST)
        agreed = told.agreed(CODING, 0, len(told.queries)) if bound else bytes(32)
        p = parameters(agreed, self._sums, place, told.federation)
        setup = self._setup if place else None
        self.protocol = ProtocolClient(self._member, p, setup=setup)
        self._setup = self.protocol.setup

    def say(self, step: str, message: bytes) -> bytes:
        if step == "advertise":
            return self.protocol.advertise()
        if step == "mask":
            return self.protocol.mask(message or None, CODING.rows(self.codes), "rows")
        return bytes(getattr(self.protocol, step)(message))


def parameters(agreed: bytes, sums: int = 1, place: int = 0, federation: str = "") -> Parameters:
    """What stands for all sums is the federation, as each party knows it."""
    common = hashlib.sha256((federation or MANIFEST.fingerprint).encode()).digest()
    rest: Any = {"sums": sums, "place": place, "common": common, "agreed": agreed}
    return Parameters(SESSION, 0, 0, NAMES, THRESHOLD, 4, THRESHOLD, **rest)


def run(
    told: dict[str, Told], *, bound: bool = True, sums: int = 1, place: int = 0
) -> list[tuple[tuple[str, ...], Opened]]:
    """What a server opens that tells every contributor what it likes: whose rows, and the answer.

    It may follow the context of any of them, and begins anew for each. Before a later place of a
    set-up all were told alike, so they have keys in common.
    """
    contexts = dict.fromkeys(
        (told[name].agreed(CODING, 0, len(told[name].queries)), told[name].federation)
        if bound
        else (bytes(32), MANIFEST.fingerprint)
        for name in NAMES
    )
    opened = []
    for agreed, federation in contexts:
        parties, setup = after(place, sums)
        known = parameters(agreed, sums, place, federation)
        server = tell(parties, told, known, sums, place, setup, bound=bound)
        answer = attempt(server, parties)
        if answer is not None:
            opened.append((server.survivors, answer))
    return opened


def after(place: int, sums: int) -> tuple[dict[str, Contributor], Any]:
    """Fresh parties that ended so many sums, told alike, and their set-up."""
    identities = {name: Identity() for name in NAMES}
    parties = {name: Contributor(name, identities, sums) for name in NAMES}
    setup = None
    for before in range(place):
        server = tell(parties, everybody(honest(batch=f"b{before}")), None, sums, before, setup)
        assert attempt(server, parties) is not None
        setup = server.setup
    return parties, setup


def tell(
    parties: dict[str, Contributor],
    told: dict[str, Told],
    known: Parameters | None,
    sums: int,
    place: int,
    setup: ServerSetUp | None,
    *,
    bound: bool = True,
) -> ProtocolServer:
    """Tells every contributor of the next sum; the server of it, by what the first was told."""
    for name, party in parties.items():
        party.told(told[name], place, bound=bound)
    if known is None:
        first = told[NAMES[0]]
        known = parameters(first.agreed(CODING, 0, len(first.queries)), sums, place)
    return ProtocolServer(known, setup=setup if place else None)


def attempt(server: ProtocolServer, parties: dict[str, Contributor]) -> Opened | None:
    """Drives the parties through all steps, as far as they go."""
    replies: dict[str, bytes] = dict.fromkeys(parties, b"")
    try:
        for step in ("advertise", "share", "mask", "confirm", "unmask")[server.step - 1 :]:
            for name, message in replies.items():
                with contextlib.suppress(ProtocolError, QuorumError):
                    server.receive(name, parties[name].say(step, message))
            replies = server.close_step() if step != "unmask" else {}
        return CODING.open(server.total())
    except (ProtocolError, QuorumError):
        return None


def honest(queries: np.ndarray = REAL, **other: str) -> Told:
    return Told(**{"federation": MANIFEST.fingerprint, "batch": "b", **other, "queries": queries})


def everybody(told: Told, **others: Told) -> dict[str, Told]:
    return {**dict.fromkeys(NAMES, told), **others}


PLACES = [(1, 0), (SUMS, 0), (SUMS, 1), (SUMS, SUMS - 1)]
"""Sums of a set-up of keys, and the place of the one that is attacked."""
each_place = pytest.mark.parametrize(("sums", "place"), PLACES)


@each_place
def test_contributors_that_were_told_alike_are_summed(sums: int, place: int) -> None:
    """The cheat's own machinery works."""
    ((names, opened),) = run(everybody(honest()), sums=sums, place=place)
    codes = np.stack([head_codes(HEADS[name], REAL, MANIFEST) for name in NAMES])
    assert names == NAMES
    assert opened.codes.tolist() == [codes.min()]


@pytest.mark.parametrize(("sums", "place"), PLACES[:2])
def test_a_sum_that_binds_no_query_shows_the_victims_code(sums: int, place: int) -> None:
    """The attack bites where contributors do not bind what they were told."""
    told = {**everybody(honest(FAR)), VICTIM: honest()}
    ((_, opened),) = run(told, bound=False, sums=sums, place=place)
    own = CODING.pack(head_codes(HEADS[VICTIM], REAL, MANIFEST))
    assert (opened.codes * CODING.classes + opened.classes).tolist() == own.tolist()


DIFFERENT = {
    "a far query": honest(FAR),
    "a query that differs by one bit": honest(np.nextafter(REAL, np.float32(1))),
    "a query more": honest(np.concatenate([REAL, FAR])),
    "another batch": honest(batch="c"),
    "another manifest": honest(federation="0" * 64),
}


@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.parametrize(("sums", "place"), PLACES[:2])
def test_a_contributor_that_was_told_differently_is_in_no_sum(
    what: str, sums: int, place: int
) -> None:
    """The others, told alike and enough, have a sum of their own; the victim's row is not in it."""
    opened = run({**everybody(DIFFERENT[what]), VICTIM: honest()}, sums=sums, place=place)
    assert [names for names, _ in opened] == [tuple(n for n in NAMES if n != VICTIM)]


@pytest.mark.parametrize("what", [each for each in DIFFERENT if each != "another manifest"])
@pytest.mark.parametrize(("sums", "place"), PLACES[2:])
def test_nor_with_the_keys_of_an_earlier_sum(what: str, sums: int, place: int) -> None:
    """All have keys in common then, and the victim's row has left; it is in no sum all the same."""
    opened = run({**everybody(DIFFERENT[what]), VICTIM: honest()}, sums=sums, place=place)
    assert [names for names, _ in opened] == [tuple(n for n in NAMES if n != VICTIM)]


def test_keys_of_an_earlier_sum_do_not_serve_another_federation() -> None:
    with pytest.raises(ProtocolError, match="of another set-up than its keys"):
        run(everybody(honest(federation="0" * 64)), sums=SUMS, place=1)


@each_place
@pytest.mark.parametrize("apart", [2, 3])
def test_groups_below_the_threshold_have_no_sum(apart: int, sums: int, place: int) -> None:
    told = everybody(honest(FAR))
    told.update(dict.fromkeys(NAMES[:apart], honest()))
    assert run(told, sums=sums, place=place) == []


# ------------------------------------------------------------- what a set-up of several could leak


def cohort(told: Told, place: int = 0) -> tuple[dict[str, Contributor], ProtocolServer]:
    """Parties that ended so many sums, and are told of the next."""
    parties, setup = after(place, SUMS)
    return parties, tell(parties, everybody(told), None, SUMS, place, setup)


def masked(parties: dict[str, Contributor], server: ProtocolServer) -> dict[str, bytes]:
    """The lists of survivors that are sent when all rows are there."""
    for name, party in parties.items():
        server.receive(name, party.say("mask", b""))
    return server.close_step()


def test_a_place_serves_once() -> None:
    """The same masks over two rows would show their difference."""
    parties, server = cohort(honest(), 1)
    masked(parties, server)
    parties[VICTIM].told(honest(batch="c"), 1, bound=True)
    with pytest.raises(ProtocolError, match="was asked twice for sum 1"):
        parties[VICTIM].say("mask", b"")
    with pytest.raises(ProtocolError, match="was asked twice for one sum"):
        parties[VICTIM].told(honest(batch="c"), 1, bound=True)


def test_keys_of_other_contributors_open_nothing() -> None:
    """Masks that are shared with one cohort do not cancel in another's sum."""
    ours, server = cohort(honest(), 1)
    theirs, _ = cohort(honest(), 1)
    assert attempt(server, {**ours, VICTIM: theirs[VICTIM]}) is None
    assert server.survivors == NAMES


def test_confirmations_of_another_place_are_not_taken() -> None:
    """A list that was confirmed once is not confirmed for the sums that follow."""
    parties, server = cohort(honest(), 1)
    for name, reply in masked(parties, server).items():
        server.receive(name, parties[name].say("confirm", reply))
    earlier = server.close_step()[VICTIM]
    told = everybody(honest(batch="c"))
    server = tell(parties, told, None, SUMS, 2, server.setup)
    lists = masked(parties, server)
    parties[VICTIM].say("confirm", lists[VICTIM])
    # Under its own label it is of another sum; under this one's its authenticators are wrong.
    fields = wire.decode(earlier, kind=m.CONFIRMED)
    relabelled = {**fields, "context": m.blob(parameters_of(told, 2).context)}
    victim = parties[VICTIM].protocol
    state = dict(victim.__dict__)
    for message, line in ((fields, "of another session"), (relabelled, "confirmed another list")):
        victim.__dict__.update(state)
        with pytest.raises(ProtocolError, match=line):
            victim.unmask(wire.encode(message, kind=m.CONFIRMED))


def parameters_of(told: dict[str, Told], place: int) -> Parameters:
    first = told[VICTIM]
    return parameters(first.agreed(CODING, 0, len(first.queries)), SUMS, place)
