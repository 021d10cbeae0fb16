"""The rule as secure sums: equal to the plain rule over whoever is left, silent below that."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kahm import classify
from secure_fl.errors import InputError, QuorumError
from secure_fl.federation import FederationError, Stage, wire
from secure_fl.federation.secagg import messages
from secure_fl.masked import MaskedRule, Told, rule
from secure_fl.masked.rows import RowCoding

CLASSES, BITS = 3, 3


def codes_of(clients: int, queries: int, seed: int = 0) -> np.ndarray:
    """Small codes, so that ties are frequent; shape (queries, clients, classes)."""
    return np.random.default_rng(seed).integers(0, 2**BITS, (queries, clients, CLASSES))


def by_name(found: MaskedRule, codes: np.ndarray) -> dict[str, np.ndarray]:
    return {name: codes[:, i] for i, name in enumerate(found.names)}


def told(queries: int, batch: str = "b") -> Told:
    return Told("federation", batch, np.arange(queries, dtype=np.float32)[:, None])


@given(st.integers(2, 6), st.integers(1, 8), st.sampled_from([32, 64]), st.integers(0, 2**32))
@settings(max_examples=15)
def test_answers_equal_the_plain_rules(clients, queries, word_bits, seed):
    found = MaskedRule(contributors=clients, classes=CLASSES, bits=BITS, word_bits=word_bits)
    codes = codes_of(clients, queries, seed)
    assert np.array_equal(found(codes), classify(codes))


def test_a_ring_gives_the_same_answers():
    found = MaskedRule(contributors=12, classes=CLASSES, bits=BITS, degree=6)
    codes = codes_of(12, 9)
    assert np.array_equal(found(codes), classify(codes))


def test_a_batch_longer_than_one_sum_is_several(monkeypatch):
    monkeypatch.setattr(rule, "MOST_WORDS_A_SUM", 50)
    found = MaskedRule(contributors=3, classes=CLASSES, bits=BITS)
    codes, heard = codes_of(3, 7), []
    answer = found.answer(
        by_name(found, codes), told(7), progress=lambda *each: heard.append(each[1:])
    )
    assert np.array_equal(answer.classes, classify(codes))
    assert np.array_equal(answer.codes, codes.min(axis=(1, 2)))
    assert heard == [(2, 7), (4, 7), (6, 7), (7, 7)]


def patterns(clients: int):
    """Every way in which at most two of so many contributors fall silent, and at which step."""
    names = [f"contributor {i}" for i in range(clients)]
    for many in range(3):
        for gone in itertools.combinations(names, many):
            for stages in itertools.product(Stage, repeat=many):
                yield dict(zip(gone, stages, strict=True))


@pytest.mark.parametrize("clients", [3, 4, 5])
def test_every_pattern_of_drop_outs_gives_the_answer_of_the_rest_or_none(clients):
    """Whoever masked before it fell silent is in the sum; below the threshold nothing is opened.

    Who is silent from UNMASK on has masked already. Shares of at least the threshold must come in.
    """
    codes = codes_of(clients, 2, seed=clients)
    found = MaskedRule(contributors=clients, classes=CLASSES, bits=BITS)
    for lost in patterns(clients):
        masked = [i for i, n in enumerate(found.names) if lost.get(n, Stage.UNMASK) > Stage.MASK]
        if clients - len(lost) < found.threshold:
            with pytest.raises(QuorumError, match="nothing is revealed"):
                found.answer(by_name(found, codes), told(2), lost=lost)
            continue
        answer = found.answer(by_name(found, codes), told(2), lost=lost)
        assert answer.contributors == tuple(found.names[i] for i in masked)
        assert np.array_equal(answer.classes, classify(codes[:, masked])), lost
        assert np.array_equal(answer.codes, codes[:, masked].min(axis=(1, 2)))


def test_contributors_that_are_not_there_count_as_dropped_out():
    codes = codes_of(4, 3)
    found = MaskedRule(contributors="abcd", classes=CLASSES, bits=BITS)
    there = {name: codes[:, i] for i, name in enumerate("abcd") if name != "c"}
    answer = found.answer(there, told(3))
    assert answer.contributors == ("a", "b", "d")
    assert np.array_equal(answer.classes, classify(codes[:, [0, 1, 3]]))
    del there["a"]
    with pytest.raises(QuorumError, match="at least 3 are needed; nothing is revealed"):
        found.answer(there, told(3))


def test_the_server_sees_uniform_words_whatever_the_codes_are():
    """Masked rows: no word is zero where the row is, and the same row looks otherwise each time."""
    seen = []

    def observe(sender, receiver, message):
        if receiver == "" and messages.MASK in message[:400].decode(errors="replace"):
            seen.append(wire.decode(message, kind=messages.MASK, source="test")["masked"])

    found = MaskedRule(contributors=3, classes=CLASSES, bits=BITS, observe=observe)
    # Rows of the largest integer are zero nearly everywhere.
    codes = np.full((200, 3, CLASSES), 2**BITS - 1)
    found(codes)
    assert len(seen) == 3
    for words in seen:
        assert len(words) == 200 * found.coding.words
        assert np.count_nonzero(words) == len(words)
        counts = np.bincount(words.view(np.uint8), minlength=256)
        expected = counts.mean()
        # 255 degrees of freedom: mean 255, deviation 23.
        assert ((counts - expected) ** 2 / expected).sum() < 255 + 10 * 23


def test_no_row_serves_two_sums():
    """The same codes in two batches: all words of the sums differ."""
    seen = []
    coding = RowCoding(BITS, CLASSES)

    class Listening(RowCoding):
        def open(self, total):
            seen.append(total)
            return coding.open(total)

    found = MaskedRule(contributors=2, classes=CLASSES, bits=BITS)
    found.coding = Listening(BITS, CLASSES)
    codes = np.zeros((2, 2, CLASSES), np.int64)
    found(codes)
    found(codes)
    assert not np.any(seen[0] == seen[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contributors": 1}, "at least 2 are needed"),
        ({"threshold": 2}, "expected above half of the 4 clients"),
        ({"degree": 1}, "expected an even number of at least 2"),
        ({"classes": 1}, "expected at least 2"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(change, message):
    with pytest.raises((InputError, FederationError), match=message):
        MaskedRule(**{"contributors": 4, "classes": CLASSES, "bits": BITS, **change})


def test_codes_that_do_not_fit_are_refused_by_name():
    found = MaskedRule(contributors="ab", classes=CLASSES, bits=BITS)
    fine = np.zeros((2, CLASSES), np.int64)
    for codes, message in (
        ({"a": fine, "z": fine}, "contributor 'z': unknown here"),
        ({"a": fine, "b": fine[:1]}, "codes of 'b': of 1 queries, 2 are asked"),
        ({"a": fine, "b": fine + 0.5}, "codes of 'b': of type float64"),
        ({"a": fine, "b": fine + 8}, "found 8 to 8, expected 0 to 7"),
    ):
        with pytest.raises(InputError, match=message):
            found.answer(codes, told(2))
    with pytest.raises(InputError, match=r"expected \(queries, 2, 3\)"):
        found(np.zeros((2, 3, CLASSES), np.int64))
