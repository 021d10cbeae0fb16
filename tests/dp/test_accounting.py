"""Composition against closed forms, mpmath and exhaustive sums."""

import itertools
import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp.accounting import (
    Composition,
    Gaussian,
    Promise,
    compose,
    compose_gaussians,
    compose_promises,
    rdp_epsilon,
)
from dp.errors import InputError

EPSILON = st.floats(1e-3, 3)


def exact_delta(epsilons: list[float], at: float) -> float:
    """Hockey-stick divergence of randomised responses, by all sign patterns (KOV 2015)."""
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(epsilons)):
        loss = math.fsum(s * e for s, e in zip(signs, epsilons, strict=True))
        p = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, epsilons, strict=True))
        if loss > at:
            total += p * -math.expm1(at - loss)
    return total


@settings(max_examples=60)
@given(
    epsilons=st.lists(EPSILON, min_size=2, max_size=8),
    delta=st.sampled_from([1e-9, 1e-5, 1e-2]),
)
def test_a_composed_epsilon_is_sound_and_exact_composition_wastes_nothing(
    epsilons: list[float], delta: float
):
    found = compose_promises([Promise(e, 0.0) for e in epsilons], delta)
    assert exact_delta(epsilons, found.epsilon) <= delta * (1 + 1e-6)
    assert 0 <= found.epsilon <= sum(epsilons) * (1 + 1e-12)
    if found.epsilon > 0:
        assert exact_delta(epsilons, found.epsilon * (1 - 1e-6) - 1e-6) > delta * (1 - 1e-3)


def test_many_equal_events_agree_with_the_closed_form_of_kairouz_oh_viswanath():
    """Theorem 3.3: ((k - 2i) epsilon, delta_i), delta_i summed over binomials in mpmath."""
    mpmath.mp.dps = 60
    k, epsilon = 100, 0.3
    e = mpmath.mpf(epsilon)
    for i in (10, 25, 35):
        parts = (
            mpmath.binomial(k, j) * (mpmath.exp((k - j) * e) - mpmath.exp((k - 2 * i + j) * e))
            for j in range(i)
        )
        delta = float(mpmath.fsum(parts) / (1 + mpmath.exp(e)) ** k)
        found = compose_promises([Promise(epsilon, 0.0)] * k, delta)
        assert found.epsilon == pytest.approx((k - 2 * i) * epsilon, rel=1e-5)
        assert found.rule == "exact"


def test_deltas_compose_too():
    """The atom of every event fails on its own; no slack is left at exactly their sum."""
    events = [Promise(0.5, 1e-3)] * 10
    failure = 1 - (1 - 1e-3) ** 10
    assert compose_promises(events, failure).epsilon == pytest.approx(5.0)
    assert compose_promises(events, failure * 0.99).epsilon == math.inf
    assert compose_promises(events, failure + 1e-6).epsilon < 5.0
    assert compose_promises([Promise(0.5, 1e-5)], 1e-5) == Composition(0.5, 1e-5, "basic")


def test_the_advanced_rule_takes_over_when_losses_are_too_many_to_enumerate():
    events = [Promise(0.01 + 1e-6 * i, 0.0) for i in range(400)]
    found = compose_promises(events, 1e-5)
    assert found.rule == "advanced"
    assert found.epsilon < sum(e.epsilon for e in events)


def test_no_event_costs_nothing():
    assert compose([], [], 0.0).epsilon == 0.0
    assert compose([], [], 1e-5).epsilon == 0.0


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """The exact curve of one Gaussian (Balle and Wang 2018, theorem 8), solved in mpmath."""
    mu = 1 / mpmath.mpf(multiplier)

    def excess(e: mpmath.mpf) -> mpmath.mpf:
        first = mpmath.ncdf(mu / 2 - e / mu)
        return first - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu) - delta

    low, high = mpmath.mpf(0), mpmath.mpf(100)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return float(high)


@pytest.mark.parametrize("multiplier", [1.0, 4.0])
def test_one_gaussian_event_is_bounded_from_above_and_closely(multiplier: float):
    truth = gaussian_epsilon(multiplier, 1e-5)
    found = compose_gaussians([Gaussian(multiplier)], 1e-5)
    assert truth <= found.epsilon <= truth * 1.02 + 0.02
    rdp = rdp_epsilon([Gaussian(multiplier)], 1e-5)
    assert truth < rdp < truth * 1.2
    assert found.epsilon <= rdp


def test_gaussian_events_compose_as_one_of_less_noise():
    """k times multiplier s is once s / sqrt(k)."""
    many = rdp_epsilon([Gaussian(8.0, steps=16)], 1e-5)
    assert many == pytest.approx(rdp_epsilon([Gaussian(2.0)], 1e-5), rel=1e-9)
    assert rdp_epsilon([Gaussian(8.0)] * 16, 1e-5) == pytest.approx(many, rel=1e-9)


def test_subsampled_training_costs_little_less_than_opacus_says():
    from opacus.accountants import RDPAccountant

    reference = RDPAccountant()
    reference.history = [(1.1, 0.01, 1000)]
    event = Gaussian(1.1, sample_rate=0.01, steps=1000)
    assert rdp_epsilon([event], 1e-5) == pytest.approx(reference.get_epsilon(1e-5), rel=0.02)
    found = compose_gaussians([event], 1e-5)
    assert found.rule == "privacy loss distribution"
    assert found.epsilon < rdp_epsilon([event], 1e-5)


def test_losses_that_are_too_many_fall_back_to_renyi_and_are_named():
    event = Gaussian(0.0001, sample_rate=0.5, steps=3)
    found = compose_gaussians([event], 1e-5)
    assert found.rule == "Renyi divergences (too many privacy losses to add up)"
    assert found.epsilon == rdp_epsilon([event], 1e-5)


def test_discrete_noise_is_accounted_by_its_proven_bound_only():
    found = compose_gaussians([Gaussian(4.0, discrete=True)], 1e-5)
    assert found.rule == "Renyi divergences"


def test_an_epsilon_is_never_negative():
    for multiplier in (50.0, 1000.0, 1e6):
        for delta in (1e-9, 1e-2, 0.9):
            assert compose_gaussians([Gaussian(multiplier)], delta).epsilon >= 0


def test_promises_and_gaussians_share_delta():
    found = compose([Promise(1.0, 1e-6)], [Gaussian(4.0, discrete=True)], 1e-5)
    assert found.epsilon == pytest.approx(1 + rdp_epsilon([Gaussian(4.0)], 4.5e-6), rel=1e-6)
    assert compose([Promise(1.0, 1e-5)], [Gaussian(4.0)], 1e-5).epsilon == math.inf
    assert compose([], [Gaussian(4.0)], 0.0).epsilon == math.inf


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Promise(0.0, 0.0),
        lambda: Promise(math.nan, 0.0),
        lambda: Promise(1.0, 1.0),
        lambda: Gaussian(0.0),
        lambda: Gaussian(math.inf),
        lambda: Gaussian(1.0, sample_rate=0.0),
        lambda: Gaussian(1.0, sample_rate=1.5),
        lambda: Gaussian(1.0, steps=0),
        lambda: Gaussian(1.0, steps=True),
    ],
)
def test_an_event_that_cannot_be_is_refused(bad):
    with pytest.raises(InputError, match=r"found .*, expected"):
        bad()
