"""The rule masked over the service: an evaluator's process, and real contributors in threads."""

import json
import os
import secrets
import signal
import sqlite3
import threading
import time

import attrs
import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from fhe.audit import new_audit
from fhe.errors import AnswerError
from secure_fl.demo.service_parties import IDENTITY
from secure_fl.errors import InputError, QuorumError, ServiceError
from secure_fl.federation import wire
from secure_fl.service import masked_querier
from secure_fl.service.channel import Channel
from secure_fl.service.contributor import Declined
from secure_fl.service.desk import Desk
from secure_fl.service.masked_querier import ask_masked
from secure_fl.service.masked_words import ANSWER, most_queries
from secure_fl.service.querier import BatchTerms
from secure_fl.service.sealed_query import Facts, seal_query
from tests.cli.command import refused, securefl
from tests.secure_fl.service.masked_parties import STEP, UNHURRIED, masked_parties, restart
from tests.secure_fl.service.test_service import wait_until

CLIENTS = ("east", "north", "south", "west")


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked") / "parties"
    with masked_parties(folder, CLIENTS) as found:
        yield found


def test_answers_and_distances_are_the_clear_rules_and_nothing_is_left(parties):
    known = new_audit(5)
    batch = parties.open(slice(0, 9), known)
    parties.all_take_part(batch)
    found = parties.fetch(batch, slice(0, 9), known)
    classes, codes = parties.clear(slice(0, 9), CLIENTS)
    assert (found.classes.tolist(), found.codes.tolist()) == (classes, codes)
    assert found.present == CLIENTS
    # Neither messages nor rows stay with the evaluator, nor the batch with the querier.
    with sqlite3.connect(parties.folder("evaluator") / "state" / "batches.db") as database:
        assert database.execute("SELECT count(*) FROM exchanges").fetchone() == (0,)
    assert not list((parties.folder("evaluator") / "state" / "rows").iterdir())
    assert not list((parties.folder("querier") / "batches").glob(f"{batch}*"))


def test_the_evaluator_is_killed_in_mid_sum_and_the_sum_goes_on(parties):
    """What it acknowledged is on its disk, and its state follows from that."""
    killed = threading.Event()

    def kill(step, _):
        if step == 4 and not killed.is_set():
            killed.set()
            restart(parties)

    # Nobody is waited for in vain; a busy machine may take long to start the evaluator.
    batch = parties.open(patience=100.0)
    parties.all_take_part(batch, also=kill)
    found = parties.fetch(batch)
    assert killed.is_set()
    assert found.present == CLIENTS
    assert found.classes.tolist() == parties.clear(slice(0, 6), CLIENTS)[0]


def test_rows_that_were_altered_on_the_evaluators_disk_end_the_batch(parties):
    """It reads them again after a start; the querier hears why, and nobody's sum is wrong."""
    rows = parties.folder("evaluator") / "state" / "rows"

    def alter(step, _):
        if step == 4:
            parties.running.kill("evaluator")
            (found,) = rows.glob("*.south.*")
            whole = found.read_bytes()
            found.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
            assert found.stat().st_mode & 0o077 == 0
            parties.running.start("evaluator", "--step", str(UNHURRIED))

    batch = parties.open(patience=100.0)
    parties.all_take_part(batch, also=alter)
    with pytest.raises(ServiceError, match="masked rows of 'south' are gone"):
        parties.fetch(batch)
    # They are erased after the batch has failed, of which the querier may hear before.
    wait_until(lambda: not list(rows.iterdir()))


@pytest.mark.slow  # a restart of the evaluator's process for each step
@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_the_evaluator_is_killed_at_every_step(parties, step):
    def kill(at, _):
        if at == step:
            restart(parties)

    # Nobody is waited for in vain; a busy machine may take long to start the evaluator.
    batch = parties.open(patience=100.0)
    parties.all_take_part(batch, also=kill)
    assert parties.fetch(batch).classes.tolist() == parties.clear(slice(0, 6), CLIENTS)[0]


def test_a_contributor_that_is_told_something_else_declines(parties):
    """The digest in the facts is all others'; its own of what is sealed to it is another."""
    querier, features = parties.querier(), parties.queries[:3]
    member, batch = parties.member("querier"), secrets.token_hex(8)
    agreed = bytes(32)
    facts = Facts(
        federation=parties.manifest.fingerprint,
        batch=batch,
        contributor="east",
        public=agreed.hex(),
        queries=3,
        quorum=3,
        expires=time.time() + 60,
    )
    sealed = seal_query(facts, features, None, member, parties.manifest, bytes(32)).to_bytes()
    east = parties.contributor("east")
    with pytest.raises(Declined, match="not what the other contributors are told"):
        east.part(sealed, batch, time.time())
    low = attrs.evolve(facts, quorum=2)
    sealed = seal_query(low, features, None, member, parties.manifest, bytes(32)).to_bytes()
    with pytest.raises(Declined, match="quorum 2, this client's terms ask for 3"):
        east.part(sealed, batch, time.time())
    assert not east.outbox.answered(batch)
    east.outbox.close()
    querier.channel.close()


def answer_of(parties, known=None):
    """An answer as the evaluator gave it, and how to read another one in its place."""
    batch = parties.open(known=known)
    parties.all_take_part(batch)
    querier = parties.querier()
    received = querier.wait(batch, lambda status: None)
    opened = Desk(parties.folder("querier")).masked(batch)
    found = wire.decode(received.content, kind=ANSWER, source="test")

    def read(changed):
        content = wire.encode({**found, **changed}, kind=ANSWER)
        queries = 6 + (known.known if known else 0)
        return masked_querier._read(querier, batch, content, queries, opened, known)

    return found, read


def test_the_querier_opens_nothing_without_the_thresholds_shares(parties):
    """Nor has the evaluator more than these: they are sealed to the querier."""
    found, read = answer_of(parties)
    assert read({}).present == CLIENTS
    three = {"clients": found["clients"][:3], "shares": found["shares"][:3]}
    assert read(three).present == CLIENTS
    with pytest.raises(QuorumError, match="nothing is revealed"):
        read({"clients": found["clients"][:2], "shares": found["shares"][:2]})
    mixed = {"clients": found["clients"], "shares": found["shares"][::-1]}
    with pytest.raises(QuorumError, match="nothing is revealed"):
        read(mixed)


def test_an_evaluator_that_alters_the_sum_is_exposed_by_known_answers(parties):
    found, read = answer_of(parties, new_audit(8))
    assert len(read({}).classes) == 6
    altered = {**found["sum"], "masked": found["sum"]["masked"] + np.uint64(1)}
    with pytest.raises(AnswerError, match="known answers are wrong"):
        read({"sum": altered})
    for name, value in (("survivors", ["east", "nobody", "west"]), ("masked", np.zeros(3, "u8"))):
        with pytest.raises(Exception, match="masked sum"):
            read({"sum": {**found["sum"], name: value}})


def test_a_batch_that_is_too_long_is_refused_before_anybody_is_asked(parties):
    most = most_queries(parties.manifest)
    features = np.zeros((most + 1, 2), np.float32)
    querier, desk = parties.querier(), Desk(parties.folder("querier"))
    with pytest.raises(InputError, match=r"expected at most .* ask in parts"):
        ask_masked(querier, desk, features, batch="b", known=None, terms=BatchTerms())


def test_the_command_asks_and_prints_distances(parties, tmp_path):
    np.save(tmp_path / "queries.npy", parties.queries[:4])
    own = parties.folder("querier")
    asked = ("query", tmp_path / "queries.npy", "--run", own, "--identity", own / IDENTITY)
    line = ("--evaluator", parties.running.url(), "--batch", "by-command", "--audit", 3)

    parties.all_take_part_when_asked("by-command")
    out, err = securefl(*asked, *line, "--distance", "--json")
    found = json.loads(out)
    classes, codes = parties.clear(slice(0, 4), CLIENTS)
    assert [parties.manifest.classes.index(name) for name in found["classes"]] == classes
    assert found["distances"] == pytest.approx([code / 63 for code in codes])
    assert "all 3 known answers are right" in err


def test_the_commands_refuse_keys_and_heads_that_hold_records(parties):
    own = parties.folder("east")
    serve = ("serve", "contributor", own, "--client", "east", "--identity", own / IDENTITY)
    rest = ("--evaluator", parties.running.url(), "--state", own / "other")
    assert "its head holds its records" in refused(*serve, *rest)
    assert "which has no keys" in refused(*serve, *rest, "--keys", own)
    np.save(own / "q.npy", parties.queries[:1])
    ask = ("query", own / "q.npy", "--run", parties.folder("querier"), "--keys", own)
    identity = ("--identity", parties.folder("querier") / IDENTITY)
    _, err = securefl(*ask, *identity, "--evaluator", parties.running.url(), check=2)
    assert "--keys has no meaning for the rule masked" in err


@pytest.mark.slow
def test_one_contributor_after_the_other_is_left_out_by_the_command(parties, tmp_path):
    """The oracle is the clear rule over those that are asked; who is not asked hears of nothing."""
    labels = np.array([parties.manifest.classes[c % 2] for c in range(5)])
    np.savez(tmp_path / "asked.npz", X=parties.queries[:5], y=labels)
    own, stop, refusals = parties.folder("querier"), threading.Event(), {}

    def serve(name):
        done = set()
        while not stop.is_set():
            for batch in set(parties.asked(name)) - done:
                done.add(batch)
                parties.take_part(batch, name).join()
            time.sleep(0.05)
        refusals[name] = len(done)

    threads = [threading.Thread(target=serve, args=(name,), daemon=True) for name in CLIENTS]
    for thread in threads:
        thread.start()
    asked = ("query", tmp_path / "asked.npz", "--run", own, "--identity", own / IDENTITY)
    line = ("--evaluator", parties.running.url(), "--audit", 2, "--leave-one-out")
    out, _ = securefl(*asked, *line, "--json")
    stop.set()
    for thread in threads:
        thread.join()
    found = json.loads(out)

    def right(names):
        return [
            parties.manifest.classes[c] == label
            for c, label in zip(parties.clear(slice(0, 5), names)[0], labels, strict=True)
        ]

    assert found["accuracy"] == sum(right(CLIENTS)) / 5
    for name in CLIENTS:
        rest = right([other for other in CLIENTS if other != name])
        assert found["without"][name]["accuracy"] == sum(rest) / 5
        # All of them, and without each of the three others.
        assert refusals[name] == len(CLIENTS)


def test_leaving_one_out_wants_labels_and_a_quorum_that_is_left(parties, tmp_path):
    np.save(tmp_path / "queries.npy", parties.queries[:4])
    np.savez(tmp_path / "asked.npz", X=parties.queries[:4], y=[parties.manifest.classes[0]] * 4)
    own = parties.folder("querier")
    rest = ("--run", own, "--identity", own / IDENTITY, "--evaluator", parties.running.url())
    line = refused("query", tmp_path / "queries.npy", *rest, "--leave-one-out")
    assert "holds no labels" in line
    more = (*rest, "--leave-one-out", "--distance")
    _, err = securefl("query", tmp_path / "asked.npz", *more, check=2)
    assert "--distance has no meaning beside --leave-one-out" in err
    terms = BatchTerms(quorum=4, without="east")
    with pytest.raises(InputError, match="3 of 4 contributors are left, and the quorum is 4"):
        masked_querier._open(parties.querier(), Desk(own), parties.queries[:4], 4, "b", None, terms)


# ------------------------------------------------------- somebody is silent, from here to the end


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_a_contributor_that_vanishes_is_tolerated_and_never_takes_part_again(hurried, step):
    """Its row is in if it left before; its batch is in its outbox before its first message is."""
    batch = hurried.open(patience=STEP)
    hurried.all_take_part(batch, {"south": step})
    found = hurried.fetch(batch)
    there = CLIENTS if step > 3 else ("east", "north", "west")
    assert found.present == there
    assert (found.classes.tolist(), found.codes.tolist()) == hurried.clear(slice(0, 6), there)
    again = hurried.contributor("south")
    assert again.outbox.answered(batch)
    assert again.outbox.undelivered(batch) is None
    again.outbox.close()


def test_below_the_threshold_nothing_is_revealed(hurried):
    batch = hurried.open(patience=STEP)
    hurried.all_take_part(batch, {"south": 3, "west": 3})
    with pytest.raises(ServiceError, match="2 contributors are left in step 3 of 5, 3 are needed"):
        hurried.fetch(batch)


def test_garbage_is_refused_and_its_sender_has_dropped_out(hurried):
    batch = hurried.open(patience=STEP)
    with Channel(hurried.running.url(), hurried.member("south"), hurried.manifest) as line:
        bad = line.heard("PUT", f"/batches/{batch}/exchange/1", b"garbage", what="garbage")
        late = line.heard("PUT", f"/batches/{batch}/exchange/3", b"garbage", what="garbage")
        wrong = line.heard("PUT", f"/batches/{batch}/contribution", b"x", what="garbage")
    assert (bad.status, late.status, wrong.status) == (422, 409, 409)
    hurried.all_take_part(batch, {"south": 0})
    assert hurried.fetch(batch).present == ("east", "north", "west")


@pytest.mark.parametrize("step", [1, 2])
def test_while_the_evaluator_stands_still_nobody_counts_as_silent(hurried, step):
    """Stopped for longer than it waits for anybody; those who could not be heard are in."""
    stood, away = threading.Event(), STEP + 2

    def stand_still(at, _):
        if at == step and not stood.is_set():
            stood.set()
            pid = hurried.running.pid("evaluator")
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(away, os.kill, (pid, signal.SIGCONT)).start()

    batch = hurried.open(patience=STEP)
    # In step 1 three are there before it stands still: the quorum would be enough.
    for name in CLIENTS[:3]:
        hurried.take_part(batch, name)
    if step == 1:
        wait_until(lambda: arrived(hurried, batch) == 3)
    hurried.take_part(batch, CLIENTS[3], also=stand_still)
    found = hurried.fetch(batch)
    assert stood.is_set()
    assert found.present == CLIENTS


def arrived(parties, batch):
    """First messages of a batch on the evaluator's disk."""
    with sqlite3.connect(parties.folder("evaluator") / "state" / "batches.db") as database:
        look = "SELECT count(*) FROM exchanges JOIN batches b ON b.id = exchanges.batch"
        return database.execute(f"{look} WHERE b.batch = ? AND step = 1", (batch,)).fetchone()[0]
