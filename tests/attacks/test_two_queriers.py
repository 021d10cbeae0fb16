"""A querier of a federation that has two: it reaches for the other's, or pools with it.

The evaluator is a process, contributors hold their real memory, and everything that the cheats send
is signed by the keys that they have.
"""

import base64
import json
import secrets
import time

import attrs
import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

import fhe
from fhe.errors import InputError as KeyMismatch
from secure_fl.demo.service_parties import IDENTITY, deployment
from secure_fl.errors import InputError, ServiceError
from secure_fl.heads.masked import coding_of
from secure_fl.masked import RowCoding, Told
from secure_fl.service.answers_book import AnswersBook
from secure_fl.service.channel import Channel
from secure_fl.service.contributor import ContributorPolicy, Declined
from secure_fl.service.contributor_app import load_contributor
from secure_fl.service.declining import open_reason, seal_reason
from secure_fl.service.masked_words import open_shares, seal_shares
from secure_fl.service.members import read_member
from secure_fl.service.sealed_query import Facts, SealedQuery, seal_query
from tests.attacks.table import Attack
from tests.secure_fl.service.conftest import CLIENTS, set_up_blobs
from tests.secure_fl.service.masked_parties import masked_parties
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.two_queriers import QUERIERS, with_lab

ATTACK = Attack(
    name="asks as one of two queriers for the other's batches, by its name, or with its share",
    holds="one querier's keys, or both of two that pool what they have, and their signatures",
    before="with all queriers behind one name: every batch and answer of the others'; with limits"
    " counted apart, twice of each",
    after="the word that a batch of that name is absent; of all limits what one querier alone gets",
)

FIRST = slice(0, 2)
NOW = 1e9
FOUR = ("east", "north", "south", "west")


@pytest.fixture(scope="module")
def two(made, other, tmp_path_factory):
    return with_lab(made, other, tmp_path_factory.mktemp("two") / "parties")


@pytest.fixture(scope="module")
def players(two):
    """Both queriers, at a running evaluator that lets two batches of each wait."""
    with deployment(two.folder) as running:
        running.start("evaluator", "--queue", "4", "--rate", "1000", "--burst", "1000")
        yield {name: Players(two, running, name) for name in QUERIERS}


# --------------------------------------------------------------------------- another's batches


def test_both_get_their_own_answers_and_neither_anything_of_the_others(players, two):
    """The cheat knows the batch's name, and asks for all that can be asked for."""
    victim, cheat = players["querier"], players["lab"]
    names = {name: each.open(FIRST) for name, each in players.items()}
    path = f"/batches/{names['querier']}"
    reach = [("GET", path), ("GET", f"{path}/answer"), ("DELETE", path)]
    nobodys = f"/batches/{secrets.token_hex(8)}"

    def refused():
        found = [cheat.send("lab", method, where) for method, where in reach]
        absent = cheat.send("lab", "GET", nobodys)
        assert [each.status_code for each in found] == [404, 404, 404]
        # Nor does it hear that there is such a batch.
        assert {each.content for each in found} == {absent.content}

    refused()
    for name, each in players.items():
        for client in CLIENTS:
            each.contribute(client, names[name])
    found = victim.querier().wait(names["querier"], lambda status: None, lambda _: refused())
    mine = cheat.querier().wait(names["lab"], lambda status: None)
    read = {
        name: players[name].querier().read(names[name], received, players[name].secret, None)
        for name, received in (("querier", found), ("lab", mine))
    }
    assert read["querier"].classes.tolist() == two.clear(FIRST) == read["lab"].classes.tolist()
    # A listener on the line has the answer too, and another key than it is under.
    answer = fhe.Answer.from_bytes(found.content, source="answer")
    with pytest.raises(KeyMismatch, match="key"):
        fhe.read_answer(answer, cheat.secret)


def test_the_others_opening_and_sealed_queries_open_nothing(players):
    """Replayed under the cheat's signature, by the same name and by another."""
    victim, cheat = players["querier"], players["lab"]
    name, other = secrets.token_hex(8), secrets.token_hex(8)
    body = victim.opening(name, FIRST)
    assert victim.send("querier", "PUT", f"/batches/{name}", body).status_code == 201
    again = cheat.send("lab", "PUT", f"/batches/{name}", body)
    assert (again.status_code, "a batch of this name exists" in again.text) == (409, True)
    for batch in (other, name):
        taken = json.loads(victim.opening(batch, FIRST)) if batch == other else json.loads(body)
        found = cheat.send("lab", "PUT", f"/batches/{other}", json.dumps(taken).encode())
        assert (found.status_code, "another querier's" in found.text) == (422, True), batch
    assert victim.status(name)["state"] == "collecting"
    victim.send("querier", "DELETE", f"/batches/{name}")


def test_neither_fills_the_others_part_of_the_queue(players):
    victim, cheat = players["querier"], players["lab"]
    filled = [cheat.open(FIRST) for _ in range(2)]
    full = cheat.send("lab", "PUT", "/batches/more", cheat.opening("more", FIRST))
    assert full.status_code == 429
    name = victim.open(FIRST)
    for who, each in (("querier", name), *(("lab", name) for name in filled)):
        assert players[who].send(who, "DELETE", f"/batches/{each}").status_code == 200


# ------------------------------------------------------------------------------- another's name


def test_the_others_name_needs_the_others_key(players, two):
    """In a request, and in a sealed query that a colluding evaluator passes on."""
    cheat, name = players["lab"], secrets.token_hex(8)
    lab = read_member(two.folder / "lab" / IDENTITY, "lab", two.manifest)
    found = cheat.send("lab", "GET", f"/batches/{name}", claims={"sender": "querier"})
    assert found.status_code == 401
    told = facts(two, "querier", name)
    forged = seal_query(told, two.queries[FIRST], None, lab, two.manifest)
    with pytest.raises(InputError, match="not signed by the federation's querier 'querier'"):
        SealedQuery.from_bytes(forged.to_bytes(), two.manifest)
    for asks in ("north", "evaluator", "nobody"):
        member = read_member(two.folder / "lab" / IDENTITY, "lab", two.manifest)
        forged = seal_query(facts(two, asks, name), two.queries[FIRST], None, member, two.manifest)
        with pytest.raises(InputError, match=f"not signed by the federation's querier '{asks}'"):
            SealedQuery.from_bytes(forged.to_bytes(), two.manifest)


def test_answers_under_the_others_key_are_not_asked_for(players, two, tmp_path):
    """Evaluator and contributors go by the key that the asking querier gave them."""
    cheat, name = players["lab"], secrets.token_hex(8)
    taken = facts(two, "lab", name, public=public(two, "querier"), expires=time.time() + 600)
    lab = read_member(two.folder / "lab" / IDENTITY, "lab", two.manifest)
    sealed = {}
    for client in CLIENTS:
        own = attrs.evolve(taken, contributor=client)
        query = seal_query(own, two.queries[FIRST], None, lab, two.manifest).to_bytes()
        sealed[client] = base64.b64encode(query).decode()
    terms = {"queries": 2, "quorum": taken.quorum, "expires": taken.expires}
    body = json.dumps({**terms, "patience": 0.0, "sealed": sealed}).encode()
    found = cheat.send("lab", "PUT", f"/batches/{name}", body)
    assert (found.status_code, "another public key" in found.text) == (422, True)
    with pytest.raises(Declined, match="another public key than this client has"):
        north(two, tmp_path).answer(base64.b64decode(sealed["north"]), name, NOW)


def test_what_is_sealed_to_one_opens_for_that_one_alone(two):
    """Refusals of the encrypted rules, and the shares that open a masked sum."""
    own, asking = (
        read_member(two.folder / name / IDENTITY, name, two.manifest)
        for name in ("north", "querier")
    )
    lab = read_member(two.folder / "lab" / IDENTITY, "lab", two.manifest)
    reason = seal_reason(own, two.manifest, "b", "querier", "not today")
    shares = seal_shares(own, two.manifest, "b", "querier", b"shares")
    assert open_reason(reason, asking, two.manifest, "b", "north") == "not today"
    assert open_shares(shares, asking, two.manifest, "b", "north") == b"shares"
    with pytest.raises(InputError):
        open_reason(reason, lab, two.manifest, "b", "north")
    with pytest.raises(InputError, match="not sealed to the querier"):
        open_shares(shares, lab, two.manifest, "b", "north")


# --------------------------------------------------------------------------------- pooled limits


def public(two, asks):
    return fhe.load_public_key(two.folder / asks).fingerprint


def facts(two, asks, batch, **changes):
    fine = {
        "federation": two.manifest.fingerprint,
        "batch": batch,
        "contributor": "north",
        "public": public(two, asks) if asks in QUERIERS else "0" * 64,
        "queries": 2,
        "quorum": 2,
        "expires": NOW + 1e6,
        "querier": asks,
    }
    return Facts(**{**fine, **changes})


def north(two, state, **terms):
    own = two.folder / "north"
    policy = ContributorPolicy(**terms)
    return load_contributor(own, "north", own, own / IDENTITY, state, policy)


def answered(two, contributor, asks, rows):
    """Whether a contributor answers queries of one of the two."""
    batch, features = secrets.token_hex(8), two.queries[rows]
    member = read_member(two.folder / asks / IDENTITY, asks, two.manifest)
    told = facts(two, asks, batch, queries=len(features))
    query = seal_query(told, features, None, member, two.manifest)
    try:
        contributor.answer(query.to_bytes(), batch, NOW)
    except Declined:
        return False
    return True


def test_two_that_pool_their_repeats_get_what_one_gets(two, tmp_path):
    """Each answer to nearly the same query tells a bit, whoever of the two it is given to."""
    alone = north(two, tmp_path / "alone", repeats=4, quotas={"lab": 0})
    pooled = north(two, tmp_path / "pooled", repeats=4)
    assert sum(answered(two, alone, "querier", slice(0, 1)) for _ in range(8)) == 4
    assert sum(answered(two, pooled, QUERIERS[i % 2], slice(0, 1)) for i in range(12)) == 4


def test_two_that_pool_their_days_get_what_one_gets(two, tmp_path):
    contributor = north(two, tmp_path, daily_queries=7, repeats=1000)
    took = dict.fromkeys(QUERIERS, 0)
    for i in range(12):
        took[QUERIERS[i % 2]] += answered(two, contributor, QUERIERS[i % 2], slice(i, i + 1))
    assert took == {"querier": 3, "lab": 3}


def test_one_learns_nothing_of_what_the_other_asked_by_being_declined(two, tmp_path):
    """Were repeats drawn from in common, a guess that is declined would be a right one."""
    outcomes = []
    for state, before in (("asked", True), ("not", False)):
        contributor = north(two, tmp_path / state, repeats=4, daily_queries=12)
        for i in range(2 if before else 0):
            assert answered(two, contributor, "querier", slice(0, 1)), i
        outcomes.append([answered(two, contributor, "lab", slice(0, 1)) for _ in range(4)])
    assert outcomes == [[True, True, False, False]] * 2


# -------------------------------------------------------------------------------- rules of sums


def test_a_masked_sum_opens_for_who_asked_and_the_other_reaches_nothing(tmp_path):
    with masked_parties(tmp_path / "parties", FOUR, QUERIERS) as parties:
        parties.asks = "lab"
        batch = parties.open()
        parties.all_take_part(batch)
        found = parties.fetch(batch)
        assert (found.classes.tolist(), found.codes.tolist()) == parties.clear(slice(0, 6), FOUR)
        line = Channel(parties.running.url(), parties.member("querier"), parties.manifest)
        with line, pytest.raises(ServiceError, match="no such batch"):
            line.expect("GET", f"/batches/{batch}", what="batch")


def test_what_contributors_are_told_is_bound_to_who_asks():
    """Told by one for some contributors and by the other for the rest, there is no sum."""
    told = [Told("f", "b", np.zeros((2, 3)), bytes(32), b"", name) for name in QUERIERS]
    one, two = (each.agreed(RowCoding(4, 2), 0, 2) for each in told)
    assert one != two


def test_two_that_pool_their_votes_get_as_many_answers_as_the_book_pays_for(tmp_path):
    """Epsilon is per record, and adds up over whoever asked."""
    folder, epsilon, delta = tmp_path / "parties", 8.0, 1e-5
    manifest, queries, _ = set_up_blobs(folder, 0, FOUR, QUERIERS, rule="votes", answer_noise=6.0)
    own = folder / "north"
    book = AnswersBook.open(own / "state.jsonl", "north", epsilon, delta)
    policy = ContributorPolicy(repeats=1000, quorum=3)
    parts = (own, "north", None, own / IDENTITY, own / "state", policy)
    contributor = load_contributor(*parts, answers=book)
    coding = coding_of(manifest, 3)
    took = dict.fromkeys(QUERIERS, 0)
    for i in range(coding.answers_within(epsilon, delta) + 4):
        asks, batch = QUERIERS[i % 2], secrets.token_hex(8)
        told = Told(manifest.fingerprint, batch, queries[:1], bytes(32), b"", asks)
        facts = Facts(
            federation=manifest.fingerprint,
            batch=batch,
            contributor="north",
            public=told.agreed(coding, 0, 1).hex(),
            queries=1,
            quorum=3,
            expires=NOW + 60,
            querier=asks,
        )
        member = read_member(folder / asks / IDENTITY, asks, manifest)
        query = seal_query(facts, queries[:1], None, member, manifest, bytes(32))
        if sum(took.values()) < coding.answers_within(epsilon, delta):
            contributor.part(query.to_bytes(), batch, NOW)
            took[asks] += 1
            continue
        with pytest.raises(Declined, match="more than is left of this client's budget"):
            contributor.part(query.to_bytes(), batch, NOW)
    assert min(took.values()) > 1
