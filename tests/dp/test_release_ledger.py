"""Releases through one object that knows the unit: nothing leaves it that the books do not hold."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dp
from dp.release_ledger import default_grid

X = np.random.default_rng(0).random((30, 4))
UNIT = dp.Element(1.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ward.jsonl"


def refusal(path: Path, **change: object) -> str:
    with pytest.raises(dp.InputError) as caught:
        dp.open_ledger(path, **{"unit": UNIT, "bounds": (0, 1), **change})
    return str(caught.value)


def test_every_release_is_in_the_books_under_the_one_unit(path: Path):
    ledger = dp.open_ledger(path, unit=UNIT, bounds=(0, 1))
    made = [ledger.release(X, epsilon=1), ledger.release(X, epsilon=0.5, delta=1e-6)]
    books = dp.Ledger.open(path)
    assert books.data_set == "ward"
    assert [event.promise for event in books.events] == [
        dp.Promise(1.0, 0.0),
        dp.Promise(0.5, 1e-6),
    ]
    assert books.units == (UNIT,)
    for each in made:
        assert books.holds(each.statement.ledger_digest)
        assert each.statement.guarantee
        assert each.statement.bounds == (0.0, 1.0)


def test_what_was_spent_is_the_sum_at_the_deltas_of_the_events(path: Path):
    ledger = dp.open_ledger(path, unit=UNIT, bounds=(0, 1))
    assert ledger.spent().epsilon == 0
    ledger.release(X, epsilon=1)
    ledger.release(X, epsilon=0.5, delta=1e-6)
    ledger.release(X, epsilon=0.25, delta=1e-6)
    total = ledger.spent()
    assert total.epsilon == pytest.approx(1.75)
    assert total.delta == pytest.approx(1 - (1 - 1e-6) ** 2, rel=1e-9)
    assert ledger.spent(1e-7).epsilon == math.inf


def test_the_statement_names_data_set_unit_total_and_budget(path: Path):
    ledger = dp.open_ledger(path, unit=UNIT, bounds=(0, 1), budget=(3, 1e-5))
    ledger.release(X, epsilon=1)
    unit = "per element (one matrix entry moves by at most 1)"
    assert ledger.statement.splitlines() == [
        f"Data set ward: 1 event(s) in {path}",
        f"Spent: epsilon 1 at delta 1e-05 {unit} (basic)",
        f"Budget: epsilon 3 at delta 1e-05 {unit}",
    ]


def test_a_budget_ends_releases_before_noise_is_drawn(path: Path):
    ledger = dp.open_ledger(path, unit=UNIT, bounds=(0, 1), budget=(1.5, 0))
    ledger.release(X, epsilon=1)
    before = path.read_bytes()
    with pytest.raises(dp.BudgetError, match="no noise was drawn"):
        ledger.release(X, epsilon=1)
    assert path.read_bytes() == before


def test_a_ledger_is_opened_again_with_what_it_holds(path: Path):
    dp.open_ledger(path, unit=UNIT, bounds=(0, 1), budget=(3, 0)).release(X, epsilon=1)
    again = dp.open_ledger(path, unit=UNIT, bounds=(0, 1))
    assert again.spent().epsilon == 1
    with pytest.raises(dp.BudgetError):
        again.release(X, epsilon=2.5)


def test_a_ledger_of_another_unit_is_refused(path: Path):
    dp.open_ledger(path, unit=UNIT, bounds=(0, 1)).release(X, epsilon=1)
    expected = f"{path}: kept per element (one matrix entry moves by at most 1), asked for"
    rest = "; units do not add up, keep a ledger for each"
    assert refusal(path, unit=dp.Element(2.0)) == (
        f"{expected} element (one matrix entry moves by at most 2){rest}"
    )
    assert refusal(path, unit=dp.Record(1.0)) == (
        f"{expected} record (one row of L2 norm at most 1 replaced){rest}"
    )


def test_a_budget_of_another_unit_is_refused_before_the_first_event(path: Path):
    dp.open_ledger(path, unit=UNIT, bounds=(0, 1), budget=(3, 0))
    assert "kept per element" in refusal(path, unit=dp.Record(1.0), budget=(3, 0))


def test_an_event_of_another_unit_that_somebody_books_meanwhile_ends_releases(path: Path):
    ledger = dp.open_ledger(path, unit=UNIT, bounds=(0, 1))
    dp.Ledger.open(path).spend(dp.Event("rows", dp.Record(1.0), dp.Promise(1, 0)))
    before = path.read_bytes()
    with pytest.raises(dp.InputError, match="units do not add up"):
        ledger.release(X, epsilon=1)
    assert path.read_bytes() == before


def test_records_get_gaussian_noise_at_a_delta_below_one_over_their_number(path: Path):
    ledger = dp.open_ledger(path, unit=dp.Record(1.0), bounds=(0, 1))
    statement = ledger.release(X, epsilon=2).statement
    assert statement.delta == 1e-5
    assert statement.mechanism.startswith("discrete Gaussian")
    with pytest.raises(dp.InputError, match="delta: 100000 records, of which a delta of 1e-05"):
        ledger.release(np.zeros((100_000, 1)), epsilon=2)
    assert len(dp.Ledger.open(path).events) == 1


def test_an_event_without_a_delta_needs_one_to_be_stated_at(path: Path):
    ledger = dp.open_ledger(path, unit=dp.Record(1.0), bounds=(0, 1))
    dp.Ledger.open(path).spend(dp.Event("sum", dp.Record(1.0), gaussian=dp.Gaussian(2.0)))
    with pytest.raises(dp.InputError, match="the event 'sum' has no delta of its own"):
        ledger.spent()
    assert 0 < ledger.spent(1e-5).epsilon < math.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"unit": dp.Membership("record")},
            "unit: found Membership(of='record'), expected dp.Element(distance) or dp.Record(norm)",
        ),
        ({"bounds": (1, 0)}, "bounds: found [1, 0], the lower must be below the upper"),
        ({"budget": 3}, "budget: found 3, expected (epsilon, delta)"),
        ({"budget": (-1, 0)}, "epsilon: found -1, expected a finite number above 0"),
        ({"grid": 0}, "grid: found 0, expected a finite step above 0"),
    ],
)
def test_what_cannot_be_used_is_refused_before_books_are_started(path, change, message):
    assert refusal(path, **change) == message
    assert not path.exists()


def test_another_budget_than_the_kept_one_is_refused(path: Path):
    dp.open_ledger(path, unit=UNIT, bounds=(0, 1), budget=(3, 0))
    unit = "per element (one matrix entry moves by at most 1)"
    assert refusal(path, budget=(4, 0)) == (
        f"{path}: its budget is epsilon 3 at delta 0 {unit}, found epsilon 4 at delta 0 {unit}; a"
        " budget is fixed when a ledger is started: leave it out"
    )


def test_smoothing_that_looks_at_the_data_has_no_place_here(path: Path):
    ledger = dp.open_ledger(path, unit=UNIT, bounds=(0, 1))
    with pytest.raises(dp.InputError, match="voids the guarantee"):
        ledger.release(X, epsilon=1, smoothing="oracle")
    assert dp.Ledger.open(path).events == ()


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_the_default_grid_cuts_the_unit_or_the_range_into_256_to_511_steps(distance, width):
    step = default_grid(dp.Element(distance), (0.0, width))
    assert math.frexp(step)[0] == 0.5
    assert 256 <= Fraction(min(distance, width)) / Fraction(step) < 512
