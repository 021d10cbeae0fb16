"""Keys, seals, signatures, limits and memories, each by itself."""

import json

import attrs
import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from fhe.audit import new_audit
from fhe.errors import InputError as FileError
from secure_fl.demo.service_parties import IDENTITY
from secure_fl.errors import InputError, ServiceError
from secure_fl.service.contributor import ContributorPolicy, Declined
from secure_fl.service.contributor_app import load_contributor
from secure_fl.service.limits import Buckets, Nonces
from secure_fl.service.members import enrol, make_member_keys, read_member, signature_keys
from secure_fl.service.sealed_query import SUITE, Facts, SealedQuery, open_query, seal_query
from secure_fl.service.serving import Address, check_url
from secure_fl.service.signing import Request, new_request, read_token, signed
from secure_fl.service.store import Store

NOW = 1e9


def member(made, name):
    return read_member(made.folder / name / IDENTITY, name, made.manifest)


# ----------------------------------------------------------------------------------- RFC 9180


def labeled_extract(suite, salt, label, key):
    whole = b"HPKE-v1" + suite + label + key
    return HKDF.extract(hashes.SHA256(), salt or bytes(32), whole)


def labeled_expand(suite, secret, label, info, length):
    whole = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return HKDFExpand(hashes.SHA256(), length, whole).derive(secret)


def open_by_hand(private, sealed, info, associated):
    """RFC 9180, base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305."""
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x03"
    enc, ciphertext = sealed[:32], sealed[32:]
    shared = private.exchange(X25519PublicKey.from_public_bytes(enc))
    prk = labeled_extract(kem, b"", b"eae_prk", shared)
    context = enc + private.public_key().public_bytes_raw()
    shared = labeled_expand(kem, prk, b"shared_secret", context, 32)
    schedule = b"\0" + b"".join(
        labeled_extract(suite, b"", label, value)
        for label, value in ((b"psk_id_hash", b""), (b"info_hash", info))
    )
    secret = labeled_extract(suite, shared, b"secret", b"")
    key = labeled_expand(suite, secret, b"key", schedule, 32)
    nonce = labeled_expand(suite, secret, b"base_nonce", schedule, 12)
    return ChaCha20Poly1305(key).decrypt(nonce, ciphertext, associated)


def test_what_the_library_seals_opens_by_the_rfcs_own_steps():
    """The steps are held against the vector of appendix A.2.1, whose associated data the
    library's interface does not take."""
    private = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb")
    )
    info = b"Ode on a Grecian Urn"
    vector = bytes.fromhex(
        "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a"
        "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28"
    )
    assert open_by_hand(private, vector, info, b"Count-0") == b"Beauty is truth, truth beauty"
    sealed = SUITE.encrypt(b"a query", private.public_key(), info)
    assert open_by_hand(private, sealed, info, b"") == b"a query"


# ------------------------------------------------------------------------------ sealed queries


def facts(made, **changes):
    fine = {
        "federation": made.manifest.fingerprint,
        "batch": "b",
        "contributor": "north",
        "public": load(made).keys["querier"].fingerprint,
        "queries": 3,
        "quorum": 2,
        "expires": NOW + 60,
    }
    return Facts(**{**fine, **changes})


def load(made, name="north", state=None, **terms):
    folder = made.folder / name
    place = state or folder / "state"
    return load_contributor(
        folder, name, folder, folder / IDENTITY, place, ContributorPolicy(**terms)
    )


def sealed(made, rows=slice(0, 3), audit=None, signer="querier", **changes):
    signs = attrs.evolve(member(made, signer), name="querier")
    return seal_query(facts(made, **changes), made.queries[rows], audit, signs, made.manifest)


def test_a_sealed_query_opens_for_its_contributor_alone(made):
    query = sealed(made)
    received = SealedQuery.from_bytes(query.to_bytes(), made.manifest)
    assert received == query
    found, audit = open_query(received, member(made, "north"), 2)
    assert found.tolist() == made.queries[:3].tolist()
    assert audit is None
    assert made.queries[:3].tobytes() not in query.to_bytes()
    for other in ("south", "querier", "evaluator"):
        with pytest.raises(InputError, match="not sealed to this member, or altered"):
            open_query(received, member(made, other), 2)


def test_known_answers_travel_in_the_seal(made):
    audit = new_audit(2)
    query = sealed(made, slice(0, 1), audit)
    assert open_query(query, member(made, "north"), 2)[1] == audit
    assert audit.seed not in query.to_bytes()


@pytest.mark.parametrize("member_name", ["batch", "contributor", "public", "quorum", "expires"])
def test_a_changed_fact_breaks_signature_and_seal(made, member_name):
    query = sealed(made)
    value = {"quorum": 1, "expires": NOW + 61}.get(member_name, "other")
    changed = attrs.evolve(query, facts=attrs.evolve(query.facts, **{member_name: value}))
    with pytest.raises(InputError, match="not signed by the federation's querier"):
        SealedQuery.from_bytes(changed.to_bytes(), made.manifest)
    with pytest.raises(InputError, match="not sealed to this member, or altered"):
        open_query(changed, member(made, "north"), 2)


def test_a_query_that_somebody_else_signed_is_refused(made, other):
    for signer in ("evaluator", "south"):
        with pytest.raises(InputError, match="not signed by the federation's querier"):
            SealedQuery.from_bytes(sealed(made, signer=signer).to_bytes(), made.manifest)
    with pytest.raises(InputError, match="of another federation"):
        SealedQuery.from_bytes(sealed(made).to_bytes(), other.manifest)


def test_a_query_of_another_shape_or_not_finite_is_refused(made):
    query = sealed(made, slice(0, 2))
    with pytest.raises(InputError, match=r"shape \(2, 2\), expected \(3, 2\)"):
        open_query(query, member(made, "north"), 2)
    bad = np.full((3, 2), np.nan, np.float32)
    query = seal_query(facts(made), bad, None, member(made, "querier"), made.manifest)
    with pytest.raises(InputError, match="NaN or infinity"):
        open_query(query, member(made, "north"), 2)


@given(st.binary(max_size=400))
def test_bytes_that_are_no_sealed_query_are_refused(made, data):
    with pytest.raises(FileError):
        SealedQuery.from_bytes(data, made.manifest)


# -------------------------------------------------------------------------------- contributor


def test_a_contributor_answers_a_batch_once_and_keeps_it_until_delivered(made, tmp_path):
    contributor = load(made, state=tmp_path)
    data = sealed(made).to_bytes()
    sent = contributor.answer(data, "b", NOW)
    assert contributor.outbox.undelivered("b") == sent
    contributor.outbox.delivered("b")
    again = load(made, state=tmp_path)
    assert again.outbox.undelivered("b") is None
    with pytest.raises(Declined, match="answered before"):
        again.answer(data, "b", NOW)


@pytest.mark.parametrize(
    ("changes", "now", "reason"),
    [
        ({"batch": "other"}, NOW, "of another batch"),
        ({"contributor": "south"}, NOW, "sealed to another client"),
        ({"public": "0" * 64}, NOW, "another public key"),
        ({}, NOW + 61, "expired"),
        ({"quorum": 1}, NOW, "quorum 1, this client's terms ask for 2"),
        ({"queries": 11}, NOW, "11 queries in 24 hours, this client's terms allow 10"),
    ],
)
def test_a_contributor_declines_what_is_against_its_terms(made, tmp_path, changes, now, reason):
    contributor = load(made, state=tmp_path, daily_queries=10)
    with pytest.raises(Declined, match=reason):
        contributor.answer(sealed(made, **changes).to_bytes(), "b", now)
    assert not contributor.outbox.answered("b")


def test_the_limit_of_a_day_counts_all_batches_and_ends_with_the_day(made, tmp_path):
    contributor = load(made, state=tmp_path, daily_queries=5)
    contributor.answer(sealed(made).to_bytes(), "b", NOW)
    second = sealed(made, batch="c", expires=NOW + 1e6).to_bytes()
    with pytest.raises(Declined, match="6 queries in 24 hours"):
        contributor.answer(second, "c", NOW + 86000)
    contributor.answer(second, "c", NOW + 86401)


# ------------------------------------------------------------------------------------- members


def test_members_are_all_parties_with_keys_of_their_own(made, tmp_path):
    public = {name: make_member_keys(tmp_path / name) for name in ("a", "b", "c", "d", "e")}
    names = ("north", "south", "west", "querier", "evaluator")
    keys = dict(zip(names, public.values(), strict=True))
    found = enrol(made.manifest, keys)
    assert read_member(tmp_path / "a", "north", found).public == public["a"]
    assert signature_keys(found)["west"] == bytes.fromhex(public["c"])[:32]
    assert len({public["a"][:64], public["a"][64:]}) == 2
    with pytest.raises(InputError, match=r"not the key that federation\.json lists for 'south'"):
        read_member(tmp_path / "a", "south", found)
    with pytest.raises(InputError, match="member 'east': the federation has north, south"):
        read_member(tmp_path / "a", "east", found)
    with pytest.raises(InputError, match="member 'west': missing"):
        enrol(made.manifest, {k: v for k, v in keys.items() if k != "west"})
    with pytest.raises(InputError, match="two of them have the same key"):
        enrol(made.manifest, {**keys, "west": keys["north"]})
    with pytest.raises(InputError, match="lists no keys of members"):
        signature_keys(attrs.evolve(made.manifest, members=()))


# ------------------------------------------------------------------------------------- signing


def test_any_change_of_signed_claims_is_found(made):
    north, keys = member(made, "north"), signature_keys(made.manifest)
    claims = new_request(north, "evaluator", "f", "GET", "/", b"")
    token, read = read_token(signed(north, claims), Request)
    assert read == claims
    token.check(keys)
    for name, value in attrs.asdict(claims).items():
        other = value + 1 if isinstance(value, int | float) else value + "0"
        text = json.dumps({**attrs.asdict(claims), name: other}, sort_keys=True).encode()
        spoilt = attrs.evolve(token, text=text, claims=attrs.evolve(claims, **{name: other}))
        with pytest.raises(ServiceError, match="not that of the member"):
            spoilt.check(keys)


@given(st.text(max_size=300))
def test_text_that_is_no_token_is_refused(text):
    with pytest.raises(ServiceError, match="cannot be read"):
        read_token(text, Request)


# -------------------------------------------------------------------------------------- limits


@given(
    st.floats(0.1, 100),
    st.integers(1, 20),
    st.lists(st.floats(0, 3, allow_subnormal=False), max_size=60),
)
def test_a_bucket_never_grants_more_than_burst_and_rate_allow(rate, burst, gaps):
    """In every stretch of time that begins with a request."""
    now, granted = [0.0], []
    buckets = Buckets(rate, burst, clock=lambda: now[0])
    for gap in gaps:
        now[0] += gap
        wait = buckets.wait("a")
        if wait == 0:
            granted.append(now[0])
        else:
            assert wait <= 1 / rate + 1e-9
    for i, start in enumerate(granted):
        for j, end in enumerate(granted[i:], 1):
            assert j <= burst + rate * (end - start) + 1e-6


def test_a_token_that_was_taken_for_nothing_is_put_back():
    buckets = Buckets(1e-9, 2, clock=lambda: 0.0)
    assert buckets.wait("a") == 0
    for _ in range(3):
        buckets.give_back("a")
    assert [buckets.wait("a") > 0 for _ in range(3)] == [False, False, True]


def test_buckets_forget_the_least_lately_used_name():
    buckets = Buckets(1e-9, 1, names=2, clock=lambda: 0.0)
    assert [buckets.wait(name) == 0 for name in "abab"] == [True, True, False, False]
    assert buckets.wait("c") == 0
    assert buckets.wait("a") == 0


def test_a_nonce_is_fresh_once_until_its_time_is_over(tmp_path):
    nonces = Nonces(tmp_path / "n", 10)
    assert nonces.fresh("a", "1", 0)
    assert nonces.fresh("b", "1", 0)
    assert not nonces.fresh("a", "1", 9)
    nonces.close()
    assert not Nonces(tmp_path / "n", 10).fresh("a", "1", 9)
    assert Nonces(tmp_path / "n", 10).fresh("a", "1", 11)


# ------------------------------------------------------------------------------- where it runs


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_this_machine_alone_is_served_without_tls(host):
    Address(host=host, port=1).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "evaluator.example", ""])
def test_others_are_served_with_tls_or_when_it_is_said_plainly(host, tmp_path):
    with pytest.raises(InputError, match="it needs TLS"):
        Address(host=host, port=1).check()
    Address(host=host, port=1, insecure=True).check()
    Address(host=host, port=1, certificate=tmp_path, key=tmp_path).check()
    with pytest.raises(InputError, match="give both, or none"):
        Address(host=host, port=1, certificate=tmp_path).check()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://evaluator.example:8443", "not encrypted; use https"),
        ("http://127.0.0.1.example", "not encrypted; use https"),
        ("ftp://127.0.0.1", "expected https://HOST:PORT"),
        ("evaluator.example", "expected https://HOST:PORT"),
    ],
)
def test_an_address_that_is_not_safe_is_not_called(url, message):
    with pytest.raises(InputError, match=message):
        check_url(url, insecure=False)


# --------------------------------------------------------------------------------------- store


def opened(store, name="b", **changes):
    terms = {"queries": 3, "quorum": 2, "patient_until": 10.0, "expires": 20.0, "queue": 9}
    sealed_queries = {client: b"q " + client.encode() for client in ("n", "s", "w")}
    assert store.open("f", name, "digest", sealed_queries, **{**terms, **changes}) == "opened"
    return store.find("f", name)


@given(
    settled=st.lists(
        st.tuples(st.sampled_from("nsw"), st.booleans()), unique_by=lambda pair: pair[0]
    ),
    quorum=st.integers(1, 3),
    now=st.sampled_from([0.0, 10.0, 20.0]),
)
@settings(max_examples=40)
def test_a_batch_moves_on_exactly_when_its_terms_say(tmp_path_factory, settled, quorum, now):
    """Against the terms written as one expression."""
    store = Store(tmp_path_factory.mktemp("store") / "db")
    batch = opened(store, quorum=quorum)
    for client, sends in settled:
        done = store.accept(batch, client, b"c") if sends else store.decline(batch, client)
        assert done
    sent = [client for client, sends in settled if sends]
    refused = len(settled) - len(sent)
    ready = len(sent) >= quorum and (len(settled) == 3 or now >= 10)
    lost = not ready and (3 - refused < quorum or now >= 20)
    assert store.advance(now) == (ready or lost)
    found = store.find("f", "b")
    assert found.state == ("queued" if ready else "failed" if lost else "collecting")
    if ready:
        assert sorted(found.present) == sorted(sent)
    store.close()


def test_a_batch_whose_evaluation_dies_is_tried_so_often_and_no_more(tmp_path):
    store = Store(tmp_path / "db")
    batch = opened(store, quorum=1)
    store.accept(batch, "n", b"c")
    store.advance(10.0)
    for _ in range(2):
        assert store.begin() is not None
        store.hand_back(3, died=True)
        assert store.find("f", "b").state == "queued"
    assert store.begin() is not None
    store.hand_back(3, died=False)
    assert store.find("f", "b").state == "queued"
    assert store.begin() is not None
    store.hand_back(3, died=True)
    assert (store.find("f", "b").state, store.find("f", "b").reason) == (
        "failed",
        "its evaluation died 3 times",
    )
    assert store.contribution(batch, "n") is None


def test_an_answer_is_kept_once_and_replaces_what_it_was_made_of(tmp_path):
    store = Store(tmp_path / "db")
    batch = opened(store, quorum=1)
    assert store.sealed(batch, "n") == b"q n"
    assert store.accept(batch, "n", b"c")
    assert not store.accept(batch, "n", b"other")
    assert store.sealed(batch, "n") is None
    store.advance(10.0)
    assert not store.accept(batch, "s", b"late")
    store.begin()
    assert store.finish(batch, b"answer", 11.0)
    assert not store.finish(batch, b"second", 11.0)
    assert store.answer(batch) == b"answer"
    assert store.contribution(batch, "n") is None
    store.forget(12.0)
    assert store.find("f", "b").state == "closed"
    assert store.answer(batch) is None
    terms = {"queries": 3, "quorum": 2, "patient_until": 10.0, "expires": 20.0}
    assert store.open("f", "b", "digest", {}, **terms, queue=9) == "exists"
    assert store.open("f", "c", "digest", {}, **terms, queue=0) == "full"
