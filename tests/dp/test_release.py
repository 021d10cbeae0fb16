"""A release: what leaves, what the statement says, what is refused before noise is drawn."""

import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import (
    Budget,
    BudgetError,
    Element,
    InputError,
    Ledger,
    Membership,
    Record,
    release,
    release_batches,
)
from dp.grid import Array
from dp.samplers import DiscreteGaussian, TwoSidedGeometric

CHOICES: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "adjacency": Element(1.0),
    "bounds": (-4.0, 4.0),
    "grid": 2.0**-8,
}


def matrix(rows: int = 12, columns: int = 5) -> Array:
    return np.random.default_rng(0).normal(size=(rows, columns))


@settings(max_examples=25)
@given(
    rows=st.integers(1, 30),
    columns=st.integers(1, 8),
    step=st.sampled_from([2.0**-10, 0.01, 0.3, 1.0]),
    smoothing=st.sampled_from(["sure", "none", "oracle", 2]),
)
def test_nothing_that_leaves_is_finer_than_the_grid(
    rows: int, columns: int, step: float, smoothing: Any
):
    private = matrix(rows, columns)
    released = release(private, **{**CHOICES, "grid": step}, smoothing=smoothing)
    for X in (released.matrix, released.noisy):
        assert X.shape == private.shape
        assert (np.rint(X / step) * step == X).all()


@pytest.mark.parametrize(
    ("mechanism", "delta", "adjacency"),
    [
        ("optimal", 1e-5, Element(0.5)),
        ("geometric", 0.0, Element(0.5)),
        ("staircase", 0.0, Element(0.5)),
        ("gaussian", 1e-5, Element(0.5)),
        ("gaussian", 1e-5, Record(2.0)),
    ],
)
def test_the_noise_has_the_stated_standard_deviation(
    mechanism: str, delta: float, adjacency: Element | Record
):
    private = np.zeros((3000, 10))
    choices = {**CHOICES, "delta": delta, "adjacency": adjacency, "mechanism": mechanism}
    released = release(private, **choices, smoothing="none")
    stated = released.statement.noise_scale
    assert np.std(released.matrix) == pytest.approx(stated, rel=0.05)


def test_the_noise_is_for_the_distance_capped_by_the_bounds():
    """An entry cannot move further than the clamp range."""
    near = release(matrix(), **CHOICES).statement
    assert near.sensitivity_steps == 256
    far = release(matrix(), **{**CHOICES, "adjacency": Element(1000.0)}).statement
    assert far.sensitivity_steps == 8 * 256
    assert far.noise_scale == pytest.approx(8 * near.noise_scale, rel=1e-3)


def test_entries_outside_the_bounds_are_clamped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TwoSidedGeometric, "draw", lambda self, n: np.zeros(n, dtype=np.int64))
    released = release(np.array([[1e9, -1e9, 0.25]]), **CHOICES, smoothing="none")
    assert released.matrix.tolist() == [[4.0, -4.0, 0.25]]


def test_rows_are_clipped_to_the_norm_before_noise(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(DiscreteGaussian, "draw", lambda self, n: np.zeros(n, dtype=np.int64))
    choices = {**CHOICES, "adjacency": Record(1.0), "mechanism": "gaussian", "smoothing": "none"}
    released = release(matrix() * 10, **choices)
    norms = np.linalg.norm(released.matrix, axis=1)
    assert (norms <= 1).all()
    assert (norms > 0.97).all()


def test_neighbours_differ_by_no_more_than_the_sensitivity_that_the_noise_is_for(
    monkeypatch: pytest.MonkeyPatch,
):
    """Rows replaced by any others, through the real path without its noise."""
    monkeypatch.setattr(DiscreteGaussian, "draw", lambda self, n: np.zeros(n, dtype=np.int64))
    rng = np.random.default_rng(0)
    choices = {**CHOICES, "adjacency": Record(1.0), "mechanism": "gaussian", "smoothing": "none"}
    rows = rng.normal(size=(200, 6)) * 10.0 ** rng.integers(-3, 3, size=(200, 1))
    released = release(np.concatenate([rows, -rows]), **choices)
    steps = released.matrix / CHOICES["grid"]
    moved = np.linalg.norm(steps[:200] - steps[200:], axis=1)
    assert moved.max() <= released.statement.sensitivity_steps * (1 + 1e-12)
    assert moved.max() > 0.99 * released.statement.sensitivity_steps


def test_the_statement_says_everything_and_is_json():
    statement = release(matrix(), **CHOICES).statement
    value = json.loads(json.dumps(statement.to_json(), allow_nan=False))
    assert value["epsilon"] == 1.0
    assert value["unit"] == Element(1.0).unit
    assert value["bounds"] == [-4.0, 4.0]
    text = statement.text()
    for needed in (
        "epsilon 1, delta 1e-05 per element (one matrix entry moves by at most 1)",
        "[-4, 4]",
        "0.00390625",
        "Stein",
        "class labels",
        "the number of records",
        "class counts and batch counts",
        "securefl 0.1.0",
        "two-sided geometric with an atom",
    ):
        assert needed in text


def test_every_epsilon_of_the_statement_stands_beside_a_unit():
    for choices in (
        CHOICES,
        {**CHOICES, "adjacency": Record(2.0), "mechanism": "gaussian"},
        {**CHOICES, "delta": 0.0, "mechanism": "geometric"},
    ):
        for line in release(matrix(), **choices).statement.text().splitlines():
            if "epsilon" in line.removeprefix("Promise: "):
                assert " per element (" in line or " per record (" in line


def test_how_many_entries_were_clamped_changes_nothing_in_the_statement():
    inside = release(np.zeros((5, 3)), **CHOICES, smoothing="none").statement
    outside = release(np.full((5, 3), 99.0), **CHOICES, smoothing="none").statement
    assert inside == outside


def test_an_element_level_release_states_what_it_implies_for_records():
    """Pure noise over 5 columns without slack for delta adds up; more columns compose better."""
    few = release(matrix(columns=2), **{**CHOICES, "delta": 0.0, "mechanism": "geometric"})
    moves, replaced = few.statement.record_level
    assert moves.epsilon == pytest.approx(2.0, rel=1e-4)
    assert replaced.epsilon == pytest.approx(2 * 8.0, rel=1e-4)
    assert "every entry of one row moves by at most 1" in moves.text
    many = release(matrix(columns=400), **CHOICES, smoothing="none").statement.record_level[0]
    assert many.delta == pytest.approx(1 - (1 - 1e-5) ** 400 + 1e-5, rel=1e-9)
    assert many.epsilon is not None
    assert 100 < many.epsilon < 400
    assert "exact" in many.rule


def test_the_oracle_has_no_guarantee_and_says_so(tmp_path: Path):
    statement = release(matrix(), **CHOICES, smoothing="oracle").statement
    assert not statement.guarantee
    assert "no guarantee" in statement.text()
    assert "epsilon 1" not in statement.text()
    assert statement.to_json()["epsilon"] is None
    ledger = Ledger.create(tmp_path / "ledger.jsonl", "a")
    with pytest.raises(InputError, match="'oracle' voids the guarantee"):
        release(matrix(), **CHOICES, smoothing="oracle", ledger=ledger)
    assert ledger.events == ()


def test_batches_share_one_statement_and_one_event(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "ledger.jsonl", "a")
    batches = [matrix(4), matrix(1), matrix(9)]
    released = release_batches(batches, **CHOICES, batching="order", ledger=ledger, purpose="heads")
    assert [X.shape for X in released.matrices] == [X.shape for X in batches]
    assert released.statement.batches == 3
    assert released.statement.rows == 14
    (event,) = ledger.events
    assert event.what == "heads"
    assert ledger.get_epsilon(1e-5).epsilon == 1.0
    assert released.statement.ledger_digest is not None
    assert ledger.holds(released.statement.ledger_digest)


def test_a_budget_stops_the_release_before_noise_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ledger = Ledger.create(tmp_path / "l", "a", Budget(1.5, 1e-4, Element(1.0)))
    release(matrix(), **CHOICES, ledger=ledger)
    before = ledger.path.read_bytes()

    def no_noise(self: TwoSidedGeometric, n: int) -> Array:
        pytest.fail("noise was drawn")

    monkeypatch.setattr(TwoSidedGeometric, "draw", no_noise)
    with pytest.raises(BudgetError, match=r"budget is 1.5 \(1 spent\); no noise was drawn"):
        release(matrix(), **CHOICES, ledger=ledger)
    assert ledger.path.read_bytes() == before


def test_the_event_is_in_the_books_before_noise_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A run that dies while it draws has spent what it announced."""
    ledger = Ledger.create(tmp_path / "l", "a")

    def dies(self: TwoSidedGeometric, n: int) -> Array:
        raise MemoryError

    monkeypatch.setattr(TwoSidedGeometric, "draw", dies)
    with pytest.raises(MemoryError):
        release(matrix(), **CHOICES, ledger=ledger)
    assert len(ledger.events) == 1


def test_bad_input_never_reaches_the_books(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", "a")
    for bad in (np.full((2, 2), math.nan), np.zeros((0, 2))):
        with pytest.raises(InputError):
            release(bad, **CHOICES, ledger=ledger)
    assert ledger.events == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0}, "epsilon: found 0"),
        ({"delta": 1}, "delta: found 1"),
        ({"adjacency": None}, r"needs Element\(distance\) or Record\(norm\)"),
        ({"adjacency": Membership()}, r"needs Element\(distance\) or Record\(norm\)"),
        ({"adjacency": Record(1.0), "mechanism": "optimal"}, "records need 'gaussian'"),
        ({"bounds": None}, "bounds: missing"),
        ({"bounds": (1, 0)}, "lower must be below the upper"),
        ({"grid": 9.0}, "smaller than the range"),
        ({"smoothing": "best"}, "smoothing: found 'best'"),
        ({"smoothing": True}, "smoothing: found True"),
        ({"smoothing": -1}, "smoothing: found -1"),
        ({"mechanism": "laplace"}, "mechanism: 'laplace' is unknown"),
        ({"adjacency": Record(1e-4), "mechanism": "gaussian"}, "larger than the row norm"),
    ],
)
def test_bad_choices_have_one_clear_error(change: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message) as caught:
        release(matrix(), **{**CHOICES, **change})
    assert "\n" not in str(caught.value)


def test_adjacency_bounds_and_grid_have_no_default():
    for name in ("epsilon", "delta", "adjacency", "bounds", "grid"):
        with pytest.raises(TypeError, match=name):
            release(matrix(), **{k: v for k, v in CHOICES.items() if k != name})


def test_batches_that_are_clusters_are_refused():
    with pytest.raises(InputError, match="forms batches from private entries"):
        release_batches([matrix()], **CHOICES, batching="clusters")


def test_batches_of_different_width_are_refused():
    with pytest.raises(InputError, match="batch 1: 4 columns, batch 0 has 5"):
        release_batches([matrix(), matrix(3, 4)], **CHOICES, batching="order")
    with pytest.raises(InputError, match="0 found"):
        release_batches([], **CHOICES, batching="order")


def test_a_long_matrix_is_smoothed_in_blocks(monkeypatch: pytest.MonkeyPatch):
    # The package exports the function under the module's name.
    monkeypatch.setattr(importlib.import_module("dp.release"), "MOST_ROWS", 10)
    released = release(matrix(35), **CHOICES)
    assert released.matrix.shape == (35, 5)
    assert len(released.statement.passes) == 4


def test_no_randomness_can_be_injected_into_a_release():
    """Two releases of one matrix differ, whatever numpy's seed."""
    np.random.seed(0)
    first = release(matrix(), **CHOICES).noisy
    np.random.seed(0)
    assert (first != release(matrix(), **CHOICES).noisy).any()
