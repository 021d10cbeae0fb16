"""Bodies as files: in a folder, in the evaluator's store, in a contributor's outbox."""

import asyncio
import hashlib
import json
import sqlite3
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.service.arrivals import open_batch
from secure_fl.service.blobs import Blobs
from secure_fl.service.gate import Caller, Gate, Refusal
from secure_fl.service.limits import Limits, Nonces
from secure_fl.service.metrics import Metrics
from secure_fl.service.outbox import FOLDER, Outbox
from secure_fl.service.registry import load_federation
from secure_fl.service.shelf import Shelf
from secure_fl.service.store import Apart, Store
from tests.secure_fl.service.conftest import CLIENTS, make

BODY = b"body" * 1000
DIGEST = hashlib.sha256(BODY).hexdigest()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_has_a_name_when_it_is_whole_and_no_sooner(tmp_path):
    blobs = Blobs(tmp_path / "b")
    with blobs.arriving() as arrival:
        arrival.write(BODY[:100])
        assert [name.endswith(".part") for name in names(blobs.folder)] == [True]
    assert names(blobs.folder) == []
    with blobs.arriving() as arrival:
        for start in range(0, len(BODY), 1000):
            arrival.write(BODY[start : start + 1000])
        arrival.keep()
    assert names(blobs.folder) == [DIGEST]
    assert blobs.path(DIGEST).read_bytes() == BODY
    assert blobs.path(DIGEST).stat().st_mode & 0o777 == 0o600
    assert blobs.folder.stat().st_mode & 0o777 == 0o700

    def fails(path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        blobs.made(fails)
    assert names(blobs.folder) == [DIGEST]


def test_what_a_kill_leaves_is_removed_and_what_is_named_stays(tmp_path):
    blobs = Blobs(tmp_path / "b")
    assert blobs.made(lambda path: path.write_bytes(BODY)) == DIGEST
    other = blobs.made(lambda path: path.write_bytes(b"other"))
    for name in ("0123456789abcdef.part", ".0123.part.ab.tmp"):
        (blobs.folder / name).write_bytes(b"half")
    (blobs.folder / "tmpfolder").mkdir()
    (blobs.folder / "tmpfolder" / "query").write_bytes(b"half")
    blobs.clean()
    assert names(blobs.folder) == sorted([DIGEST, other])
    blobs.sweep(lambda: {DIGEST})
    assert names(blobs.folder) == [DIGEST]


def opened(store, querier="querier", **changes):
    facts = {"clients": ("n", "s"), "size": 100, "room": 150, "patience": 30.0, **changes}
    terms = {"queries": 3, "quorum": 1, "patient_until": 10.0, "expires": 1000.0, "queue": 9}
    name = str(sum(store.states().values()))
    done = store.open("f", name, "digest", {}, **terms, querier=querier, apart=Apart(**facts))
    return done, store.find("f", name)


def put(shelf, take, *arguments, body=BODY):
    with shelf.arriving() as arrival:
        arrival.write(body)
        return take(*arguments[:2], arrival, *arguments[2:])


def test_patience_begins_with_the_last_sealed_query_and_files_end_with_their_batch(tmp_path):
    store = Store(tmp_path / "db")
    blobs = Blobs(tmp_path / "b")
    shelf = Shelf(store, blobs)
    done, batch = opened(store)
    assert done == "opened"
    assert put(shelf, shelf.take_sent, batch, "n") is None, "not asked yet"
    assert put(shelf, shelf.take_sealed, batch, "n", 500.0, body=b"q n") == 201
    assert store.asked("f", "n") == [batch.name]
    assert put(shelf, shelf.take_sent, batch, "n") == 201
    assert put(shelf, shelf.take_sent, batch, "n") == 200
    assert put(shelf, shelf.take_sent, batch, "n", body=b"other") is None
    # The quorum is in, and the first patience long over.
    assert not store.advance(600.0)
    assert put(shelf, shelf.take_sealed, batch, "s", 600.0, body=b"q s") == 201
    assert put(shelf, shelf.take_sealed, batch, "s", 610.0, body=b"q s") == 200
    assert put(shelf, shelf.take_sealed, batch, "s", 610.0, body=b"other") is None
    shelf.sweep()
    assert names(blobs.folder) == sorted([DIGEST, hashlib.sha256(b"q s").hexdigest()])
    assert not store.advance(629.0)
    assert store.advance(630.0)
    assert store.begin() is not None
    batch = store.find("f", batch.name)
    assert batch.present == ("n",)
    assert shelf.sent(batch, "n") == DIGEST
    store.finish(batch, b"answer", 640.0)
    shelf.sweep()
    assert names(blobs.folder) == []
    store.close()


def test_a_closed_batch_does_not_fail_when_its_evaluation_misses_its_files(tmp_path):
    """The querier gave it up; what the evaluation says of it after that is nobody's news."""
    store = Store(tmp_path / "db")
    _, batch = opened(store)
    store.close_batch(batch)
    store.fail(batch, "cannot be read")
    assert store.find("f", batch.name).state == "closed"
    store.close()


def test_room_is_kept_for_all_that_may_come(tmp_path):
    store = Store(tmp_path / "db")
    done, first = opened(store)
    assert done == "opened"
    assert opened(store)[0] == "full"
    assert opened(store, size=50)[0] == "opened"
    assert opened(store, "lab")[0] == "opened", "the other querier's room is its own"
    store.close_batch(first)
    assert opened(store)[0] == "opened"
    store.close()


def test_a_batch_that_this_evaluator_can_never_hold_is_refused_with_both_sizes(tmp_path):
    pytest.importorskip("seal", reason="needs the extra `batched` (securefl[batched])")
    make(tmp_path / "parties", 0, bits=4, engine="bgv")
    federation = load_federation(tmp_path / "parties" / "evaluator")
    store = Store(tmp_path / "db")
    opening = {"queries": 5, "quorum": 3, "patience": 1.0, "expires": 1e10, "apart": CLIENTS}
    limits = Limits(room=10**7, lifetime=1e10)
    caller = Caller(federation, None, SimpleNamespace(sender="querier"))
    with pytest.raises(Refusal, match=r"3 contributors has up to 0\.02 GB, .* room for 0\.01"):
        open_batch(store, limits, caller, "b", json.dumps(opening).encode(), "d")
    store.close()


def test_an_outbox_of_before_is_taken_over_and_files_are_delivered_after_a_kill(tmp_path):
    path, features = tmp_path / "outbox.db", np.zeros((2, 2), np.float32)
    db = sqlite3.connect(path)
    db.execute(
        "CREATE TABLE batches (batch TEXT PRIMARY KEY, queries INTEGER NOT NULL,"
        " answered REAL NOT NULL, contribution BLOB) WITHOUT ROWID"
    )
    db.execute("INSERT INTO batches VALUES ('old', 3, 5.0, x'01')")
    db.commit()
    db.close()
    outbox = Outbox(path)
    assert outbox.undelivered("old") == b"\1"
    outbox.keep("new", 2, outbox.made(lambda at: at.write_bytes(BODY)), 6.0, features, "querier")
    outbox.made(lambda at: at.write_bytes(b"never kept"))
    outbox.close()
    (tmp_path / FOLDER / "half.part").write_bytes(b"half")
    outbox = Outbox(path)
    outbox.clean()
    assert names(tmp_path / FOLDER) == [DIGEST]
    assert outbox.undelivered("new").read_bytes() == BODY
    outbox.delivered("old")
    assert names(tmp_path / FOLDER) == [DIGEST]
    outbox.delivered("new")
    assert names(tmp_path / FOLDER) == []
    assert outbox.undelivered("new") is None
    assert outbox.answered("new")
    assert outbox.queries_since(0, "querier") == 5
    outbox.close()


def test_a_body_that_stops_coming_is_given_up(tmp_path):
    """So that who was cut off is not told for minutes that it is still sending."""

    class Stopped:
        async def stream(self):
            yield BODY
            await asyncio.sleep(600)

    nonces = Nonces(tmp_path / "nonces.db", 60)
    gate = Gate({}, Limits(silence=0.1), nonces, Metrics())
    claims = SimpleNamespace(length=2 * len(BODY), body=DIGEST)
    blobs = Blobs(tmp_path / "b")
    with blobs.arriving() as arrival, pytest.raises(Refusal, match="took too long to arrive"):
        asyncio.run(gate.body_into(Stopped(), Caller(None, None, claims), 10**6, arrival))
    assert names(blobs.folder) == []
    nonces.close()
