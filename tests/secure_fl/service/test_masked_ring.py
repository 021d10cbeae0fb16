"""The rule masked over the service on a ring: each contributor masks with a few others."""

import base64
import json
import sqlite3
import time

import attrs
import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.demo.service_parties import IDENTITY
from secure_fl.errors import InputError
from secure_fl.federation import wire
from secure_fl.federation.secagg import messages as m
from secure_fl.heads.manifest import make_manifest
from secure_fl.service import masked_querier
from secure_fl.service.channel import Channel
from secure_fl.service.contributor import Declined
from secure_fl.service.desk import Desk
from secure_fl.service.masked_words import sum_parameters
from secure_fl.service.querier import BatchTerms
from secure_fl.service.sealed_query import Facts, seal_query
from secure_fl.service.store import Store
from tests.cli.command import securefl
from tests.secure_fl.service.masked_parties import STEP, masked_parties

CLIENTS = tuple("abcdefg")
QUORUM, DEGREE = 5, 4


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ring") / "parties"
    with masked_parties(folder, CLIENTS) as found:
        yield found


def test_answers_on_a_ring_are_the_clear_rules(parties):
    """What a contributor shares is for as many neighbours as the ring has."""
    said = {}
    batch = parties.open(quorum=QUORUM, degree=DEGREE)
    parties.all_take_part(batch, also=said.__setitem__, degree=DEGREE)
    found = parties.fetch(batch)
    assert found.present == CLIENTS
    assert (found.classes.tolist(), found.codes.tolist()) == parties.clear(slice(0, 6), CLIENTS)
    assert len(wire.decode(said[2], kind=m.SHARE)["shares"]) == DEGREE


def test_contributors_take_no_ring_unless_their_owner_allows_it(parties):
    batch = parties.open(quorum=QUORUM, degree=DEGREE)
    with Channel(parties.running.url(), parties.member("a"), parties.manifest) as line:
        sealed = line.expect("GET", f"/batches/{batch}/query", what="query")
    for least in (0, 6):
        contributor = parties.contributor("a", degree=least)
        with pytest.raises(Declined) as why:
            contributor.part(sealed, batch, time.time())
        assert str(why.value) == (
            "each contributor would mask with 4 others, this client's terms ask for 6"
            " (--min-degree)"
        )
        assert not contributor.outbox.answered(batch)
        contributor.outbox.close()


@pytest.mark.parametrize(("degree", "line"), [(3, "expected an even number"), (-2, "even number")])
def test_a_ring_that_cannot_be_is_refused_before_anybody_is_asked(parties, degree, line):
    terms = BatchTerms(quorum=QUORUM, degree=degree)
    rest = (Desk(parties.folder("querier")), parties.queries[:4], 4, "b", None, terms)
    with pytest.raises(InputError, match=line):
        masked_querier._open(parties.querier(), *rest)


def test_votes_need_all_masks():
    """Parts of a sum may come to light on a ring, and noise is sized for the whole."""
    facts = make_manifest(
        classes=("x", "y"), clients=CLIENTS, n_features=2, rule="votes", answer_noise=4.0
    )
    assert sum_parameters(facts, "b", QUORUM, bytes(32)).degree == len(CLIENTS) - 1
    with pytest.raises(InputError, match="under votes all contributors mask with all others"):
        sum_parameters(facts, "b", QUORUM, bytes(32), DEGREE)


def test_the_evaluator_takes_no_batch_that_tells_contributors_different_rings(parties):
    """Nobody would be in a sum with anybody; the querier hears it at once."""
    querier, expires = parties.querier(), time.time() + 60
    fine = Facts(
        federation=parties.manifest.fingerprint,
        batch="fickle",
        contributor="a",
        public=bytes(32).hex(),
        queries=2,
        quorum=QUORUM,
        expires=expires,
    )
    sealed = {}
    for name, degree in zip(CLIENTS, (DEGREE, 0, *[DEGREE] * 5), strict=True):
        facts = attrs.evolve(fine, contributor=name, degree=degree)
        rest = (parties.queries[:2], None, querier.member, parties.manifest, bytes(32))
        sealed[name] = base64.b64encode(seal_query(facts, *rest).to_bytes()).decode()
    opening = {"queries": 2, "quorum": QUORUM, "patience": 1.0, "expires": expires}
    body = json.dumps({**opening, "sealed": sealed}).encode()
    with querier.channel as line:
        refusal = line.heard("PUT", "/batches/fickle", body, what="opening")
    assert refusal.status == 422
    assert b"not one digest of what contributors are told, or degree" in refusal.content


def test_a_database_of_a_release_without_rings_is_taken_on(tmp_path):
    """With its batches, and with states before what is sealed: behind it they are slow to find."""
    path = tmp_path / "batches.db"
    store = Store(path)
    rest = {"queries": 1, "quorum": 2, "patient_until": 0.0, "expires": 9e9, "queue": 9}
    assert store.open("f", "old", "o", {"a": b"sealed"}, **rest, agreed="ab") == "opened"
    assert store.decline(store.find("f", "old"), "a", b"why")
    with sqlite3.connect(path) as database:
        for column in ("degree", "setup", "place"):
            database.execute(f"ALTER TABLE batches DROP COLUMN {column}")
        database.execute(
            "CREATE TABLE before (batch INTEGER NOT NULL, client TEXT NOT NULL, sealed BLOB,"
            " contribution BLOB, state TEXT NOT NULL DEFAULT 'asked', refusal BLOB,"
            " PRIMARY KEY (batch, client)) WITHOUT ROWID"
        )
        database.execute(
            "INSERT INTO before SELECT batch, client, sealed, contribution, state, refusal"
            " FROM parts"
        )
        database.execute("DROP TABLE parts")
        database.execute("ALTER TABLE before RENAME TO parts")
    store = Store(path)
    old = store.find("f", "old")
    assert (old.clients, old.refusals, old.degree) == ({"a": "declined"}, {"a": b"why"}, 0)
    assert (old.setup, old.place) == ("", 0)
    assert store.open("f", "b", "o", {"a": b"x"}, **rest, agreed="ab", degree=DEGREE) == "opened"
    assert store.find("f", "b").degree == DEGREE
    with sqlite3.connect(path) as database:
        names = [row[1] for row in database.execute("PRAGMA table_info(parts)")]
        made = dict(database.execute("SELECT name, sql FROM sqlite_master"))
    assert "WITHOUT ROWID" not in made["parts"]
    assert names.index("state") < names.index("sealed")
    assert "earlier" not in made


def test_the_command_asks_on_a_ring(parties, tmp_path):
    np.save(tmp_path / "queries.npy", parties.queries[:3])
    own = parties.folder("querier")
    asked = ("query", tmp_path / "queries.npy", "--run", own, "--identity", own / IDENTITY)
    line = ("--evaluator", parties.running.url(), "--batch", "by-command", "--audit", 0)

    parties.all_take_part_when_asked("by-command", degree=DEGREE)
    out, _ = securefl(*asked, *line, "--degree", DEGREE, "--json")
    classes = [parties.manifest.classes.index(name) for name in json.loads(out)["classes"]]
    assert classes == parties.clear(slice(0, 3), CLIENTS)[0]


def test_facts_without_a_ring_are_those_of_releases_without_rings():
    """An evaluator or contributor of such a release reads them."""
    facts = Facts(
        federation="f", batch="b", contributor="a", public="", queries=1, quorum=2, expires=9.0
    )
    assert "degree" not in facts.said()
    assert facts.context() != attrs.evolve(facts, degree=DEGREE).context()


# ---------------------------------------------------------------------------- somebody is silent


@pytest.mark.parametrize("step", [1, 3, 4])
def test_a_contributor_of_a_ring_may_vanish(hurried, step):
    """Its neighbours are enough without it, four of five holders."""
    batch = hurried.open(quorum=QUORUM, degree=DEGREE, patience=STEP)
    hurried.all_take_part(batch, {"c": step}, degree=DEGREE)
    found = hurried.fetch(batch)
    there = CLIENTS if step > 3 else tuple(name for name in CLIENTS if name != "c")
    assert found.present == there
    assert (found.classes.tolist(), found.codes.tolist()) == hurried.clear(slice(0, 6), there)
