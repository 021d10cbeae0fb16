"""No stated epsilon is below the exact one: closed forms, mpmath, and dp-accounting's own sums."""

import math
from functools import reduce
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from dp.accounting import Gaussian, compose_gaussians
from dp.calibration import noise_multiplier
from dp.loss_distribution import gaussian_epsilon, sampled_epsilon

DELTAS = (1e-5, 1e-9, 1e-12, 1e-15)


def exact_epsilon(mu: float, delta: float) -> float:
    """Balle and Wang (2018), theorem 8, with 60 digits."""
    mpmath.mp.dps = 60
    m, target = mpmath.mpf(mu), mpmath.mpf(delta)

    def excess(e: Any) -> Any:
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m) - target

    low, high = mpmath.mpf(0), m * m / 2 + m * mpmath.sqrt(-2 * mpmath.log(target)) + 1
    if excess(low) <= 0:
        return 0.0
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return float(high)


def test_many_full_steps_at_a_tiny_delta_cost_their_exact_epsilon():
    found = compose_gaussians([Gaussian(200.0, 1.0, 40_000)], 1e-12)
    assert found.rule == "exact Gaussian curve"
    assert found.epsilon == pytest.approx(7.2384944, abs=1e-6)
    assert found.epsilon >= exact_epsilon(1.0, 1e-12)


@settings(max_examples=60)
@given(
    mu=st.floats(1e-6, 200),
    delta=st.floats(-200, -0.1).map(lambda power: 10.0**power),
)
def test_the_closed_form_is_exact_and_never_below(mu: float, delta: float):
    truth, found = exact_epsilon(mu, delta), gaussian_epsilon(mu, delta)
    assert truth * (1 - 1e-15) <= found <= truth * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("delta", [*DELTAS, 1e-60, 1e-200])
@pytest.mark.parametrize(
    ("sigma", "steps"), [(200.0, 40_000), (1.0, 1), (0.5, 3), (4.0, 1000), (5000.0, 7)]
)
def test_summed_losses_of_full_steps_are_barely_above_the_closed_form(
    sigma: float, steps: int, delta: float
):
    """The transform's own way, at deltas far below the precision of its arithmetic."""
    truth = exact_epsilon(math.sqrt(steps) / sigma, delta)
    found = sampled_epsilon([(sigma, 1.0, steps)], delta)
    assert found is not None
    assert truth <= found <= truth * 1.003 + 1e-6


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.5), (0.5, 0.01), (3.0, 0.2), (0.3, 0.05)])
def test_one_sampled_step_is_its_closed_form(sigma: float, rate: float, delta: float):
    """The threshold of the likelihood ratio gives delta by the normal distribution alone."""
    mpmath.mp.dps = 50
    q, s = mpmath.mpf(rate), mpmath.mpf(sigma)

    def removed(e: Any) -> Any:
        z = s**2 * mpmath.log(1 + mpmath.expm1(e) / q) + mpmath.mpf(1) / 2
        plain, moved = mpmath.ncdf(-z / s), mpmath.ncdf((1 - z) / s)
        return (1 - q) * plain + q * moved - mpmath.exp(e) * plain

    low, high = mpmath.mpf(0), mpmath.mpf(200)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if removed(middle) > delta else (low, middle)
    found = compose_gaussians([Gaussian(sigma, rate)], delta).epsilon
    assert float(low) <= found <= float(high) * 1.002 + 1e-3


def oracle(sigma: float, rate: float, steps: int, delta: float, *, above: bool) -> float:
    """dp-accounting's distribution of one step, convolved without a transform.

    Its own composition loses everything below 1e-13 to rounding; sums of positive numbers do not.
    """
    width = 2e-3
    pld: Any = privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        sampling_prob=rate,
        pessimistic_estimate=above,
        use_connect_dots=above,
        value_discretization_interval=width,
        log_mass_truncation_bound=-90,
    )
    found = []
    for pmf in (pld._pmf_remove, pld._pmf_add):
        dense = pmf.to_dense_pmf()
        masses = reduce(np.convolve, [dense._probs] * steps)
        losses = (dense._lower_loss * steps + np.arange(len(masses))) * width
        infinite = 1 - (1 - dense._infinity_mass) ** steps if above else 0.0
        found.append(_epsilon(losses, masses, delta - infinite))
    return max(found)


def _epsilon(losses: Any, masses: Any, delta: float) -> float:
    low, high = 0.0, float(losses[-1])
    for _ in range(60):
        middle = (low + high) / 2
        over = losses > middle
        excess = float(masses[over] @ -np.expm1(middle - losses[over]))
        low, high = (middle, high) if excess > delta else (low, middle)
    return high


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(
    ("sigma", "rate", "steps"),
    [(0.8, 0.01, 4), (1.0, 0.5, 3), (2.0, 0.2, 6), (1.1, 0.05, 8), (6.0, 0.9, 5)],
)
def test_few_sampled_steps_lie_within_an_independent_library(
    sigma: float, rate: float, steps: int, delta: float
):
    found = compose_gaussians([Gaussian(sigma, rate, steps)], delta).epsilon
    assert oracle(sigma, rate, steps, delta, above=False) <= found
    assert found <= oracle(sigma, rate, steps, delta, above=True) * 1.003 + 2e-3


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize(
    ("sigma", "rate", "steps"),
    [(1.1, 0.01, 1000), (0.7, 0.3, 20), (2.0, 0.001, 40_000), (200.0, 0.5, 40_000), (8, 0.2, 400)],
)
def test_many_sampled_steps_lie_within_an_independent_library(
    sigma: float, rate: float, steps: int, delta: float
):
    """Where its arithmetic is precise enough, beside its bound from above."""
    width = 1e-4
    pld: Any = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=width
    )
    above = pld.self_compose(steps).get_epsilon_for_delta(delta)
    found = compose_gaussians([Gaussian(sigma, rate, steps)], delta).epsilon
    assert found <= above * 1.003 + 1e-3
    assert found >= above * 0.995 - 2e-3


def test_different_events_compose_above_any_of_them_and_below_renyi():
    events = [Gaussian(1.1, 0.01, 500), Gaussian(8.0, 1.0, 3), Gaussian(2.0, 0.2, 10)]
    together = compose_gaussians(events, 1e-12)
    assert together.rule == "privacy loss distribution"
    assert together.epsilon > max(compose_gaussians([e], 1e-12).epsilon for e in events)
    assert together == compose_gaussians(events[::-1], 1e-12)


def test_calibrated_noise_at_a_tiny_delta_keeps_the_exact_curve():
    sigma = noise_multiplier(7.0, 1e-12, sample_rate=1.0, steps=40_000)
    assert exact_epsilon(math.sqrt(40_000) / sigma, 1e-12) <= 7.0


def test_the_oracles_losses_are_never_counted_twice():
    """A guard of the test's own tool: one full step against the closed form."""
    assert oracle(2.0, 1.0, 4, 1e-9, above=True) >= exact_epsilon(1.0, 1e-9)
    assert oracle(2.0, 1.0, 4, 1e-9, above=False) <= exact_epsilon(1.0, 1e-9)
