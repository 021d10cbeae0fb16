"""The evaluator's side of a masked sum on its disk, without a network."""

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.crypto.keys import Identity, Member
from secure_fl.federation import wire
from secure_fl.federation.secagg import ProtocolClient
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.letters import Addresses
from secure_fl.federation.secagg.setup_server import Advert, ServerSetUp
from secure_fl.heads.manifest import make_manifest
from secure_fl.service import settling as settling_module
from secure_fl.service.exchange import Exchanges
from secure_fl.service.exchange_store import Sent
from secure_fl.service.gate import Refusal
from secure_fl.service.masked_words import sum_parameters
from secure_fl.service.registry import Federation
from secure_fl.service.setup_store import SetUpStore
from secure_fl.service.store import Store

NAMES = ("a", "b", "c")
PATIENT, EXPIRES = 9e9, 9.1e9
MANIFEST = make_manifest(classes=("x", "y"), clients=NAMES, n_features=2, bits=4, rule="masked")


class Evaluator:
    """A batch at work and the contributors' first messages."""

    def __init__(self, folder):
        self.store, self.folder = Store(folder / "batches.db"), folder
        terms = {
            "queries": 1,
            "quorum": 2,
            "patient_until": PATIENT,
            "expires": EXPIRES,
            "queue": 9,
        }
        sealed = dict.fromkeys(NAMES, b"sealed")
        self.store.open(MANIFEST.fingerprint, "b", "o", sealed, **terms, agreed="00" * 32)
        self.exchanges = self.started()
        parameters = sum_parameters(MANIFEST, "b", 2, bytes(32))
        identities = {name: Identity() for name in NAMES}
        directory = {name: each.public for name, each in identities.items()}
        self.first = {
            name: ProtocolClient(
                Member(name, identities[name], directory, parameters.session), parameters
            ).advertise()
            for name in NAMES
        }

    def started(self):
        """The exchanges as after a start of the evaluator."""
        federation = Federation(self.folder, MANIFEST, None, {})
        setups = SetUpStore(self.store, [MANIFEST.fingerprint])
        served = {MANIFEST.fingerprint: federation}
        return Exchanges(self.store, setups, served, 10.0, self.folder / "rows")

    @property
    def batch(self):
        return self.store.find(MANIFEST.fingerprint, "b")

    def at_once(self, messages):
        """What each sender hears whose message comes while the evaluator is busy."""

        def take(sent):
            try:
                return self.exchanges.take(self.batch, sent[0], 1, sent[1])[0]
            except (Refusal, sqlite3.Error) as error:
                return error

        with ThreadPoolExecutor(len(messages)) as pool:
            with self.exchanges._lock:
                found = [pool.submit(take, sent) for sent in messages]
                while len(self.exchanges._sent) < len(messages):
                    time.sleep(0.001)
            return [each.result() for each in found]


@pytest.fixture
def evaluator(tmp_path):
    return Evaluator(tmp_path)


def test_messages_that_come_at_once_go_to_the_disk_at_once(evaluator):
    """Each turn of the disk takes milliseconds, for which all others would wait."""
    said = []
    evaluator.store._db.set_trace_callback(said.append)
    assert evaluator.at_once(list(evaluator.first.items())[:2]) == [201, 201]
    inserts = [i for i, line in enumerate(said) if line.startswith("INSERT INTO exchanges")]
    assert len(inserts) == 2
    assert "COMMIT" not in said[inserts[0] : inserts[1]]
    # Both are there after a start.
    evaluator.exchanges = evaluator.started()
    again = [evaluator.exchanges.take(evaluator.batch, n, 1, evaluator.first[n]) for n in NAMES]
    assert [status for status, _ in again] == [200, 200, 201]
    assert evaluator.exchanges.reply(evaluator.batch, "a", 1) is not None


def test_of_one_clients_messages_of_a_step_one_is_taken(evaluator):
    """Also where they come at once: the same again is fine, another one is not."""
    own = evaluator.first["a"]
    found = evaluator.at_once([("a", own), ("a", own), ("b", b"garbage")])
    assert found[:2] in ([201, 200], [200, 201])
    assert found[2].status == 422
    other = evaluator.exchanges
    with pytest.raises(Refusal, match="another message of this step was taken before"):
        other.take(evaluator.batch, "a", 1, evaluator.first["b"])


def test_what_the_disk_did_not_take_was_not_said(evaluator):
    """Memory goes by the disk: the same messages are taken when it works again."""
    with evaluator.store.transaction() as db:
        db.execute("ALTER TABLE exchanges RENAME TO away")
        db.execute("CREATE VIEW exchanges AS SELECT * FROM away")
    found = evaluator.at_once(list(evaluator.first.items()))
    assert [type(each) for each in found] == [sqlite3.OperationalError] * 3
    with evaluator.store.transaction() as db:
        db.execute("DROP VIEW exchanges")
        db.execute("ALTER TABLE away RENAME TO exchanges")
    assert evaluator.at_once(list(evaluator.first.items())) == [201, 201, 201]


def test_no_step_is_closed_over_a_message_that_came_in_time(evaluator, monkeypatch):
    """Forcing it to the disk may take long; what came after the time was up delays nothing."""
    late, exchanges = PATIENT + 1, evaluator.exchanges
    for name in "ab":
        exchanges.take(evaluator.batch, name, 1, evaluator.first[name])
    writing, written = threading.Event(), threading.Event()

    def write(batch, step, client, message):
        writing.set()
        assert written.wait(60)

    monkeypatch.setattr(exchanges._kept, "write", write)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(exchanges.take, evaluator.batch, "c", 1, evaluator.first["c"])
        assert writing.wait(60)
        assert not exchanges.advance(late)
        written.set()
        assert sent.result() == (201, True)
    assert exchanges._of(evaluator.batch).step == 2
    assert exchanges.reply(evaluator.batch, "c", 1) is not None


def test_who_sends_again_and_again_holds_no_step_up(evaluator):
    """Only what came before the time was up is waited for."""
    exchanges = evaluator.exchanges
    for name in "ab":
        exchanges.take(evaluator.batch, name, 1, evaluator.first[name])
    again = Sent(evaluator.batch, "b", 1, b"", arrived=PATIENT + 1)
    exchanges._in_hand.add(again)
    assert exchanges.advance(PATIENT + 2)
    assert exchanges._of(evaluator.batch).step == 2


def test_time_in_which_nobody_could_be_heard_is_given_back(evaluator):
    exchanges = evaluator.exchanges
    for name in "ab":
        exchanges.take(evaluator.batch, name, 1, evaluator.first[name])
    evaluator.store.wait_longer(30.0)
    assert evaluator.batch.patient_until == PATIENT + 30
    assert not exchanges.advance(PATIENT + 29, missed=30.0)
    assert exchanges.advance(PATIENT + 31)
    # Never past the batch's expiry, which is its querier's.
    evaluator.store.wait_longer(EXPIRES)
    assert evaluator.batch.patient_until == EXPIRES


def test_a_batch_with_messages_of_an_earlier_release_ends_and_names_both_versions(evaluator):
    old = {**wire.decode(evaluator.first["a"], kind=m.ADVERTISE), "protocol": 2}
    number = evaluator.batch.id
    with evaluator.store.transaction() as db:
        row = (number, 1, "a", wire.encode(old, kind=m.ADVERTISE))
        db.execute("INSERT INTO exchanges VALUES (?, ?, ?, ?)", row)
    assert evaluator.exchanges.advance(time.time())
    assert evaluator.batch.state == "failed"
    assert "speaks version 2 of secure sums, this side version 3" in evaluator.batch.reason


def keep_set_up(evaluator, setups):
    """The keys of the fixture's batch, as if it had been answered."""
    made = ServerSetUp(sum_parameters(MANIFEST, "b", 2, bytes(32)), members=frozenset(NAMES))
    made.addresses = Addresses(NAMES, Graph(NAMES, 2, bytes(32)))
    blank = Advert(bytes(32), bytes(32 * made.parameters.sums), bytes(64))
    made.adverts = dict.fromkeys(NAMES, blank)
    first = evaluator.batch
    with evaluator.store.transaction() as db:
        setups.keep(db, first, made)


def opened(evaluator, name, querier):
    """A batch that waits for its keys."""
    terms = {"queries": 1, "quorum": 2, "patient_until": 9e9, "expires": 9e9, "queue": 9}
    sealed = dict.fromkeys(NAMES, b"sealed")
    common = {**terms, "agreed": "00" * 32, "querier": querier}
    evaluator.store.open(MANIFEST.fingerprint, name, "o", sealed, **common)
    return evaluator.store.find(MANIFEST.fingerprint, name)


def test_keys_serve_batches_of_their_own_querier_alone(evaluator):
    """Places of another's set-up would tell a querier how often that one asks."""
    setups = SetUpStore(evaluator.store, [MANIFEST.fingerprint])
    keep_set_up(evaluator, setups)
    assert setups.fitting(opened(evaluator, "own", "querier")) == "b"
    assert setups.fitting(opened(evaluator, "other", "another")) is None


def test_a_batch_does_not_wait_for_ever_for_contributors_that_are_never_there_together(
    evaluator, monkeypatch
):
    """They ask without waiting, again and again: each is there, and no two at once."""
    setups, now = SetUpStore(evaluator.store, [MANIFEST.fingerprint]), [0.0]
    keep_set_up(evaluator, setups)
    own = opened(evaluator, "own", "querier")
    monkeypatch.setattr(settling_module.time, "monotonic", lambda: now[0])
    settling = settling_module.Settling(evaluator.store, setups, lambda: None)

    async def looks():
        found = []
        for now[0] in (0.0, 2.5, 5.9, 6.1):
            settling._heard.update({f"{own.federation} {name}": now[0] for name in NAMES})
            found.append(await settling._settled(own.id))
        return found

    assert asyncio.run(looks()) == [False, False, False, True]
    # With keys of its own, which everybody can make.
    assert evaluator.store.find(MANIFEST.fingerprint, "own").setup == "own"
