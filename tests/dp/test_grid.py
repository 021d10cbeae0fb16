"""The grid: exact rounding, capped sensitivities, and one clear error for each bad choice."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dp.errors import InputError
from dp.grid import Grid, clip_rows, matrix

ENTRY = st.floats(-50, 50)


@settings(max_examples=300)
@given(
    x=ENTRY,
    y=ENTRY,
    step=st.one_of(
        st.sampled_from([0.1, 0.01, 0.3, 2.0**-10, 1.0, 0.7]), st.floats(1e-6, 3, allow_nan=False)
    ),
)
def test_entries_move_by_no_more_steps_than_the_sensitivity(x: float, y: float, step: float):
    """In exact arithmetic: |x - y| = d gives at most ceil(d / step) steps."""
    grid = Grid.make((-60.0, 60.0), step)
    codes = grid.encode(np.array([[x, y]]))[0]
    moved = math.ceil(abs(Fraction(x) - Fraction(y)) / Fraction(step))
    assert abs(int(codes[0]) - int(codes[1])) <= moved


@settings(max_examples=300)
@given(k=st.integers(-4000, 4000), step=st.sampled_from([0.1, 0.01, 0.3, 0.7]))
def test_entries_near_a_half_step_are_rounded_in_exact_arithmetic(k: int, step: float):
    grid = Grid.make((-5000.0, 5000.0), step)
    near = (k + 0.5) * step
    for x in (np.nextafter(near, -np.inf), near, np.nextafter(near, np.inf)):
        exact = math.floor(Fraction(float(x)) / Fraction(step) + Fraction(1, 2))
        assert int(grid.encode(np.array([[x]]))[0, 0]) == exact


@given(low=ENTRY, high=ENTRY, step=st.floats(1e-3, 1), x=st.floats(-1e6, 1e6))
def test_codes_stay_inside_the_bounds(low: float, high: float, step: float, x: float):
    assume(high - low > 2 * step)
    grid = Grid.make((low, high), step)
    code = int(grid.encode(np.array([[x]]))[0, 0])
    assert Fraction(low) <= code * Fraction(grid.step) <= Fraction(high)


def test_the_sensitivity_is_the_distance_in_steps_and_never_more_than_the_range():
    grid = Grid.make((-4, 4), 2**-10)
    assert grid.sensitivity(1.0) == 1024
    assert grid.sensitivity(1.0 + 1e-9) == 1025
    assert grid.sensitivity(100.0) == 8 * 1024
    assert Grid.make((0, 1), 1.0).sensitivity(0.2) == 1


@settings(max_examples=100)
@given(
    row=st.lists(st.integers(-(2**30), 2**30), min_size=1, max_size=6),
    largest=st.integers(0, 2**50),
)
def test_clipped_rows_never_exceed_the_norm(row: list[int], largest: int):
    codes = np.array([row], dtype=np.int64)
    clipped = clip_rows(codes, largest)[0].tolist()
    assert sum(c * c for c in clipped) <= largest
    assert all(abs(c) <= abs(r) and c * r >= 0 for c, r in zip(clipped, row, strict=True))
    if sum(r * r for r in row) <= largest:
        assert clipped == row


def test_clipping_loses_little_more_than_it_must():
    rng = np.random.default_rng(0)
    codes = rng.integers(-1000, 1000, (20, 50))
    norms = np.linalg.norm(clip_rows(codes, 1_000_000), axis=1)
    assert (norms > 1000 - 8).all()
    assert (norms <= 1000).all()


@pytest.mark.parametrize(
    ("bounds", "step", "message"),
    [
        (None, 0.1, "bounds: missing"),
        ("data", 0.1, "bounds: derived from the data"),
        (np.min, 0.1, "bounds: derived from the data"),
        ((1, 1), 0.1, "lower must be below the upper"),
        ((2, 1), 0.1, "lower must be below the upper"),
        ((0, math.nan), 0.1, "expected two finite numbers"),
        ((0, math.inf), 0.1, "expected two finite numbers"),
        ((0, 1, 2), 0.1, "expected two finite numbers"),
        (("0", "1"), 0.1, "expected two finite numbers"),
        ((0, 1), 2.0, "smaller than the range"),
        ((0, 1), 0.0, "expected a finite step above 0"),
        ((0, 1), -1.0, "expected a finite step above 0"),
        ((0, 1), math.nan, "expected a finite step above 0"),
        ((0, 1), None, "expected a finite step above 0"),
        ((0, 1), 1e-300, "integers overflow"),
        ((-1e300, 1e300), 1.0, "integers overflow"),
    ],
)
def test_a_bad_grid_has_one_clear_error(bounds: object, step: object, message: str):
    with pytest.raises(InputError, match=message) as caught:
        Grid.make(bounds, step)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((0, 3)), "empty"),
        (np.zeros((3, 0)), "empty"),
        (np.zeros(3), "1 dimension"),
        ([[0.0, math.nan]], "row 0 holds NaN"),
        ([[0.0], [math.inf]], "row 1 holds NaN or infinity"),
        ([["a"]], "not a matrix of numbers"),
        ([[1.0], [1.0, 2.0]], "not a matrix of numbers"),
        ([[1j]], "not a matrix of numbers"),
    ],
)
def test_a_bad_matrix_has_one_clear_error(X: object, message: str):
    with pytest.raises(InputError, match=message):
        matrix(X, "matrix")
