"""Rows of words: their sum shows the smallest integer and is uniform from it on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from kahm import classify
from secure_fl.errors import InputError, ProtocolError
from secure_fl.masked import RowCoding
from secure_fl.masked.rows import MOST_WORDS

CODING = RowCoding(3, 4)


def summed(codings_codes, coding):
    """The sum of fresh rows of every contributor's codes."""
    rows = [coding.rows(codes) for codes in codings_codes]
    return np.add.reduce(rows, dtype=rows[0].dtype)


@st.composite
def federations(draw):
    """Codes of a few contributors: ties, classes that are missing (the largest code), both ends."""
    bits, classes = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    clients, queries = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    top = 2**bits - 1
    code = st.one_of(st.sampled_from([0, top]), st.integers(0, top))
    size = clients * queries * classes
    values = draw(st.lists(code, min_size=size, max_size=size))
    return bits, np.array(values).reshape(queries, clients, classes)


@given(federations(), st.sampled_from([32, 64]))
@settings(max_examples=60)
def test_the_sum_opens_to_the_plain_rules_class_and_the_smallest_code(federation, word_bits):
    bits, codes = federation
    coding = RowCoding(bits, codes.shape[2], word_bits)
    found = coding.open(summed(codes.swapaxes(0, 1), coding))
    assert np.array_equal(found.classes, classify(codes))
    assert np.array_equal(found.codes, codes.min(axis=(1, 2)))


def test_one_class_alone_and_codes_at_both_ends():
    """A contributor that holds one class has the largest code at the others (eq. 123)."""
    codes = np.full((2, 3, 4), 7)
    codes[0, 1, 2] = 0
    found = CODING.open(summed(codes.swapaxes(0, 1), CODING))
    assert found.classes.tolist() == [2, 0]
    assert found.codes.tolist() == [0, 7]


def uniform(words: np.ndarray) -> bool:
    """Whether the bytes of words are equally frequent, at a chance of 10^-9 of being wrong."""
    counts = np.bincount(words.view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    return float(((counts - expected) ** 2 / expected).sum()) < chi2.isf(1e-9, 255)


def test_a_sum_is_distributed_as_one_row_of_the_answer():
    """The simulator: zero below the smallest integer, independent uniform words from it on.

    Independence of neighbours is seen in their differences, which are uniform as well.
    """
    queries = 4000
    codes = np.tile(np.array([[[3, 5, 6, 7], [3, 2, 7, 7], [4, 2, 2, 7]]]), (queries, 1, 1))
    smallest = 2 * CODING.classes + 1
    total = summed(codes.swapaxes(0, 1), CODING).reshape(queries, -1)
    simulated = CODING.rows_of(np.full(queries, smallest)).reshape(queries, -1)
    for seen in (total, simulated):
        assert not seen[:, :smallest].any()
        rest = seen[:, smallest:]
        assert uniform(np.ascontiguousarray(rest).ravel())
        for place in (0, 1, rest.shape[1] - 1):
            assert uniform(np.ascontiguousarray(rest[:, place]))
        assert uniform(np.ascontiguousarray(rest[:, 1:] - rest[:, :-1]).ravel())


def test_what_a_coalition_has_left_shows_the_smallest_of_the_others_alone():
    """Whoever knows some rows takes them off: a sum of the others' rows is left, and no more."""
    codes = np.array([[[0, 5, 6, 7], [3, 4, 7, 7], [4, 2, 2, 7]]]).repeat(2000, axis=0)
    rows = [CODING.rows(codes[:, i]) for i in range(3)]
    left = (rows[0] + rows[1] + rows[2] - rows[0]).reshape(2000, -1)
    smallest = 2 * CODING.classes + 1
    assert not left[:, :smallest].any()
    assert uniform(np.ascontiguousarray(left[:, smallest:]).ravel())


def test_rows_are_fresh_every_time():
    codes = np.zeros((1, 4), np.int64)
    first, second = CODING.rows(codes), CODING.rows(codes)
    assert not np.any(first == second)


def test_an_answer_is_wrong_only_if_the_first_random_word_is_zero():
    """The failure of 2^-w a query: the next word then takes the answer's place."""
    row = CODING.rows_of(np.array([9]))
    row[9] = 0
    found = CODING.open(row)
    assert (found.codes[0] * CODING.classes + found.classes[0]) == 10


def test_a_sum_that_is_zero_everywhere_is_no_answer():
    with pytest.raises(ProtocolError, match="query 1 is zero everywhere"):
        CODING.open(np.concatenate([CODING.rows_of(np.array([0])), np.zeros(32, np.uint64)]))


def test_garbage_gives_a_class_that_exists_and_a_wrong_length_is_refused():
    """A contributor that sends random words answers code 0, as one that lies does."""
    garbage = np.random.default_rng(0).integers(0, 2**64, 32, np.uint64)
    found = CODING.open(CODING.rows(np.full((1, 4), 7)) + garbage)
    assert found.codes.tolist() == [0]
    assert found.classes.tolist() == [0]
    with pytest.raises(ProtocolError, match="a sum of 33 words"):
        CODING.open(np.ones(33, np.uint64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4), "codes of 0 bits, expected 1 to 16"),
        ((8, 1), "1 classes, expected at least 2"),
        ((8, 4, 16), "words of 16 bits, expected 64 or 32"),
        ((16, 100), f"6,553,600 words a query, expected at most {MOST_WORDS:,}"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        RowCoding(*arguments)


def test_codes_out_of_range_or_of_another_shape_are_refused():
    with pytest.raises(InputError, match="found 0 to 8, expected 0 to 7"):
        CODING.rows(np.array([[0, 8, 1, 1]]))
    with pytest.raises(InputError, match=r"expected \(queries, 4\)"):
        CODING.rows(np.array([[0, 1, 1]]))
