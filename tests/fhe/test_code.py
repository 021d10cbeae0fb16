"""Integer codes, packing and digits: order kept, extremes reached, back and forth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fhe import CodeRange, InputError, Packing, encode_measures, range_from_public_measures
from fhe.code import digits_of, from_digits, to_digits

bits = st.integers(3, 16)
units = st.floats(0, 1)


@given(st.lists(units, min_size=2, max_size=20), bits)
def test_codes_keep_the_order_of_measures(values, p):
    codes = encode_measures(np.sort(values), p)
    assert np.all(np.diff(codes) >= 0)


@given(bits)
def test_zero_and_one_reach_the_ends(p):
    np.testing.assert_array_equal(encode_measures(np.array([0.0, 1.0]), p), [0, 2**p - 1])


def test_a_single_precision_one_does_not_overflow():
    """sqrt(1/2) as 1/1.4142 would exceed 1 and overflow a 16-bit code."""
    assert encode_measures(np.array([1.0], np.float32), 16)[0] == 65535


def test_codes_round_half_up():
    np.testing.assert_array_equal(encode_measures(np.array([0.5, 1.5, 2.4]) / 15, 4), [1, 2, 2])


@given(units, bits)
def test_a_code_is_within_half_a_level(value, p):
    code = encode_measures(np.array([value]), p)[0]
    assert abs(code - value * (2**p - 1)) <= 0.5 + 1e-9


def test_a_range_spends_the_levels_inside_it():
    codes = encode_measures(np.array([0.1, 0.4, 0.5, 0.6, 0.9]), 8, CodeRange(0.4, 0.6))
    np.testing.assert_array_equal(codes, [0, 0, 128, 255, 255])


@pytest.mark.parametrize(
    ("low", "high"), [(0.5, 0.5), (0.6, 0.5), (-0.1, 1), (0, 1.1), (np.nan, 1)]
)
def test_a_range_that_is_none_is_refused(low, high):
    with pytest.raises(InputError, match="0 <= low < high <= 1"):
        CodeRange(low, high)


@pytest.mark.parametrize("value", [-1e-9, 1.0000001, np.nan])
def test_a_measure_outside_the_unit_interval_is_refused(value):
    with pytest.raises(InputError, match="outside"):
        encode_measures(np.array([value]), 8)


@pytest.mark.parametrize("p", [2, 17])
def test_other_widths_are_refused(p):
    with pytest.raises(InputError, match="expected 3 to 16"):
        encode_measures(np.array([0.5]), p)


def test_a_public_range_covers_the_winning_measures():
    measures = np.random.default_rng(0).uniform(0.6, 0.9, (50, 4, 3))
    found = range_from_public_measures(measures)
    winners = measures.min(axis=(1, 2))
    assert found.low <= winners.min()
    assert found.high > np.median(winners)


@given(st.integers(0, 2**24 - 1), st.integers(0, 4), st.sampled_from([2, 3, 5]))
def test_digits_go_back_and_forth(value, spare, base):
    count = digits_of(2**24, base) + spare
    digits = to_digits(np.array([value]), count, base)
    assert digits.shape == (1, count)
    assert 0 <= digits.min() <= digits.max() < base
    assert from_digits(digits, base)[0] == value
    text = np.base_repr(value, base)
    assert "".join(map(str, digits[0])).lstrip("0") == text.lstrip("0")


@given(st.integers(1, 2**24), st.sampled_from([2, 3, 5]))
def test_values_have_as_many_digits_as_the_largest_of_them(values, base):
    assert digits_of(values, base) == len(np.base_repr(values - 1, base))


def test_a_value_too_large_for_its_digits_is_refused():
    with pytest.raises(InputError, match="does not fit"):
        to_digits(np.array([27]), 3, 3)


@given(
    p=bits,
    classes=st.integers(2, 300),
    seed=st.integers(0, 2**32 - 1),
    base=st.sampled_from([3, 5]),
)
def test_a_packed_winner_is_the_smallest_code_and_the_lowest_class(p, classes, seed, base):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, min(2**p, 6), (10, classes))
    packing = Packing(p, classes, base)
    packed = packing.pack(codes)
    np.testing.assert_array_equal(packing.class_of(packed), codes.argmin(axis=1))
    assert packed.max() < base**packing.digits


def test_codes_of_another_class_count_are_refused():
    with pytest.raises(InputError, match="3 classes, expected 4"):
        Packing(8, 4, 3).pack(np.zeros((1, 3), np.int64))


def test_a_code_beyond_its_bits_is_refused():
    with pytest.raises(InputError, match=r"outside 0\.\.255"):
        Packing(8, 2, 5).pack(np.array([[256, 0]]))
