"""The encrypted rule and minimum in one process, against NumPy."""

import numpy as np
import pytest

import fhe
from fhe import lwe_layout, session
from fhe.lwe_layout import messages

RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def minimum():
    return fhe.EncryptedMinimum(columns=5, bits=6, failure_exponent=40)


@pytest.mark.parametrize("rows", [1, 7, pytest.param(20, marks=pytest.mark.slow)])
def test_the_minimum_of_each_row_is_numpys_whatever_their_number(minimum, rows):
    """Odd and even numbers, and more pairs than one call of the circuit takes."""
    table = RNG.integers(0, 64, (rows, 5))
    table[0] = [63, 63, 63, 63, 63]
    table[-1] = [63, 0, 63, 0, 1]
    np.testing.assert_array_equal(minimum(table), table.min(axis=1))


def test_the_winner_may_stand_in_any_column(minimum):
    table = np.full((5, 5), 40) - 9 * np.eye(5, dtype=np.int64)
    np.testing.assert_array_equal(minimum(table), [31] * 5)


@pytest.mark.slow  # two columns: a block of docs/library.md
@pytest.mark.parametrize("columns", [1, 2])
def test_one_call_makes_its_own_keys(columns):
    table = RNG.integers(0, 256, (3, columns))
    found = fhe.encrypted_minimum(table, failure_exponent=40)
    np.testing.assert_array_equal(found, table.min(axis=1))


def test_nothing_is_decrypted_but_the_minima(minimum, monkeypatch):
    """All levels are on ciphertexts: of 3 rows and 5 columns 3 integers are opened, once."""
    opened = []

    def seen(rows, bits, kind):
        opened.append(len(rows))
        return messages(rows, bits, kind)

    monkeypatch.setattr(session, "messages", seen)
    monkeypatch.setattr(lwe_layout, "messages", seen)
    minimum(RNG.integers(0, 64, (3, 5)))
    digits_of_an_integer = 3  # 6 bits in base 5
    assert opened == [3 * digits_of_an_integer]


def test_the_rule_gives_the_class_of_the_smallest_code_call_after_call():
    rule = fhe.EncryptedRule(contributors=3, classes=4, bits=5, failure_exponent=40)
    for queries in (1, 6):
        codes = RNG.integers(0, 32, (queries, 3, 4))
        codes[0] = 7  # a tie of all
        expected = codes.min(axis=1).argmin(axis=1)
        np.testing.assert_array_equal(rule(codes), expected)


@pytest.mark.slow  # its circuit: tests/fhe/test_rule.py
def test_the_papers_rule_gives_the_same_classes():
    rule = fhe.EncryptedRule(contributors=2, classes=3, bits=4, failure_exponent=40, rule="paper")
    codes = RNG.integers(0, 16, (2, 2, 3))
    np.testing.assert_array_equal(rule(codes), codes.min(axis=1).argmin(axis=1))


TABLES = [
    (np.zeros((0, 5), int), "table: shape (0, 5), expected (rows, columns), none of them 0"),
    (np.zeros(5, int), "table: shape (5,), expected (rows, columns), none of them 0"),
    (
        np.zeros((1, 2)),
        "table: of type float64, expected integers; `encode_measures` makes them of measures",
    ),
    (
        [[-1, 3]],
        "table: found -1 to 3, expected 0 to 255, which is what 8 bits hold; give more bits or"
        " smaller integers",
    ),
    (
        np.array([[256, 3]], np.uint16),
        "table: found 3 to 256, expected 0 to 255, which is what 8 bits hold; give more bits or"
        " smaller integers",
    ),
    (np.zeros((1, 257), int), "table: 257 columns, expected 1 to 256"),
]


@pytest.mark.parametrize(("table", "message"), TABLES)
def test_a_table_that_cannot_be_used_is_refused(table, message):
    with pytest.raises(fhe.InputError) as caught:
        fhe.encrypted_minimum(table)
    assert str(caught.value) == message


def test_other_widths_and_shapes_than_the_keys_are_for_are_refused(minimum):
    with pytest.raises(fhe.InputError, match=r"^bits: found 17, expected 4 to 16$"):
        fhe.EncryptedMinimum(columns=2, bits=17)
    with pytest.raises(fhe.InputError, match=r"shape \(2, 4\), expected \(rows, 5\)"):
        minimum(np.zeros((2, 4), int))
    with pytest.raises(fhe.InputError, match="found 0 to 64, expected 0 to 63"):
        minimum([[0, 1, 2, 3, 64]])
