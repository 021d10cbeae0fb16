import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from secure_fl.data import FixedScaling
from secure_fl.errors import FeatureError, FormatError
from tests.secure_fl.shared import one_line

reals = st.floats(-1e6, 1e6)


@given(reals.filter(bool), st.lists(reals, min_size=1, max_size=6))
def test_a_factor_multiplies_and_survives_json(factor, values):
    scaling = FixedScaling(factor)
    X = np.array([values])
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
