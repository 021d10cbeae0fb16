"""The attack on the real release: below the claim when it is true, above it when it is not."""

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dp import Element, InputError, Record, audit
from dp.audit import clopper_pearson, lower_bound

CASES = [
    ("optimal", 1e-5, Element(1.0)),
    ("geometric", 0.0, Element(1.0)),
    ("staircase", 0.0, Element(1.0)),
    ("gaussian", 1e-5, Element(1.0)),
    ("gaussian", 1e-5, Record(1.0)),
]


def choices(mechanism: str, delta: float, adjacency: Element | Record, **more: Any) -> Any:
    return {
        "epsilon": 1.0,
        "delta": delta,
        "adjacency": adjacency,
        "bounds": (-2.0, 2.0),
        "grid": 2.0**-5,
        "mechanism": mechanism,
        "confidence": 0.9999,
        **more,
    }


@pytest.mark.parametrize(("mechanism", "delta", "adjacency"), CASES)
def test_the_bound_stays_below_a_true_claim(
    mechanism: str, delta: float, adjacency: Element | Record
):
    found = audit(**choices(mechanism, delta, adjacency))
    assert found.passed
    assert found.lower_bound <= 1.0
    assert found.lower_bound > 0.15  # the attack is no formality


@pytest.mark.parametrize(("mechanism", "delta", "adjacency"), CASES)
def test_half_the_noise_is_caught(mechanism: str, delta: float, adjacency: Element | Record):
    # An attack on Gaussian noise proves less than it costs: 0.43 of sigma is caught every time.
    noise_epsilon, runs = (2.5, 400_000) if mechanism == "gaussian" else (2.0, 200_000)
    found = audit(**choices(mechanism, delta, adjacency, noise_epsilon=noise_epsilon, runs=runs))
    assert not found.passed
    assert found.lower_bound > 1.0
    assert "ABOVE THE CLAIM" in found.text()


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_bound_of_the_papers_noise_is_close_to_the_claim(epsilon: float):
    found = audit(**{**choices("optimal", 1e-5, Element(1.0)), "epsilon": epsilon})
    assert 0.85 * epsilon < found.lower_bound <= epsilon


def test_an_atom_is_paid_for_by_delta():
    """An attack that looks for the atom of 0.3 proves nothing beyond the claim."""
    found = audit(**choices("optimal", 0.3, Element(1.0)))
    assert found.passed
    blind = audit(**choices("optimal", 0.3, Element(1.0), noise_epsilon=2.0))
    assert not blind.passed


def test_rates_are_covered_with_the_stated_confidence():
    """Clopper-Pearson never covers less often than it says: checked over all outcomes."""
    total = 60
    for p in (0.05, 0.5, 0.9):
        outcomes = np.arange(total + 1)
        weights = binom.pmf(outcomes, total, p)
        low = np.array([clopper_pearson(int(k), 0, total, 0.9)[0] for k in outcomes])
        high = np.array([clopper_pearson(0, int(k), total, 0.9)[1] for k in outcomes])
        assert weights[low > p].sum() <= 0.05
        assert weights[high < p].sum() <= 0.05


def test_identical_data_sets_prove_nothing():
    rng = np.random.default_rng(0)
    assert lower_bound(rng.normal(size=20_000), rng.normal(size=20_000), 0.0, 0.99) < 0.05


def test_randomised_response_is_measured_at_its_epsilon():
    """A mechanism that is known exactly: truth with probability e / (1 + e)."""
    rng = np.random.default_rng(0)
    p = math.e / (1 + math.e)
    first = (rng.random(200_000) > p).astype(float)
    second = (rng.random(200_000) < p).astype(float)
    assert 0.95 < lower_bound(first, second, 0.0, 0.999) <= 1.0


def test_the_result_names_its_unit_and_is_json():
    found = audit(**choices("optimal", 1e-5, Element(1.0), runs=2000))
    assert Element(1.0).unit in found.text()
    assert json.loads(json.dumps(found.to_json()))["unit"] == Element(1.0).unit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": 10}, "runs: found 10"),
        ({"confidence": 1.0}, "confidence: found 1.0"),
        ({"epsilon": -1.0}, "epsilon: found -1.0"),
        ({"bounds": None}, "bounds: missing"),
    ],
)
def test_bad_choices_are_refused(change: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        audit(**{**choices("optimal", 1e-5, Element(1.0)), **change})
