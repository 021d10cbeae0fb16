"""The secure sum is exact for every pattern of drop-outs, and silent below the threshold."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.federation import FederationError, QuorumError, Stage, wire
from secure_fl.federation.secagg import Identity, Parameters, ProtocolError, messages, shares
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.masks import add_masks
from secure_fl.federation.secagg.parameters import default_threshold, ring_degree
from tests.secure_fl.federation.protocol import AGREED, SESSION, Party, names_of
from tests.secure_fl.shared import one_line


@pytest.mark.parametrize("n", [2, 3, 5, 12])
@pytest.mark.parametrize("bits", [32, 64])
def test_the_sum_is_exact(n: int, bits: int):
    party = Party(n, bits=bits)
    found = party.run()
    assert found.survivors == party.names
    assert found.total.tolist() == party.plain(party.names)


@pytest.mark.parametrize("length", [0, 1, 1_000_000])
def test_vectors_of_any_length(length: int):
    party = Party(3, length=length, bits=32, threshold=2)
    found = party.run({party.names[1]: Stage.MASK})
    assert len(found.total) == length
    expected = party.vectors[party.names[0]] + party.vectors[party.names[2]]
    assert np.array_equal(found.total, expected)


def test_two_hundred_clients_on_a_ring():
    party = Party(200, degree=10, shares=6, length=3)
    lost = {party.names[7]: Stage.MASK, party.names[60]: Stage.UNMASK}
    found = party.run(lost)
    assert len(found.survivors) == 199
    assert found.total.tolist() == party.plain(found.survivors)


@pytest.mark.slow
def test_two_hundred_clients_all_with_all():
    party = Party(200, length=3)
    found = party.run(dict.fromkeys(party.names[:60], Stage.MASK))
    assert len(found.survivors) == 140
    assert found.total.tolist() == party.plain(found.survivors)


@pytest.mark.parametrize("stage", list(Stage))
def test_the_sum_is_exact_when_a_client_drops_at_any_step(stage: Stage):
    """Bonawitz et al. 2017, figure 4: the survivors' shares take the masks away."""
    party = Party(4)
    found = party.run({party.names[2]: stage})
    late = stage == Stage.UNMASK
    assert found.survivors == tuple(n for n in party.names if late or n != party.names[2])
    assert found.total.tolist() == party.plain(found.survivors)


STAGES = st.sampled_from([None, *Stage])


@settings(max_examples=25)
@given(st.lists(STAGES, min_size=5, max_size=5), st.integers(3, 5))
def test_any_pattern_of_drop_outs_gives_the_exact_sum_or_a_quorum_error(
    stages: list[Stage | None], threshold: int
):
    party = Party(5, threshold=threshold, length=2)
    lost = {n: s for n, s in zip(party.names, stages, strict=True) if s is not None}
    if len(party.names) - len(lost) >= threshold:
        found = party.run(lost)
        assert set(found.survivors) >= set(party.names) - set(lost)
        assert found.total.tolist() == party.plain(found.survivors)
    else:
        with pytest.raises(QuorumError):
            party.run(lost)


def test_a_client_may_vanish_between_its_confirmation_and_its_shares():
    party = Party(5)
    replies = party.confirm(party.mask(party.share(party.advertise())))
    del replies[party.names[0]]
    assert party.unmask(replies) == party.plain(party.names)


@pytest.mark.parametrize("stage", list(Stage))
def test_below_the_threshold_nothing_is_revealed(stage: Stage):
    party = Party(6)
    lost = dict.fromkeys(party.names[:3], stage)
    with pytest.raises(QuorumError) as caught:
        party.run(lost)
    assert "threshold is 5" in one_line(caught.value)
    # Nobody was brought to open a share, so every vector still lies under its masks.
    assert not any(b"secure sum: opened shares" in each for _, _, each in party.transcript)


def test_one_share_less_than_the_threshold_opens_nothing():
    party = Party(5)
    replies = party.confirm(party.mask(party.share(party.advertise())))
    too_few = dict(list(replies.items())[: default_threshold(5) - 1])
    with pytest.raises(QuorumError, match="nothing is revealed"):
        party.unmask(too_few)


def test_the_threshold_is_above_half():
    for n in range(2, 60):
        assert n / 2 < default_threshold(n) <= n
    names = names_of(6)
    with pytest.raises(FederationError, match="found 3, expected above half of the 6"):
        Parameters(SESSION, 0, 0, names, 3, 5, 4, agreed=AGREED)
    with pytest.raises(FederationError, match="found 3, expected above half of the 6 holders"):
        Parameters(SESSION, 0, 0, names, 4, 5, 3, agreed=AGREED)
    with pytest.raises(FederationError, match="1 clients take part"):
        Parameters(SESSION, 0, 0, names[:1], 1, 1, 1, agreed=AGREED)
    with pytest.raises(FederationError, match="degree: found 3"):
        Parameters(SESSION, 0, 0, names, 4, 3, 3, agreed=AGREED)


# ------------------------------------------------------------------------------------------ graphs


@given(st.integers(2, 40), st.integers(1, 12).map(lambda half: 2 * half))
def test_every_client_of_a_ring_has_its_degree_and_neighbours_agree(n: int, degree: int):
    names = names_of(n)
    graph = Graph(names, degree, SESSION)
    for name in names:
        near = graph.neighbours(name)
        assert len(near) == min(degree, n - 1)
        assert name not in near
        assert all(name in graph.neighbours(other) for other in near)
        assert sorted(graph.holders(name).values()) == list(range(1, len(near) + 2))


def test_the_ring_depends_on_the_sum():
    names = names_of(30)
    rings = {Graph(names, 4, bytes([i])).neighbours(names[0]) for i in range(20)}
    assert len(rings) > 15


def tail(at_least: int, n: int, marked: int, drawn: int) -> Fraction:
    """P(at least so many marked among those drawn without replacement), by counting."""
    ways = sum(
        math.comb(marked, k) * math.comb(n - marked, drawn - k)
        for k in range(at_least, min(marked, drawn) + 1)
    )
    return Fraction(ways, math.comb(n, drawn))


@pytest.mark.parametrize(("n", "lost", "corrupt"), [(200, 10, 5), (500, 50, 25), (1000, 100, 50)])
def test_a_rings_degree_is_the_least_that_is_safe(n: int, lost: int, corrupt: int):
    def safe(degree: int) -> bool:
        """With t of degree + 1 shares to a secret, 2 t - degree - 1 neighbours open both kinds."""
        t = math.floor(2 * (degree + 1) / 3) + 1
        opens = n * tail(2 * t - degree - 1, n - 1, corrupt, degree)
        parts = n * Fraction(lost + corrupt, n) ** (degree // 2)
        stuck = n * tail(degree - t + 1, n - 1, lost, degree)
        return opens + parts <= Fraction(1, 2**40) and stuck <= Fraction(1, 2**30)

    degree = ring_degree(n, lost, corrupt)
    assert degree % 2 == 0
    assert degree < n / 2
    assert safe(degree)
    assert not safe(degree - 2)


def test_where_no_ring_is_safe_all_are_neighbours():
    assert ring_degree(10, 1, 1) == 9
    assert ring_degree(100, 40, 30) == 99
    assert ring_degree(2, 0, 0) == 1


# ------------------------------------------------------------------------------------------ shares


@settings(max_examples=20)
@given(st.binary(min_size=16, max_size=16), st.integers(2, 5), st.integers(0, 3))
def test_any_threshold_of_shares_gives_the_secret(secret: bytes, threshold: int, more: int):
    holders = threshold + more
    dealt = shares.split(secret, threshold, holders)
    for chosen in itertools.combinations(range(1, holders + 1), threshold):
        assert shares.combine({i: dealt[i - 1] for i in chosen}, threshold) == secret


@settings(max_examples=30)
@given(st.data(), st.binary(min_size=16, max_size=16), st.integers(2, 6), st.integers(0, 4))
def test_opening_agrees_with_pycryptodome_even_on_wrong_shares(
    data: st.DataObject, secret: bytes, threshold: int, more: int
):
    from Crypto.Protocol.SecretSharing import Shamir

    holders = threshold + more
    dealt = shares.split(secret, threshold, holders)
    numbers = data.draw(st.permutations(range(1, holders + 1)))[:threshold]
    given_shares = {i: dealt[i - 1] for i in numbers}
    assert shares.combine(given_shares, threshold) == secret
    given_shares[numbers[0]] = data.draw(st.binary(min_size=16, max_size=16))
    oracle = Shamir.combine(sorted(given_shares.items()), ssss=False)
    assert shares.combine(given_shares, threshold) == oracle


@settings(max_examples=25)
@given(st.data(), st.binary(min_size=16, max_size=16), st.integers(2, 8), st.integers(0, 600))
def test_what_either_deals_the_other_opens(
    data: st.DataObject, secret: bytes, threshold: int, more: int
):
    """PyCryptodome's field, polynomials and shares; numbers of more than 8 bits among them."""
    from Crypto.Protocol.SecretSharing import Shamir

    holders = threshold + more
    numbers = data.draw(
        st.lists(st.integers(1, holders), min_size=threshold, max_size=threshold, unique=True)
    )
    ours = shares.split(secret, threshold, holders)
    assert Shamir.combine([(i, ours[i - 1]) for i in numbers], ssss=False) == secret
    theirs = dict(Shamir.split(threshold, holders, secret, ssss=False))
    assert shares.combine({i: theirs[i] for i in numbers}, threshold) == secret


def test_one_share_less_than_the_threshold_is_uniform_whatever_the_secret():
    """Each bit of what two holders of a secret of zeros know is 1 half of the time."""
    dealt = [b"".join(shares.split(bytes(16), 3, 5)[1:3]) for _ in range(2000)]
    ones = np.unpackbits(np.frombuffer(b"".join(dealt), np.uint8)).reshape(2000, 256)
    assert np.abs(ones.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(2000)
    # Both holders together too: no bit of one follows from a bit of the other.
    products = (2.0 * ones[:, :128] - 1).T @ (2.0 * ones[:, 128:] - 1) / 2000
    assert np.abs(products).max() < 6 / np.sqrt(2000)


@pytest.mark.parametrize("holders", [0, 2**16])
def test_a_number_of_holders_beyond_the_lanes_is_refused(holders: int):
    with pytest.raises(ProtocolError, match=f"{holders} holders"):
        shares.split(bytes(16), 1, holders)


def test_many_holders():
    secret = bytes(range(16))
    dealt = shares.split(secret, 150, 200)
    chosen = {i: dealt[i - 1] for i in range(200, 40, -1)}
    assert shares.combine(chosen, 150) == secret


def test_fewer_shares_fit_every_secret():
    """With one share less, each candidate secret has exactly one polynomial: nothing is known."""
    secret, threshold = bytes(range(16)), 3
    dealt = shares.split(secret, threshold, 4)
    known = {1: dealt[0], 2: dealt[1]}
    opened = {
        shares.combine({**known, 3: bytes([guess]) + dealt[2][1:]}, threshold)
        for guess in range(256)
    }
    assert len(opened) == 256
    with pytest.raises(ProtocolError, match="2 shares of a secret, 3 are needed"):
        shares.combine(known, threshold)


# ------------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("length", [0, 1, 1000, 16_384, 16_385, 40_000])
def test_masks_are_aes_keystreams_whatever_the_chunks(dtype: type, length: int):
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    keys = [bytes([i]) * 32 for i in range(3)]
    expected = np.zeros(length, dtype)
    for sign, key in zip((1, 1, -1), keys, strict=True):
        stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        mask = np.frombuffer(stream.update(bytes(expected.nbytes)), dtype)
        expected = expected + mask if sign > 0 else expected - mask
    found = np.zeros(length, dtype)
    add_masks(found, keys[:2], keys[2:])
    assert np.array_equal(found, expected)


def masked_words(party: Party) -> dict[str, np.ndarray]:
    """What the server saw of every client's vector."""
    sent = ((s, m) for s, _, m in party.transcript if f'"kind": "{messages.MASK}"'.encode() in m)
    return {s: wire.decode(message, kind=messages.MASK)["masked"] for s, message in sent}


def test_a_masked_vector_is_uniform():
    """Chi-square on bytes and correlation with the input, at levels of about 1e-6."""
    party = Party(3, length=200_000)
    party.vectors = {name: np.zeros(200_000, np.uint64) for name in party.names}
    party.vectors[party.names[0]][:] = np.arange(200_000)
    party.run()
    words = masked_words(party)[party.names[0]]
    counts = np.bincount(words.view(np.uint8), minlength=256)
    chi_square = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    assert abs(chi_square - 255) < 5 * np.sqrt(2 * 255)
    correlation = np.corrcoef(words / 2.0**64, np.arange(200_000))[0, 1]
    assert abs(correlation) < 5 / np.sqrt(200_000)
    # A serial pattern would show between neighbours.
    assert abs(np.corrcoef(words[1:] / 2.0**64, words[:-1] / 2.0**64)[0, 1]) < 5 / np.sqrt(200_000)


def test_the_same_vector_is_never_masked_alike():
    first, second = Party(3), Party(3)
    first.run()
    second.run()
    seen = [words for party in (first, second) for words in masked_words(party).values()]
    assert len({word for words in seen for word in words.tolist()}) == 6 * 5


def test_the_servers_transcript_holds_no_clients_update():
    """Neither as words, nor as the difference of what it saw, for any client and any entry."""
    party = Party(5, length=64)
    found = party.run({party.names[4]: Stage.UNMASK})
    seen = b"".join(message for _, _, message in party.transcript)
    for vector in party.vectors.values():
        assert all(word.tobytes() not in seen for word in vector)
    total = found.total
    for vector in party.vectors.values():
        rest = total - vector
        assert all(word.tobytes() not in seen for word in rest)
    # The search itself finds what is there: the masked words are.
    for words in masked_words(party).values():
        assert all(word.tobytes() in seen for word in words)


def test_identities_sign_and_nobody_else_does():
    from secure_fl.crypto.keys import verify

    one, two = Identity(), Identity()
    directory = {"one": one.public, "two": two.public}
    signature = one.sign(b"a", b"b")
    verify(directory, "one", signature, b"a", b"b")
    for name, parts in (("two", (b"a", b"b")), ("one", (b"ab", b"")), ("three", (b"a", b"b"))):
        with pytest.raises(ProtocolError):
            verify(directory, name, signature, *parts)
