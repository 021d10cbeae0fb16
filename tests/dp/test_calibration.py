"""Calibrated noise against a numerical composition written here, and against its own promise."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dp import InputError
from dp.accounting import Gaussian, compose_gaussians, rdp_epsilon
from dp.calibration import noise_multiplier

WIDTH, MESH = 24.0, 4e-4


def composed_delta(events: list[Gaussian], epsilon: float, *, removed: bool, up: bool) -> float:
    """Delta of sampled Gaussian steps by convolving discretised privacy losses.

    Losses are rounded up or down to the mesh, so the result is above or below the truth, up to
    1e-12 of mass outside the range. `removed` compares the mixture with the plain Gaussian; the
    other direction the reverse. Densities are integrated by the distribution functions alone.
    """
    edges = np.arange(-WIDTH, WIDTH + MESH / 2, MESH)
    spectrum = np.ones(len(edges) // 2 + 1, dtype=complex)
    for e in events:
        q, s = e.sample_rate, e.noise_multiplier
        # Loss of a draw z: ln((1 - q) + q exp((2z - 1) / (2 s^2))), growing in z.
        with np.errstate(invalid="ignore", divide="ignore"):
            z = s * s * np.log((np.exp(edges) - (1 - q)) / q) + 0.5
        z[np.exp(edges) <= 1 - q] = -np.inf
        if removed:
            cdf = (1 - q) * norm.cdf(z / s) + q * norm.cdf((z - 1) / s)
            mass = np.diff(cdf, prepend=0.0)
        else:
            # The loss of the reverse is minus that of the draw.
            mass = np.diff(norm.cdf(z / s), prepend=0.0)[::-1]
            mass = np.roll(mass, 1)
        if not up:
            mass = np.roll(mass, -1)
        # The mesh's point 0 goes first, so that convolution adds losses up.
        spectrum *= np.fft.rfft(np.roll(mass, -(len(edges) // 2)))[: len(spectrum)] ** e.steps
    total = np.roll(np.fft.irfft(spectrum, len(edges)), len(edges) // 2)
    above = edges > epsilon
    return float(np.sum(total[above] * -np.expm1(epsilon - edges[above])))


CASES = [
    (1.0, 0.02, 300, ()),
    (3.0, 0.1, 60, (Gaussian(8.0, 1.0, 6),)),
    (8.0, 0.25, 40, ()),
    (2.0, 1.0, 10, ()),
]


@pytest.mark.parametrize(("epsilon", "rate", "steps", "beside"), CASES)
def test_calibrated_noise_keeps_its_promise_by_an_independent_composition(
    epsilon, rate, steps, beside
):
    """Both directions of adding or removing are below delta; little less noise would exceed it."""
    found = noise_multiplier(epsilon, 1e-5, sample_rate=rate, steps=steps, beside=beside)
    deltas = [
        composed_delta([*beside, Gaussian(found, rate, steps)], epsilon, removed=removed, up=False)
        for removed in (True, False)
    ]
    assert max(deltas) <= 1e-5
    scanty = [*beside, Gaussian(0.97 * found, rate, steps)]
    assert composed_delta(scanty, epsilon, removed=True, up=True) > 1e-5


def test_the_composition_of_this_file_is_the_closed_form_of_one_gaussian():
    """Balle and Wang (2018), theorem 8: k full steps of multiplier s are one of s / sqrt(k)."""
    mu, epsilon = math.sqrt(10) / 6.0, 1.5
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    for removed in (True, False):
        low, high = (
            composed_delta([Gaussian(6.0, 1.0, 10)], epsilon, removed=removed, up=up)
            for up in (False, True)
        )
        assert low <= exact <= high
        assert high < 1.05 * exact


@settings(max_examples=3)
@given(
    epsilon=st.floats(0.2, 12),
    delta=st.sampled_from([1e-6, 1e-5, 1e-3]),
    rate=st.floats(0.005, 1.0),
    steps=st.integers(1, 400),
    beside=st.sampled_from([(), (Gaussian(90.0, 1.0, 5),)]),
)
@example(epsilon=0.5, delta=1e-5, rate=0.01, steps=2000, beside=())
def test_a_calibrated_epsilon_never_exceeds_the_target(epsilon, delta, rate, steps, beside):
    found = noise_multiplier(epsilon, delta, sample_rate=rate, steps=steps, beside=beside)
    spent = compose_gaussians([*beside, Gaussian(found, rate, steps)], delta).epsilon
    assert spent <= epsilon
    if found > 0.3:
        less = compose_gaussians([*beside, Gaussian(0.97 * found, rate, steps)], delta).epsilon
        assert less > epsilon * 0.995 - 0.02


def test_targets_that_no_noise_reaches_are_refused():
    with pytest.raises(InputError, match="noise multiplier above"):
        noise_multiplier(1.0, 1e-5, sample_rate=1.0, steps=1, beside=(Gaussian(0.3),))
    with pytest.raises(InputError, match="delta: found 0"):
        noise_multiplier(1.0, 0.0, sample_rate=0.1, steps=1)


def test_discrete_noise_on_a_sample_is_accounted_at_whole_orders_only():
    """Fractional orders are proven for continuous noise alone, and can give a smaller number."""
    event = Gaussian(0.7, 0.3, 20)
    discrete = Gaussian(0.7, 0.3, 20, discrete=True)
    assert rdp_epsilon([discrete], 1e-5) >= rdp_epsilon([event], 1e-5)
    from opacus.accountants.analysis import rdp

    orders = list(range(2, 9))
    total = rdp.compute_rdp(q=0.3, noise_multiplier=0.7, steps=20, orders=orders)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = rdp.get_privacy_spent(orders=orders, rdp=total, delta=1e-5)
    assert rdp_epsilon([discrete], 1e-5) == pytest.approx(float(expected))
