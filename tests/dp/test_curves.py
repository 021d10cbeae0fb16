"""The promise of every mechanism, proven by computation in high precision."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from mpmath import mp, mpf

from dp.mechanisms import (
    GaussianNoise,
    GeometricNoise,
    OptimalNoise,
    StaircaseNoise,
    concentrated_delta,
    one_entry_delta,
    row_delta,
)
from dp.samplers import Staircase, TwoSidedGeometric
from tests.dp.curves import divergence, privacy_curve, probabilities
from tests.dp.test_samplers import gaussian_pmf, geometric_pmf, staircase_pmf

NEGLIGIBLE = 1e-25


def oracle_curve(pmf: Any, sensitivity: int, epsilon: float, reach: int) -> Any:
    """The largest hockey-stick divergence over shifts 1..sensitivity, by mpmath."""
    mp.dps = 50
    factor = mp.exp(mpf(epsilon))
    p = [pmf(k) for k in range(reach + 1)]

    def at(k: int) -> Any:
        return p[abs(k)] if abs(k) <= reach else mpf(0)

    def delta(shift: int) -> Any:
        inside = range(-reach + shift, reach - shift + 1)
        return sum(max(at(k) - factor * at(k + shift), mpf(0)) for k in inside)

    return max(delta(shift) for shift in range(1, sensitivity + 1))


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
@pytest.mark.parametrize("sensitivity", [1, 2, 7])
def test_the_papers_noise_keeps_its_promise_exactly(epsilon: float, delta: float, sensitivity: int):
    noise = OptimalNoise(epsilon, delta).noise(sensitivity)
    reach = int(60 * sensitivity / epsilon) + 20
    truth = oracle_curve(geometric_pmf_of(noise), sensitivity, epsilon, reach)
    assert float(truth) == pytest.approx(delta, rel=1e-9)  # kept, and nothing wasted
    assert float(privacy_curve(noise, sensitivity, epsilon)) == pytest.approx(delta, rel=1e-9)


def geometric_pmf_of(noise: Any) -> Any:
    """mpmath's distribution for the very rational parameters of the mechanism."""
    rate = mpf(noise.rate.numerator) / noise.rate.denominator
    atom = mpf(noise.atom.numerator) / noise.atom.denominator
    return geometric_pmf(rate, atom)


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("sensitivity", [1, 2, 7])
def test_pure_mechanisms_have_no_delta(epsilon: float, sensitivity: int):
    reach = int(80 * sensitivity / epsilon) + 20
    noise = GeometricNoise(epsilon).noise(sensitivity)
    pmf = geometric_pmf_of(noise)
    assert oracle_curve(pmf, sensitivity, epsilon, reach) < NEGLIGIBLE
    assert privacy_curve(noise, sensitivity, epsilon) < NEGLIGIBLE
    stairs: Any = StaircaseNoise(epsilon).noise(sensitivity)
    pmf = staircase_pmf(epsilon, sensitivity, stairs.width)
    assert oracle_curve(pmf, sensitivity, epsilon, reach) < NEGLIGIBLE
    assert privacy_curve(stairs, sensitivity, epsilon) < NEGLIGIBLE


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (3.0, 1e-8)])
@pytest.mark.parametrize("sensitivity", [1, 2])
def test_the_gaussian_of_one_entry_is_calibrated_to_its_exact_curve(
    epsilon: float, delta: float, sensitivity: int
):
    noise: Any = GaussianNoise(epsilon, delta).noise(sensitivity)
    sigma = float(noise.sigma)
    truth = float(oracle_curve(gaussian_pmf(sigma), sensitivity, epsilon, int(16 * sigma) + 5))
    # Lattice steps make delta jump where sigma is small, so less may be used there.
    assert 0.5 * delta < truth <= delta
    assert one_entry_delta(sigma, sensitivity, epsilon) == pytest.approx(truth, rel=1e-6)
    assert float(privacy_curve(noise, sensitivity, epsilon)) <= delta


@pytest.mark.parametrize("wrong", [0.5, 0.9, 0.99])
def test_a_scale_that_is_too_small_is_caught(wrong: float):
    """Every mechanism with less noise than it should have breaks its delta."""
    sensitivity, epsilon = 5, 1.0
    rate = Fraction(epsilon) / sensitivity / Fraction(wrong)
    assert privacy_curve(TwoSidedGeometric(rate), sensitivity, epsilon) > 1e-3
    with_atom = TwoSidedGeometric(rate, Fraction(1, 10**5))
    assert privacy_curve(with_atom, sensitivity, epsilon) > 2e-5
    stairs = Staircase(Fraction(epsilon) / Fraction(wrong), sensitivity, 2)
    assert privacy_curve(stairs, sensitivity, epsilon) > 1e-3
    sensitivity = 2  # a sum over fewer integers, each of which takes its time
    gaussian: Any = GaussianNoise(epsilon, 1e-5).noise(sensitivity)
    smaller = type(gaussian)(gaussian.sigma * Fraction(wrong))
    assert privacy_curve(smaller, sensitivity, epsilon) > 1e-5


def test_a_sensitivity_that_is_too_small_is_caught():
    noise = OptimalNoise(1.0, 1e-5).noise(5)
    assert privacy_curve(noise, 6, 1.0) > 1e-3


@pytest.mark.parametrize("shift", [(3, 0), (2, 2), (1, 2), (-2, 1)])
def test_the_bound_for_rows_holds_in_every_direction(shift: tuple[int, int]):
    """Two entries: the divergence summed over the plane against the concentrated bound."""
    import numpy as np

    sigma, epsilon = 4.0, 1.0
    k = np.arange(-60, 61)
    p = np.exp(-(k**2) / (2 * sigma**2))
    p /= p.sum()
    q = [np.interp(k + s, k, p, left=0, right=0) for s in shift]
    joint, moved = np.outer(p, p), np.outer(q[0], q[1])
    truth = np.maximum(joint - np.exp(epsilon) * moved, 0).sum()
    assert truth <= concentrated_delta(sigma, float(np.hypot(*shift)), epsilon)
    assert truth <= row_delta(sigma, float(np.hypot(*shift)), epsilon)


@pytest.mark.parametrize(("sigma", "shift"), [(1.5, 1), (3.0, 4), (8.0, 2), (20.0, 7)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_the_bound_for_rows_covers_the_exact_curve_along_an_axis(
    sigma: float, shift: int, epsilon: float
):
    """mpmath's sum for the one shift; from far above delta 1e-5 to far below it."""
    mp.dps = 40
    p, factor = gaussian_pmf(sigma), mp.exp(epsilon)
    reach = range(-int(16 * sigma), int(16 * sigma))
    truth = sum(max(p(abs(k)) - factor * p(abs(k + shift)), mpf(0)) for k in reach)
    assert float(truth) <= row_delta(sigma, float(shift), epsilon)


def test_the_bound_for_rows_is_that_of_an_independent_integral():
    """Steps 1 and 3 of its proof, integrated by mpmath for one tau and tangent, are no smaller."""
    sigma, distance, epsilon = 50.0, 20.0, 0.8
    tau, u = mpf("1.6"), mpf("0.05")
    eta = 2 * mp.exp(-2 * mp.pi**2 * (sigma * tau) ** 2 / (sigma**2 + tau**2))
    mean = mpf(distance) ** 2 / (2 * sigma**2)
    deviation = distance * mp.sqrt(sigma**2 + tau**2) / sigma**2
    c = epsilon + u + 1 - mp.exp(u)
    excess = mp.quad(lambda t: (t - c) * mp.npdf(t, mean, deviation), [c, c + 2, c + 20])
    by_hand = (1 + eta) ** int(distance**2) * mp.exp(-u) * excess
    found = row_delta(sigma, distance, epsilon)
    assert found <= float(by_hand) * (1 + 1e-3)
    assert found > 0.8 * float(by_hand)


@pytest.mark.parametrize("steps", [100, 1000, 20_000])
def test_noise_for_rows_is_barely_above_the_continuous_gaussians(steps: int):
    """Balle and Wang (2018) give 3.7306 for epsilon 1, delta 1e-5, sensitivity 1."""
    noise: Any = GaussianNoise(1.0, 1e-5).row_noise(steps**2)
    assert 3.7306 < float(noise.sigma) / steps < 3.7306 * 1.005


def test_the_curve_falls_with_epsilon():
    noise = OptimalNoise(1.0, 1e-5).noise(3)
    p = probabilities(noise)
    curve = [divergence(p, epsilon, 3) for epsilon in (0.0, 0.5, 1.0, 2.0)]
    assert curve == sorted(curve, reverse=True)
    assert Decimal(0) < curve[-1]
