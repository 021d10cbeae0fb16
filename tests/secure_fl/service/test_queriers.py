"""Several queriers a federation: names, keys, shares, and what earlier releases have written."""

import json
import secrets
import sqlite3
from contextlib import closing

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

import fhe
from secure_fl.crypto.identities import read_members
from secure_fl.demo.service_parties import IDENTITY
from secure_fl.errors import InputError
from secure_fl.heads.manifest import load_manifest, make_manifest, save_manifest
from secure_fl.service.contributor import ContributorPolicy, Declined
from secure_fl.service.contributor_app import load_contributor
from secure_fl.service.key_folders import key_folders
from secure_fl.service.limits import Limits
from secure_fl.service.members import enrol, make_member_keys, read_member, read_querier
from secure_fl.service.metrics import Metrics
from secure_fl.service.outbox import Outbox
from secure_fl.service.registry import load_federation
from secure_fl.service.sealed_query import Facts, SealedQuery, seal_query
from secure_fl.service.shares import shares_of
from secure_fl.service.store import Store
from secure_fl.service.succession import check, propose, sign
from tests.cli.command import refused, securefl
from tests.secure_fl.service.two_queriers import QUERIERS, with_lab

NOW = 1e9
FACTS = {"classes": ("x", "y"), "clients": ("north", "south"), "n_features": 3}


@pytest.fixture(scope="module")
def two(made, other, tmp_path_factory):
    return with_lab(made, other, tmp_path_factory.mktemp("two") / "parties")


# ------------------------------------------------------------------------------------ manifests


def test_a_manifest_of_one_querier_is_what_it_was_before_there_were_several():
    """The digest is that of a release that knew one querier."""
    manifest = make_manifest(**FACTS)
    assert manifest.queriers == ("querier",)
    assert "queriers" not in manifest.facts
    digest = "f4cb707a70a4b0b6a0c259ac88bf2ab5034cf3502816939c570b577f182e8954"
    assert manifest.fingerprint == digest


def test_queriers_are_bound_by_the_fingerprint_and_no_head_depends_on_them():
    one, two = make_manifest(**FACTS), make_manifest(**FACTS, queriers=("lab", "clinic"))
    assert one.fingerprint != two.fingerprint
    assert one.heads_fingerprint == two.heads_fingerprint
    assert two.parties == ("north", "south", "lab", "clinic", "evaluator")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("north",), "'north', which is a client"),
        (("evaluator",), "'evaluator', which is another party's name"),
        (("server",), "'server', which is another party's name"),
        (("lab", "lab"), "'lab' more than once"),
        (("../lab",), "use letters, digits"),
        ((), "queriers"),
    ],
)
def test_a_name_that_no_querier_can_have_is_refused(names, message):
    with pytest.raises(InputError, match=message):
        make_manifest(**FACTS, queriers=names)


def test_a_querier_is_who_its_identity_says(two, tmp_path):
    for name in QUERIERS:
        assert read_querier(two.folder / name / IDENTITY, two.manifest).name == name
    with pytest.raises(InputError, match="for any of its queriers querier, lab; name the right"):
        read_querier(two.folder / "north" / IDENTITY, two.manifest)


def test_the_whole_way_from_a_querier_by_name_to_its_place_in_the_manifest(tmp_path):
    """`identity new`, `gather`, `doctor` and `enrol`; a list says who asks."""
    for name in ("north", "south", "evaluator"):
        securefl("identity", "new", tmp_path / name)
    securefl("identity", "new", tmp_path / "lab", "--querier")
    securefl("identity", "new", tmp_path / "clinic", "--querier")
    cards = [
        tmp_path / name / f"{name}.member"
        for name in ("north", "south", "evaluator", "lab", "clinic")
    ]
    out, _ = securefl("identity", "gather", tmp_path / "members.json", *cards)
    assert "(lab, clinic may ask)" in out
    read = read_members(tmp_path / "members.json")
    assert read.queriers == ("lab", "clinic")
    assert set(read.clients) == {"north", "south"}
    (tmp_path / "lab" / "members.json").write_bytes((tmp_path / "members.json").read_bytes())
    assert '"lab", a querier' in securefl("doctor", tmp_path / "lab")[0]
    save_manifest(tmp_path, make_manifest(**FACTS))
    out, _ = securefl("serve", "enrol", tmp_path, "--members", tmp_path / "members.json")
    assert "asked by lab, clinic" in out
    assert load_manifest(tmp_path).queriers == ("lab", "clinic")
    some = ("--members", tmp_path / "members.json", "--querier", "clinic")
    securefl("serve", "enrol", tmp_path, *some)
    assert load_manifest(tmp_path).queriers == ("clinic",)
    by_hand = [f"--member={name}={keys}" for name, keys in read.said.items() if name != "clinic"]
    securefl("serve", "enrol", tmp_path, *by_hand)
    assert load_manifest(tmp_path).queriers == ("lab",)
    # Who trains by this list would take north for a client.
    line = refused("serve", "enrol", tmp_path, *some[:2], "--querier", "north")
    assert '"north" is no querier in the list, which has lab, clinic' in line


def test_a_role_that_differs_from_file_to_file_is_found(tmp_path):
    securefl("identity", "new", tmp_path / "lab", "--querier")
    kept = ("--name", "lab", "--keep", tmp_path / "lab" / "identity")
    securefl("identity", "new", tmp_path / "plain", *kept)
    files = (tmp_path / "lab" / "lab.member", tmp_path / "plain" / "lab.member")
    line = refused("identity", "gather", tmp_path / "members.json", *files)
    assert '"lab" is a querier in one of the files and none in another' in line
    (tmp_path / "lab" / "members.json").write_bytes(files[1].read_bytes())
    out, _ = securefl("doctor", tmp_path / "lab", check=1)
    assert "and not in the other; gather the list anew" in out
    line = refused("identity", "new", tmp_path / "evaluator", "--querier")
    assert '"evaluator" is marked as a querier, and is none by its name' in line


# --------------------------------------------------------------------------------------- members


def test_queriers_join_and_leave_as_clients_do(tmp_path):
    names = ("north", "south", "querier", "evaluator", "lab")
    keys = {name: make_member_keys(tmp_path / name) for name in names}
    old = enrol(make_manifest(**FACTS), {name: keys[name] for name in names[:4]})
    joins = propose(old, {"lab": keys["lab"]}, frozenset(), frozenset({"lab"}))
    assert joins.manifest.queriers == ("querier", "lab")
    assert joins.manifest.clients == old.clients
    with pytest.raises(InputError, match="not signed by north, south, querier, lab, evaluator"):
        check(joins, old)
    for name in joins.manifest.parties:
        joins = sign(joins, read_member(tmp_path / name, name, joins.manifest))
    check(joins, old)
    leaves = propose(joins.manifest, {}, frozenset({"querier"})).manifest
    assert leaves.parties == ("north", "south", "lab", "evaluator")
    with pytest.raises(InputError, match=r"'lab': cannot leave.*of whom one must stay"):
        propose(leaves, {}, frozenset({"lab"}))
    with pytest.raises(InputError, match="'north': is in the federation, and does something else"):
        propose(old, {"north": keys["lab"]}, frozenset(), frozenset({"north"}))
    save_manifest(tmp_path, old)
    join = (f"--join=lab=querier:{keys['lab']}", "--out", tmp_path / "next.json")
    out, _ = securefl("members", "propose", tmp_path, *join)
    assert "asked by querier, lab" in out


# ------------------------------------------------------------------------------------------ keys


def test_each_queriers_keys_lie_in_a_folder_of_its_name(two, tmp_path):
    own = two.folder / "evaluator"
    assert key_folders(own, two.manifest) == {"querier": own, "lab": own / "lab"}
    federation = load_federation(own)
    keys = {name: each.public.key for name, each in federation.keys.items()}
    assert set(keys) == {"querier", "lab"}
    assert keys["querier"] != keys["lab"]
    with pytest.raises(InputError, match=r"no public\.key of any querier.*such as .*/querier"):
        key_folders(tmp_path, two.manifest)


def test_keys_that_two_queriers_hand_out_are_refused(two, made, tmp_path):
    """One of them has the other's: contributors would encrypt to who did not ask."""
    folder = tmp_path / "parties"
    with_lab(made, made, folder)
    with pytest.raises(InputError, match="keys of 'querier' and 'lab' are the same"):
        load_federation(folder / "evaluator")
    with pytest.raises(InputError, match="keys of 'querier' and 'lab' are the same"):
        contributor(folder, tmp_path / "state")


# -------------------------------------------------------------------------------- sealed queries


def facts(two, asks, **changes):
    fine = {
        "federation": two.manifest.fingerprint,
        "batch": secrets.token_hex(8),
        "contributor": "north",
        "public": fhe.load_public_key(two.folder / asks).fingerprint,
        "queries": 1,
        "quorum": 2,
        "expires": NOW + 1e6,
        "querier": asks,
    }
    return Facts(**{**fine, **changes})


def sealed(two, asks, rows=slice(0, 1), signer=None, **changes):
    member = read_member(two.folder / (signer or asks) / IDENTITY, signer or asks, two.manifest)
    features = two.queries[rows]
    told = facts(two, asks, queries=len(features), **changes)
    return told.batch, seal_query(told, features, None, member, two.manifest).to_bytes()


def contributor(folder, state, **terms):
    own, policy = folder / "north", ContributorPolicy(**terms)
    return load_contributor(own, "north", own, own / IDENTITY, state, policy)


def ask(north, two, asks, rows=slice(0, 1), now=NOW, **changes):
    batch, data = sealed(two, asks, rows, **changes)
    return north.answer(data, batch, now)


def test_what_is_sealed_says_the_querier_only_where_it_has_another_name(two):
    """A query of "querier" is the bytes that an earlier release reads."""
    for asks, said in (("querier", False), ("lab", True)):
        query = SealedQuery.from_bytes(sealed(two, asks)[1], two.manifest)
        assert ("querier" in query.facts.said()) == said
        assert query.facts.querier == asks


def test_no_degree_is_taken_for_a_name():
    """Both are facts that may be left out, and what is signed must say which one is there."""
    plain = Facts(
        federation="f",
        batch="b",
        contributor="c",
        public="p",
        queries=1,
        quorum=1,
        expires=1.0,
    )
    ring, named = attrs.evolve(plain, degree=4), attrs.evolve(plain, querier="4")
    assert ring.context() != named.context()


def test_a_contributor_encrypts_under_the_key_of_who_asks(two, tmp_path):
    north = contributor(two.folder, tmp_path)
    for asks in QUERIERS:
        made = fhe.Contribution.from_bytes(ask(north, two, asks), source="c")
        assert made.public == fhe.load_public_key(two.folder / asks).fingerprint
    other = fhe.load_public_key(two.folder / "querier").fingerprint
    with pytest.raises(Declined, match="another public key than this client has"):
        ask(north, two, "lab", public=other)


def test_a_querier_whose_key_is_not_here_is_declined_and_the_others_are_answered(two, tmp_path):
    north = contributor(two.folder, tmp_path)
    north = attrs.evolve(north, keys={"querier": north.keys["querier"]})
    ask(north, two, "querier")
    with pytest.raises(Declined, match="no public key of the querier 'lab'"):
        ask(north, two, "lab")


# ---------------------------------------------------------------------------------------- shares


@given(
    daily=st.integers(0, 10_000),
    repeats=st.integers(1, 20),
    names=st.lists(st.sampled_from("abcdef"), min_size=1, unique=True),
    data=st.data(),
)
def test_shares_never_add_up_to_more_than_the_owners_limits(daily, repeats, names, data):
    quotas = data.draw(st.dictionaries(st.sampled_from(names), st.integers(0, 12_000)))
    try:
        shares = shares_of(daily, repeats, quotas, names)
    except InputError:
        return
    assert list(shares) == names
    assert sum(each.queries for each in shares.values()) <= daily
    assert sum(each.repeats for each in shares.values()) <= repeats
    assert all((each.queries > 0) == (each.repeats > 0) for each in shares.values())
    assert {name: shares[name].queries for name in quotas} == quotas


@pytest.mark.parametrize(
    ("daily", "repeats", "quotas", "message"),
    [
        (10, 3, {"c": 1}, "quota of 'c': the queriers are a, b"),
        (10, 3, {"a": -1}, "quota of 'a': -1, expected 0 or more"),
        (10, 3, {"a": 10}, "the quotas leave 0 for b"),
        (10, 3, {"a": 8, "b": 8}, "the quotas leave -6 for nobody"),
        (10, 1, {}, "1 answers to nearly the same query a day: 2 queriers share them"),
    ],
)
def test_terms_that_leave_a_querier_with_nothing_are_refused(daily, repeats, quotas, message):
    with pytest.raises(InputError, match=message):
        shares_of(daily, repeats, quotas, ("a", "b"))


def test_the_queue_of_the_evaluator_is_divided(tmp_path):
    """A querier fills its own part, and hears nothing of the others'; so with room on the disk."""
    assert Limits(queue=64).shared_by(3, 0).queue == 21
    assert Limits(queue=2).shared_by(5, 0).queue == 1
    assert [Limits(room=100).shared_by(5, n).room for n in (0, 1, 2)] == [100, 100, 50]
    store = Store(tmp_path / "db")
    terms = {"queries": 3, "quorum": 1, "patient_until": NOW, "expires": NOW, "queue": 1}

    def opened(batch, querier):
        return store.open("f", batch, "o", {"n": b"q"}, **terms, querier=querier)

    assert [opened("a", "lab"), opened("b", "lab"), opened("b", "clinic")] == [
        "opened",
        "full",
        "opened",
    ]
    assert store.find("f", "b").querier == "clinic"
    assert store.states() == {("lab", "collecting"): 1, ("clinic", "collecting"): 1}
    store.close()


def test_a_contributors_page_and_counters_say_who_asked(two, tmp_path):
    north = contributor(two.folder, tmp_path, daily_queries=10, quotas={"lab": 3})
    ask(north, two, "lab", slice(0, 2))
    assert north.asked(NOW) == {"querier": (0, 7), "lab": (2, 3)}
    page = north.watch.page(north.asked(NOW))
    assert "Who asked" in page
    assert "<td>lab</td>" in page.replace(' class="text"', "")
    assert b'securefl_answered_queries_total{querier="lab"} 2.0' in north.metrics.text()


# ------------------------------------------------------------------------------ metrics, old files


def test_a_state_that_no_batch_is_in_any_more_has_no_count():
    """It kept the last one it had."""
    metrics = Metrics()
    metrics.set_batches({("lab", "collecting"): 2, ("clinic", "collecting"): 1})
    text = metrics.text().decode()
    assert 'securefl_batches{state="collecting"} 3.0' in text
    assert 'securefl_querier_batches{querier="lab",state="collecting"} 2.0' in text
    metrics.set_batches({("lab", "closed"): 3})
    text = metrics.text().decode()
    assert 'state="collecting"' not in text
    assert 'securefl_batches{state="closed"} 3.0' in text
    metrics.set_batches(None)
    assert metrics.text().decode() == text


def test_what_earlier_releases_remember_is_of_the_one_querier(tmp_path):
    """An outbox and a store as they were made before there were several."""
    features = np.ones((2, 3), np.float32)
    with closing(sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)) as db:
        db.execute(
            "CREATE TABLE batches (batch TEXT PRIMARY KEY, queries INTEGER NOT NULL,"
            " answered REAL NOT NULL, contribution BLOB) WITHOUT ROWID"
        )
        db.execute(
            "CREATE TABLE asked (batch TEXT PRIMARY KEY, answered REAL NOT NULL,"
            " features BLOB NOT NULL) WITHOUT ROWID"
        )
        db.execute("INSERT INTO batches VALUES ('b', 2, 5.0, x'01')")
        db.execute("INSERT INTO asked VALUES ('b', 5.0, ?)", (features.tobytes(),))
    for _ in "ab":
        outbox = Outbox(tmp_path / "outbox.db")
        assert [outbox.queries_since(0.0, name) for name in QUERIERS] == [2, 0]
        assert [len(list(outbox.asked_since(0.0, 3, name))) for name in QUERIERS] == [1, 0]
        assert (outbox.querier("b"), outbox.undelivered("b")) == ("querier", b"\1")
        outbox.close()
    store = Store(tmp_path / "batches.db")
    terms = {"queries": 3, "quorum": 1, "patient_until": NOW, "expires": NOW, "queue": 9}
    store.open("f", "b", "o", {"n": b"q"}, **terms)
    store._db.execute("ALTER TABLE batches DROP COLUMN querier")
    store.close()
    store = Store(tmp_path / "batches.db")
    assert store.find("f", "b").querier == "querier"
    store.close()


def test_a_list_of_members_says_who_asks_in_its_file_and_its_fingerprint(tmp_path):
    listed = {"lab": "ab" * 64, "north": "cd" * 64}
    (tmp_path / "plain.json").write_text(json.dumps(listed))
    (tmp_path / "marked.json").write_text(json.dumps({**listed, "lab": "querier:" + "ab" * 64}))
    plain, marked = (read_members(tmp_path / f"{name}.json") for name in ("plain", "marked"))
    assert plain.fingerprint != marked.fingerprint
    assert plain.directory == marked.directory
    assert json.loads(marked.to_json()) == {**listed, "lab": "querier:" + "ab" * 64}
