"""The map of features: what it does, and what no scaling may be."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from secure_fl.data import Scaling, scaled_features
from secure_fl.data.scaling import outside, ranges_of
from secure_fl.errors import FeatureError, InputError


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 20),
    d=st.integers(1, 8),
    factor=st.floats(0.1, 10),
    sparse=st.booleans(),
)
def test_public_ranges_take_their_records_to_the_unit_interval(seed, n, d, factor, sparse):
    rng = np.random.default_rng(seed)
    X = rng.normal(rng.normal(0, 100, d), rng.uniform(0, 50, d), (n, d))
    given_X = scipy.sparse.csr_array(X) if sparse else X
    found = scaled_features(given_X, ranges_of(given_X, factor), np.float64, where="public")
    assert found.min() >= 0
    assert found.max() <= factor * (1 + 1e-12)
    varies = np.ptp(X, axis=0) > 0
    np.testing.assert_allclose(found[:, varies].max(axis=0), factor)
    assert not found[:, ~varies].any()


def test_values_outside_the_public_ranges_are_counted():
    scaling = ranges_of(np.array([[0.0, 1.0], [2.0, 3.0]]))
    assert outside(np.array([[0.0, 1.0], [2.1, -5.0], [1.0, 3.0]]), scaling) == 2
    assert outside(np.array([[9.0, 9.0]]), Scaling()) == 0


def test_single_precision_features_keep_their_digits_beside_a_large_offset():
    X = np.array([[16777214.0], [16777215.0], [16777216.0]], np.float32)
    scaling = Scaling(kind="moments", offsets=[16777215.0], spreads=[1.0])
    found = scaled_features(X, scaling, np.float32, where="x")
    assert found.ravel().tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"kind": "ranks"},
            "scaling: 'ranks', expected one of none, range, moments, released",
        ),
        ({"offsets": [0], "spreads": [1]}, 'scaling: "none" has offsets or spreads'),
        ({"kind": "range", "offsets": [0, 1], "spreads": [1]}, "scaling: 2 offsets and 1 spreads"),
        ({"kind": "range"}, "scaling: 0 offsets and 0 spreads"),
        (
            {"kind": "range", "offsets": [0], "spreads": [0]},
            "scaling: an offset is not finite, or a spread not above 0",
        ),
        ({"factor": 0.0}, "scale is 0.0; give a finite number above 0 (--scale)"),
    ],
)
def test_what_is_no_scaling_is_refused(fields, message):
    with pytest.raises(InputError) as error:
        Scaling(**fields)
    assert str(error.value) == message


def test_a_scaling_of_other_features_and_what_it_carries_too_far_are_named():
    scaling = Scaling(kind="range", offsets=[0.0], spreads=[1e-30])
    with pytest.raises(FeatureError) as error:
        scaled_features(np.ones((1, 2)), scaling, np.float32, where="a")
    assert str(error.value) == (
        "a: 2 features, the scaling has 1; scale with constants of the same features"
    )
    with pytest.raises(FeatureError, match=r"feature 0 of record 0 .* is 1, scaled above"):
        scaled_features(np.ones((1, 1)), scaling, np.float32, where="a")
