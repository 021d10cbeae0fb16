import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from secure_fl.data import FixedScaling, scaled_features
from secure_fl.errors import FeatureError, FormatError
from tests.secure_fl.shared import one_line

reals = st.floats(-1e6, 1e6)


@given(reals.filter(lambda factor: abs(factor) > 1e-3), st.lists(reals, min_size=1, max_size=6))
def test_a_factor_multiplies_and_survives_json(factor, values):
    scaling = FixedScaling(factor)
    X = np.array([values]).round(9)
    assert np.array_equal(scaling.apply(X), factor * X)
    assert FixedScaling.from_json(json.loads(json.dumps(scaling.to_json()))) == scaling


@given(st.lists(st.tuples(reals, st.floats(1e-3, 1e6)), min_size=1, max_size=5), st.data())
def test_bounds_give_the_unit_box_times_the_factor(bounds, data):
    lower = tuple(low for low, _ in bounds)
    upper = tuple(low + width for low, width in bounds)
    scaling = FixedScaling(2.0, lower, upper)
    row = st.lists(reals, min_size=len(bounds), max_size=len(bounds))
    X = np.array(data.draw(st.lists(row, min_size=1, max_size=4)))
    scaled = scaling.apply(X)
    assert scaled.min() >= 0
    assert scaled.max() <= 2
    assert np.array_equal(
        scaling.apply(np.array([lower, upper])), [[0] * len(bounds), [2] * len(bounds)]
    )
    assert FixedScaling.from_json(json.loads(json.dumps(scaling.to_json()))) == scaling


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_type_stays_and_the_input_too(dtype):
    X = np.ones((2, 2), dtype)
    for scaling in (FixedScaling(10.0), FixedScaling(1.0, (0.0, 0.0), (2.0, 2.0))):
        assert scaling.apply(X).dtype == dtype
    assert np.all(X == 1)


def test_sparse_features_stay_sparse():
    scaled = FixedScaling(3.0).apply(csr_array(np.eye(3)))
    assert isinstance(scaled, csr_array)
    assert scaled.sum() == 9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FixedScaling(0.0), "scaling factor is 0.0; give a finite number, not 0"),
        (
            lambda: FixedScaling(float("inf")),
            "scaling factor is inf; give a finite number, not 0",
        ),
        (
            lambda: FixedScaling(1.0, (0.0,)),
            "scaling has one bound only; give both lower and upper, or neither",
        ),
        (
            lambda: FixedScaling(1.0, (0.0, 1.0), (2.0,)),
            "scaling has 2 lower and 1 upper bounds; give one of each a feature",
        ),
        (
            lambda: FixedScaling(1.0, (0.0, 3.0), (1.0, 3.0)),
            "scaling bounds of feature 1 are [3.0, 3.0]; give finite bounds, the lower one first",
        ),
        (
            lambda: FixedScaling(1.0, (0.0,), (1.0,)).apply(np.ones((2, 2))),
            "2 features, the scaling has bounds for 1; give bounds for each feature",
        ),
        (
            lambda: FixedScaling(1.0, (0.0,), (1.0,)).apply(csr_array(np.ones((2, 1)))),
            "scaling with bounds would fill sparse features; read them dense",
        ),
        (
            lambda: FixedScaling(1e38).apply(np.full((1, 1), 1e10, np.float32)),
            "scaling by 1e+38 overflows float32; use a smaller factor",
        ),
    ],
)
def test_constants_that_cannot_be_used_are_refused(call, message):
    with pytest.raises(FeatureError) as caught:
        call()
    assert one_line(caught.value) == message


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"factor": 1.0},
        {"factor": "1", "lower": None, "upper": None},
        {"factor": True, "lower": None, "upper": None},
        {"factor": 1.0, "lower": 3, "upper": None},
        {"factor": 1.0, "lower": ["0"], "upper": [1]},
        {"factor": 1.0, "lower": None, "upper": None, "shift": 2},
    ],
)
def test_edited_json_is_refused_with_the_file(value):
    with pytest.raises(FormatError, match=r"^run/federation\.json: scaling"):
        FixedScaling.from_json(value, "run/federation.json")


def test_a_constant_out_of_range_in_json_is_refused():
    with pytest.raises(FormatError) as caught:
        FixedScaling.from_json({"factor": 0, "lower": None, "upper": None})
    assert one_line(caught.value) == (
        "federation.json: scaling factor is 0.0; give a finite number, not 0"
    )


# ------------------------------------------------------------------ features as they are trained


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


def test_a_factor_that_leaves_only_zeros_is_refused():
    with pytest.raises(FeatureError, match="leaves only zeros in float32; use a larger factor"):
        FixedScaling(1e-40).apply(np.full((1, 1), 1e-10, np.float32))


@pytest.mark.parametrize("value", [10**400, 2**53 + 1])
def test_a_number_that_float64_cannot_hold_is_refused(value):
    with pytest.raises(FormatError, match="scaling holds an integer beyond float64"):
        FixedScaling.from_json({"factor": 1, "lower": [0], "upper": [value]})
