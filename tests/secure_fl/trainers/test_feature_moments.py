"""Moments of all clients' features against the pooled ones, in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.data import Dataset, scaled_features
from secure_fl.errors import FeatureError
from secure_fl.trainers.feature_moments import (
    feature_digits,
    scaling_of_moments,
    summed_moments,
)


def moments_scaling(clients, factor=1.0, **how):
    return scaling_of_moments(summed_moments(clients), factor, **how)


def dataset(X, name="a"):
    return Dataset(X, np.zeros(len(X), np.int64), ("0", "1"), name)


@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    offset=st.sampled_from([0.0, 1.0, 1e6, -1e9]),
    spread=st.sampled_from([1e-12, 1.0, 1e12]),
)
def test_the_sum_of_digits_gives_the_pooled_moments_to_the_last_digits(seed, sizes, offset, spread):
    rng = np.random.default_rng(seed)
    parts = [offset * spread + spread * rng.normal(size=(n, 2)) for n in sizes]
    found = scaling_of_moments(sum(map(feature_digits, parts)), 1.0)
    for j, column in enumerate(np.concatenate(parts).T.tolist()):
        exact = [Fraction(each) for each in column]
        mean = sum(exact) / len(exact)
        variance = float(sum((each - mean) ** 2 for each in exact) / len(exact))
        assert found.offsets[j] == pytest.approx(float(mean), rel=1e-15, abs=1e-15 * spread)
        if variance > 0 and len(column) > 1:
            assert found.spreads[j] == pytest.approx(variance**0.5, rel=1e-6)


@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_masks_and_the_order_of_clients_change_no_bit(seed):
    rng = np.random.default_rng(seed)
    clients = [dataset(rng.normal(3, 2, (n, 3)), f"c{n}") for n in (4, 7, 2)]
    masked = moments_scaling(clients, 0.5)
    assert masked == moments_scaling(clients[::-1], 0.5)
    assert masked == scaling_of_moments(sum(feature_digits(each.X) for each in clients), 0.5)
    pooled = np.concatenate([each.X for each in clients])
    scaled = scaled_features(pooled, masked, np.float64, where="pooled")
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=0), 0.5)


def test_rows_may_be_of_unit_length_and_what_does_not_vary_does_not_count():
    rng = np.random.default_rng(0)
    X = rng.normal([7, 0, 5], [3, 1, 0], (200, 3))
    scaling = moments_scaling([dataset(X[:90]), dataset(X[90:], "b")], unit_rows=True)
    scaled = scaled_features(X, scaling, np.float64, where="x")
    np.testing.assert_allclose(scaled.std(axis=0), [0.5**0.5, 0.5**0.5, 0], atol=1e-12)
    assert np.mean(np.sum(scaled**2, axis=1)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("spread", "divisors"),
    [("moments", [4, 2, 1, 1]), ("floored", [4, 2, 2, 1]), ("common", [7**0.5] * 3 + [1])],
)
def test_deviations_are_floored_by_their_median_or_become_one_number(spread, divisors):
    """Deviations 4, 2 and 1, and a feature that does not vary, which counts nowhere."""
    X = np.array([[4.0, -2.0, 1.0, 3.0], [-4.0, 2.0, -1.0, 3.0]])
    found = moments_scaling([dataset(X)], spread=spread)
    np.testing.assert_allclose(found.spreads, divisors, rtol=1e-12)
    unit = moments_scaling([dataset(X)], unit_rows=True, spread=spread)
    scaled = scaled_features(X, unit, np.float64, where="x")
    assert np.mean(np.sum(scaled**2, axis=1)) == pytest.approx(1.0)
    ratio = np.array(unit.spreads) / found.spreads
    np.testing.assert_allclose(ratio, ratio[0])


def test_a_feature_of_equal_numbers_becomes_0():
    """0.1 is rounded, and so is the mean of several: what is left is no deviation."""
    scaling = moments_scaling([dataset(np.full((7, 1), 0.1)), dataset(np.full((3, 1), 0.1), "b")])
    assert scaling.spreads == (1.0,)
    found = scaled_features(np.full((2, 1), 0.1), scaling, np.float64, where="x")
    np.testing.assert_allclose(found, 0, atol=1e-15)


def test_a_feature_too_large_for_a_sum_is_refused():
    with pytest.raises(FeatureError, match=r"moments take 1.21e\+24 at most"):
        feature_digits(np.array([[1e50]]))
