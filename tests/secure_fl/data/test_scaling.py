"""A scale leaves features that every later computation can square."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from secure_fl.data import scaled_features
from secure_fl.errors import FeatureError
from tests.secure_fl.shared import one_line


def model(dtype):
    return {"dtype": dtype, "where": 'client "a", a.csv'}


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_is_finite_and_above_0(factor):
    with pytest.raises(FeatureError) as caught:
        scaled_features(np.ones((1, 1)), factor, **model(np.float32))
    assert one_line(caught.value) == (f"scale is {factor}; give a finite number above 0 (--scale)")


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8),
    st.floats(1e-300, 1e300),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
)
def test_squares_of_accepted_features_neither_overflow_nor_vanish(values, factor, dtype, sparse):
    X = np.array([values])
    try:
        found = scaled_features(csr_array(X) if sparse else X, factor, **model(dtype))
    except FeatureError:
        return
    dense = found.toarray() if sparse else found
    assert dense.dtype == dtype
    with np.errstate(under="ignore"):
        assert np.array_equal(dense, X.astype(dtype) * dtype(factor))
        squares = float(np.sum(np.square(2 * dense)))
    assert np.isfinite(squares)
    assert squares > 0 or not X.any()


@pytest.mark.parametrize(
    ("X", "factor", "dtype", "message"),
    [
        (
            [[1, 2], [3, 1e300]],
            1.0,
            np.float32,
            "feature 1 of record 1 (both from 0) is 1e+300, times the scale 1 above 4.6e+18, with"
            " which sums of squares overflow float32; correct it or give a smaller --scale",
        ),
        (
            [[1, -2], [3, 1]],
            1e160,
            np.float64,
            "feature 0 of record 0 (both from 0) is 1, times the scale 1e+160 above 3.4e+153, with"
            " which sums of squares overflow float64; correct it or give a smaller --scale",
        ),
        (
            [[1, -2], [0, 1]],
            1e-30,
            np.float32,
            "features of at most 2, times the scale 1e-30, are all zero in squares of float32; give"
            " a larger --scale",
        ),
    ],
)
def test_what_overflows_or_vanishes_is_named(X, factor, dtype, message):
    for made in (np.array(X, float), csr_array(np.array(X, float))):
        with pytest.raises(FeatureError) as caught:
            scaled_features(made, factor, **model(dtype))
        assert one_line(caught.value) == f'client "a", a.csv: {message}'


def test_features_that_are_zero_already_stay_so():
    assert not scaled_features(np.zeros((2, 2)), 1e-30, **model(np.float32)).any()
