"""Masked sums that go on with the keys of an earlier batch, and what ends such a set-up."""

import sqlite3
import time

import attrs
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.errors import FormatError, ProtocolError, QuorumError, ServiceError
from secure_fl.federation import wire
from secure_fl.federation.secagg import ProtocolClient, ProtocolServer
from secure_fl.federation.secagg.setup_server import ServerSetUp
from secure_fl.heads.masked import coding_of
from secure_fl.masked import Told
from secure_fl.service import contributor_loop as contributor_module
from secure_fl.service import masked_querier
from secure_fl.service.channel import Channel
from secure_fl.service.contributor import Declined
from secure_fl.service.desk import Desk
from secure_fl.service.held_setups import HeldSetUps
from secure_fl.service.masked_offer import HELD, Keys, Offer
from secure_fl.service.masked_words import ANSWER, SUMS
from secure_fl.service.sealed_query import Facts, seal_query
from secure_fl.service.setup_store import KIND, SetUpStore
from secure_fl.service.store import Store
from tests.secure_fl.federation.protocol import Party, names_of
from tests.secure_fl.service.masked_parties import STEP, Lasting, masked_parties, restart

CLIENTS = ("east", "north", "south", "west")
FIRST, LATER = [1, 2, 3, 4, 5], [3, 4, 5]


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    folder = tmp_path_factory.mktemp("setups") / "parties"
    with masked_parties(folder, CLIENTS) as found:
        yield found


@pytest.fixture
def lasting(parties, monkeypatch):
    """All contributors, each as long as the test; `south` may be replaced."""
    # A call that waits keeps its thread from ending.
    monkeypatch.setattr(contributor_module, "WAIT", 1.0)
    found = {name: Lasting(parties, name) for name in CLIENTS}
    yield found
    for each in found.values():
        each.stop()
    for each in found.values():
        each.end()


def database(parties):
    return sqlite3.connect(parties.folder("evaluator") / "state" / "batches.db")


def set_ups(parties):
    with database(parties) as db:
        return dict(db.execute("SELECT name, taken FROM setups ORDER BY id").fetchall())


def test_later_batches_take_three_exchanges_with_the_keys_of_the_first(parties, lasting):
    """Answers are the clear rule's, and every batch has a place of its own."""
    names = [parties.ask(rows)[0] for rows in (slice(0, 6), slice(3, 9), slice(0, 1))]
    for each in lasting.values():
        assert [each.steps[name] for name in names] == [FIRST, LATER, LATER]
        assert each.contributor.setups.names == (names[0],)
    assert set_ups(parties)[names[0]] == 3
    with database(parties) as db:
        kept = db.execute("SELECT batch, setup, place FROM batches ORDER BY id").fetchall()
        assert db.execute("SELECT count(*) FROM exchanges").fetchone() == (0,)
    assert kept[-3:] == [(name, names[0], place) for place, name in enumerate(names)]


def test_other_terms_make_keys_of_their_own(parties, lasting):
    """A quorum is bound into keys and shares."""
    names = [parties.ask(quorum=quorum)[0] for quorum in (3, 4, 3, 4)]
    assert [lasting["east"].steps[name] for name in names] == [FIRST, FIRST, LATER, LATER]


def test_a_contributor_that_was_started_again_is_in_the_next_answer(parties, lasting):
    """It holds no keys, and says so; nobody is left out for that."""
    parties.ask()
    lasting["south"].end()
    lasting["south"] = Lasting(parties, "south")
    names = []
    for _ in range(2):
        batch, found = parties.ask()
        assert found.present == CLIENTS
        names.append(batch)
    assert [lasting["south"].steps[name] for name in names] == [FIRST, LATER]


def test_a_contributor_that_is_away_when_a_batch_opens_is_in_its_answer(parties, lasting):
    """Keys are settled when all are there; who is silent for too long has no keys any more."""
    parties.ask()
    lasting["south"].end()
    batch = parties.open()
    # The other three wait with keys in hand, and nothing is settled without the fourth.
    time.sleep(0.5)
    with database(parties) as db:
        assert db.execute("SELECT setup FROM batches WHERE batch = ?", (batch,)).fetchone() == ("",)
    lasting["south"] = Lasting(parties, "south")
    assert parties.fetch(batch).present == CLIENTS
    assert lasting["east"].steps[batch] == FIRST


def test_a_contributor_whose_process_is_killed_while_it_waits_is_in_the_next_answer(
    parties, lasting
):
    """Its call ends with it, so its keys are not counted on when the batch opens."""
    lasting["south"].end()
    parties.running.start("south", "--exact-heads")
    first, _ = parties.ask(slice(12, 15))
    parties.running.kill("south")
    batch = parties.open(slice(15, 18), patience=60.0)
    parties.running.start("south", "--exact-heads")
    found = parties.fetch(batch, slice(15, 18))
    parties.running.kill("south")
    assert found.present == CLIENTS
    assert found.classes.tolist() == parties.clear(slice(15, 18), CLIENTS)[0]
    assert lasting["east"].steps[batch] == FIRST
    assert first not in set_ups(parties)


# A start of the evaluator's process each; in mid-sum it is killed in `test_masked` too.
@pytest.mark.parametrize("when", ["between", pytest.param(4, marks=pytest.mark.slow)])
def test_a_killed_evaluator_goes_on_with_the_keys(parties, lasting, when):
    """Keys and places are on its disk: no place is handed out twice, and answers are exact."""
    first, _ = parties.ask()

    def again():
        restart(parties)

    if when == "between":
        again()
    else:
        killed = []

        def kill(batch, step):
            if step == when and batch not in killed:
                killed.append(batch)
                again()

        lasting["east"].also = kill
    # Nobody is waited for in vain; a busy machine may take long to start the evaluator.
    batch, found = parties.ask(patience=100.0)
    assert found.present == CLIENTS
    with database(parties) as db:
        places = db.execute("SELECT setup, place FROM batches WHERE setup = ?", (first,)).fetchall()
    assert len(set(places)) == len(places)
    # It may have heard of contributors that it has not heard of since: then keys are new.
    assert set(lasting["west"].steps[batch]) == set(LATER if (first, 1) in places else FIRST)


# ------------------------------------------------------------------ what is refused, without a line


def sealed_for(parties, name, batch, quorum=3):
    """A sealed query as the querier makes it."""
    features, salt = parties.queries[:2], bytes(32)
    told = Told(parties.manifest.fingerprint, batch, features, salt)
    agreed = told.agreed(coding_of(parties.manifest, quorum), 0, 2)
    facts = Facts(
        federation=parties.manifest.fingerprint,
        batch=batch,
        contributor=name,
        public=agreed.hex(),
        queries=2,
        quorum=quorum,
        expires=time.time() + 60,
    )
    made = seal_query(facts, features, None, parties.member("querier"), parties.manifest, salt)
    return made.to_bytes()


def test_a_contributor_takes_part_with_keys_that_it_holds_once_a_place(parties, lasting):
    """The evaluator's word for keys is not taken: a place that serves twice would hide nothing."""
    first, _ = parties.ask()
    second, _ = parties.ask()
    east = lasting["east"].contributor
    assert lasting["east"].steps[second] == LATER
    for keys, quorum, line in (
        (Keys(first, 1), 3, "place 1 of the set-up served a batch before"),
        (Keys("elsewhere", 1), 3, "a set-up that this client does not hold"),
        (Keys(first, 2), 4, "made with another quorum or degree"),
        (Keys(first, 0), 3, "place 0 of it is not this batch's"),
    ):
        sealed = sealed_for(parties, "east", "refused", quorum)
        with pytest.raises(Declined, match=line):
            east.part(sealed, "refused", time.time(), keys)
        assert not east.outbox.answered("refused")
    # Nor is a batch that was begun with new keys begun again with others.
    with pytest.raises(Declined, match="answered before"):
        east.part(sealed_for(parties, "east", second), second, time.time(), Keys(first, 2))


def test_the_querier_opens_no_sum_of_other_keys_than_the_answer_names(parties, lasting):
    """It believes nothing: contributors' openings are bound to set-up and place."""
    first, _ = parties.ask()
    batch = parties.open()
    querier = parties.querier()
    received = querier.wait(batch, lambda status: None)
    opened = Desk(parties.folder("querier")).masked(batch)
    found = wire.decode(received.content, kind=ANSWER, source="test")

    def read(**changed):
        content = wire.encode({**found, **changed}, kind=ANSWER)
        return masked_querier._read(querier, batch, content, 6, opened, None)

    assert (found["setup"], found["place"]) == (first, 1)
    assert read().classes.tolist() == parties.clear(slice(0, 6), CLIENTS)[0]
    for setup, place in ((first, 2), (batch, 0), ("elsewhere", 1)):
        with pytest.raises(QuorumError, match="nothing is revealed"):
            read(setup=setup, place=place)
    for setup, place in ((first, 0), (batch, 1), (first, SUMS), (first, True), ("../x", 1), (1, 1)):
        with pytest.raises(ServiceError, match="set-up of keys"):
            read(setup=setup, place=place)
    old = {key: value for key, value in found.items() if key not in ("protocol", "setup", "place")}
    with pytest.raises(ProtocolError, match="speaks version 2 of secure sums, this side version 3"):
        masked_querier._read(querier, batch, wire.encode(old, kind=ANSWER), 6, opened, None)


def test_only_names_of_set_ups_may_be_told(parties):
    with Channel(parties.running.url(), parties.member("east"), parties.manifest) as line:
        assert line.call("GET", "/sums?holds=a,b").status == 202
        for holds in ("a,,b", "../x", ",".join("abcdefgh"[: HELD + 1])):
            assert line.call("GET", f"/sums?holds={holds}").status == 422


# ----------------------------------------------------------------------------- the evaluator's disk


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "batches.db")


TERMS = {"queries": 1, "quorum": 2, "patient_until": 0.0, "expires": 9e9, "queue": 99}
THREE = names_of(3)


def opened(store, name, clients=THREE, **terms):
    sealed = dict.fromkeys(clients, b"sealed")
    assert store.open("f", name, "o", sealed, **{**TERMS, "agreed": "ab", **terms}) == "opened"
    return store.find("f", name)


@pytest.fixture(scope="module")
def ready():
    """Three parties that are ready to mask."""
    party = Party(3, length=8, sums=SUMS)
    party.held = party.share(party.advertise())
    return party


def made(store, setups, name, party, **terms):
    """A batch that made a set-up, and is answered."""
    setups.settle(opened(store, name, **terms), None)
    answered(store, name)
    batch = store.find("f", name)
    with store.transaction() as db:
        setups.keep(db, batch, party.server.setup)


def answered(store, name):
    with store.transaction() as db:
        db.execute("UPDATE batches SET state = 'answered' WHERE batch = ?", (name,))


def kept(store):
    with store.transaction() as db:
        return [name for (name,) in db.execute("SELECT name FROM setups ORDER BY id")]


def test_places_are_handed_out_once_each_and_then_the_set_up_is_dropped(store, ready):
    """Not before the last batch that works with it is done."""
    setups = SetUpStore(store, ["f"])
    made(store, setups, "first", ready)
    places = []
    for i in range(1, SUMS + 1):
        batch = opened(store, f"b{i}")
        setups.settle(batch, setups.fitting(batch))
        # Settled is settled.
        setups.settle(batch, None)
        found = store.find("f", f"b{i}")
        places.append((found.setup, found.place))
    assert places[:-1] == [("first", i) for i in range(1, SUMS)]
    assert places[-1] == (f"b{SUMS}", 0)
    for i in range(1, SUMS):
        setups.retire("f", "none")
        assert kept(store) == ["first"]
        answered(store, f"b{i}")
    setups.retire("f", "none")
    assert kept(store) == []


def test_a_set_up_fits_the_same_clients_and_terms_alone(store, ready):
    setups = SetUpStore(store, ["f"])
    made(store, setups, "first", ready)
    assert setups.fitting(opened(store, "same")) == "first"
    assert setups.fitting(opened(store, "fewer", THREE[:2])) is None
    assert setups.fitting(opened(store, "other", quorum=3)) is None
    assert setups.fitting(opened(store, "ring", degree=2)) is None
    # Somebody was asked that never shared: the next batch asks it again.
    made(store, setups, "lost", ready, clients=(*THREE, "d"))
    assert kept(store) == ["first"]
    setups.retire("f", "first")
    assert setups.fitting(opened(store, "again")) is None


def test_the_newest_set_ups_of_a_federation_are_kept(store, ready):
    setups = SetUpStore(store, ["f"])
    for i in range(HELD + 2):
        made(store, setups, f"b{i}", ready)
    assert kept(store) == [f"b{i}" for i in range(2, HELD + 2)]
    # One that a batch works with stays.
    batch = opened(store, "at work")
    setups.settle(batch, "b2")
    made(store, setups, "more", ready)
    assert "b2" in kept(store)
    SetUpStore(store, ["f"])
    assert kept(store)
    SetUpStore(store, ["g"])
    assert not kept(store)


def test_a_kept_set_up_serves_the_next_sum(ready):
    """From the disk's bytes: the sum of a later place is that of the vectors, with one lost."""
    parameters = attrs.evolve(ready.parameters, place=1, agreed=bytes([1]) * 32)
    state = wire.decode(wire.encode(ready.server.setup.dump(), kind="k"), kind="k", source="test")
    setup = ServerSetUp.load(parameters, state)
    first = {name: ready.clients[name] for name in THREE}
    for name, client in first.items():
        client.setup.open(ready.held[name])
    server = ProtocolServer(parameters, 8, setup)
    clients = {
        name: ProtocolClient(ready.members[name], parameters, setup=client.setup)
        for name, client in first.items()
    }
    for name, client in clients.items():
        server.receive(name, client.mask(None, ready.vectors[name], "x"))
    for step in ("confirm", "unmask"):
        for name, reply in server.close_step().items():
            server.receive(name, getattr(clients[name], step)(reply))
    assert server.total().tolist() == ready.plain(THREE)


@pytest.mark.parametrize("member", ["listed", "shared", "members", "mask_keys", "commitments"])
def test_a_kept_set_up_that_was_damaged_is_refused(store, ready, member):
    setups = SetUpStore(store, ["f"])
    made(store, setups, "first", ready)
    setups.settle(opened(store, "later"), "first")
    batch = store.find("f", "later")
    assert setups.load(batch, ready.parameters).members == set(THREE)
    state = ready.server.setup.dump()
    state[member] = ["nobody"] if isinstance(state[member], list) else state[member][:1]
    for content in (wire.encode(state, kind=KIND), b"junk"):
        with store.transaction() as db:
            db.execute("UPDATE setups SET content = ?", (content,))
        with pytest.raises(ProtocolError, match="a set-up that was kept"):
            setups.load(batch, ready.parameters)
    with store.transaction() as db:
        db.execute("DELETE FROM setups")
    with pytest.raises(ProtocolError, match="is gone"):
        setups.load(batch, ready.parameters)


def test_a_contributor_holds_few_set_ups(ready):
    """The oldest goes first."""
    held = HeldSetUps()
    for i in range(HELD + 1):
        held.keep(f"b{i}", ready.members[THREE[0]], ready.clients[THREE[0]].setup)
    assert held.names == tuple(f"b{i}" for i in range(1, HELD + 1))


def test_an_offer_is_read_as_it_was_made():
    offer = Offer("later", Keys("first", 3), b"sealed")
    assert Offer.from_bytes(offer.to_bytes()) == offer
    with pytest.raises(FormatError, match="place 0 of it is not this batch's"):
        Offer.from_bytes(Offer("later", Keys("first", 0), b"").to_bytes())
    with pytest.raises(FormatError, match="not the name of a batch"):
        Offer.from_bytes(Offer("../later", Keys("first", 3), b"").to_bytes())


# ---------------------------------------------------------------------------- somebody is silent


@pytest.mark.parametrize("step", LATER)
def test_a_contributor_that_vanishes_in_a_later_batch_is_tolerated(hurried, lasting, step):
    """Its masks of this place are opened, no others; started again it is in the next answer."""
    hurried.ask()
    lasting["south"].line.vanishes = step
    _, found = hurried.ask(patience=STEP)
    assert found.present == (CLIENTS if step > 3 else ("east", "north", "west"))
    lasting["south"].end()
    lasting["south"] = Lasting(hurried, "south")
    assert hurried.ask()[1].present == CLIENTS
