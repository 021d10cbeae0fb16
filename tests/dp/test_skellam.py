"""Skellam noise: its draws against scipy and mpmath, its price against computed divergences."""

import hashlib
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ive
from scipy.stats import chisquare, poisson, skellam

from dp import InputError
from dp import skellam as module
from dp.skellam import Poisson, Skellam, skellam_multiplier


def counted(drawn, low, high, probability):
    """P-value of draws against probabilities of low..high and of the rest."""
    inside = np.arange(low, high + 1)
    observed = np.array([np.count_nonzero(drawn == k) for k in inside])
    observed = np.append(observed, len(drawn) - observed.sum())
    expected = probability(inside)
    expected = np.append(expected, 1 - expected.sum()) * len(drawn)
    return chisquare(observed, expected).pvalue


@pytest.mark.parametrize("mean", [64, 1000])
def test_draws_follow_scipys_poisson_distribution(mean):
    drawn = Poisson(mean).draw(400_000)
    spread = 3 * int(mean**0.5)
    assert counted(drawn, mean - spread, mean + spread, lambda k: poisson.pmf(k, mean)) > 1e-6


def test_draws_follow_scipys_skellam_distribution():
    drawn = Skellam(128).draw(400_000)
    assert counted(drawn, -35, 35, lambda k: skellam.pmf(k, 64, 64)) > 1e-6


@pytest.mark.parametrize("variance", [2**20, 2**33])
def test_draws_of_large_variance_have_it(variance):
    drawn = Skellam(variance).draw(40_000)
    assert drawn.mean() == pytest.approx(0, abs=6 * (variance / 40_000) ** 0.5)
    assert drawn.var() == pytest.approx(variance, rel=6 * (2 / 40_000) ** 0.5)


def stream(seed):
    """The same bytes again for the same seed."""
    done = 0

    def source(n):
        nonlocal done
        done += 1
        return hashlib.shake_256(f"{seed} {done}".encode()).digest(n)

    return source


@pytest.mark.parametrize("mean", [64, 100, 5000])
def test_double_precision_decides_as_exact_arithmetic_does(mean, monkeypatch):
    """With a margin of 1 every proposal is compared digit by digit."""
    noise = Poisson(mean)
    fast = noise.draw(300, stream(mean))
    monkeypatch.setattr(module, "MARGIN", 1.0)
    assert np.array_equal(noise.draw(300, stream(mean)), fast)


@given(st.integers(64, 3000), st.integers(-60, 60))
@settings(max_examples=60)
def test_keeping_a_proposal_makes_it_a_poisson_variable(mean, j):
    """p(j) exp(-|j| / t) / P(mean + j) is one constant; p is at most 1 and what the table says."""
    noise, scale = Poisson(mean), int(mean**0.5) + 1

    def ratio(step):
        with mpmath.workdps(60):
            kept = mpmath.mpf(str(noise.keeping(step, 60)))
            log = (mean + step) * mpmath.log(mean) - mean - mpmath.loggamma(mean + step + 1)
            return kept * mpmath.exp(-mpmath.mpf(abs(step)) / scale - log)

    assert abs(ratio(j) / ratio(0) - 1) < mpmath.mpf(10) ** -30
    exact = float(noise.keeping(j, 60))
    assert exact < 1
    middle = len(noise._kept) // 2
    assert noise._kept[middle + j] == pytest.approx(exact, abs=2.0**-40)


def test_probabilities_agree_with_mpmath():
    with mpmath.workdps(50):
        for k in (0, 1, -7, 40):
            expected = mpmath.exp(-128) * mpmath.besseli(k, 128)
            assert abs(mpmath.mpf(str(Skellam(128).pmf(k))) - expected) < mpmath.mpf(10) ** -30


def test_skellam_variables_add_up_to_one():
    k = np.arange(-400, 401)
    three = np.array([1.0])
    for _ in range(3):
        three = np.convolve(three, skellam.pmf(k, 64, 64))
    middle = len(three) // 2
    assert three[middle - 60 : middle + 61] == pytest.approx(
        skellam.pmf(np.arange(-60, 61), 192, 192), rel=1e-9
    )


@pytest.mark.parametrize("sigma", [0.5, 11.4, 100.3, 2.0**16])
def test_a_scale_gets_at_least_its_variance(sigma):
    variance = Skellam.of_scale(sigma).variance
    assert Fraction(sigma) ** 2 <= variance <= max(128, sigma**2 + 2)


@pytest.mark.parametrize("variance", [126, 129, 2**33 + 2])
def test_a_variance_that_cannot_be_drawn_is_refused(variance):
    with pytest.raises(InputError, match=f"found {variance}"):
        Skellam(variance)


def divergence(order, shift, variance):
    """Renyi divergence of shifted Skellam noise, summed over where double precision reaches."""
    k = np.arange(-int(40 * variance**0.5) - 40, int(40 * variance**0.5) + 41)
    with np.errstate(divide="ignore"):
        log = np.log(ive(np.abs(k), variance))
        moved = np.log(ive(np.abs(k - shift), variance))
    inside = np.isfinite(log) & np.isfinite(moved)
    terms = order * moved[inside] + (1 - order) * log[inside]
    top = terms.max()
    return (top + np.log(np.exp(terms - top).sum())) / (order - 1)


@pytest.mark.parametrize("variance", [4.0, 30.0, 500.0])
@pytest.mark.parametrize("shifts", [(1,), (3,), (1, 1, 1, 1), (2, -1, 1), (5, 2)])
def test_the_price_bounds_the_divergence_at_every_whole_order(variance, shifts):
    """Coordinates are independent, so their divergences add."""
    l1, l2 = sum(map(abs, shifts)), sum(s * s for s in shifts) ** 0.5
    multiplier = skellam_multiplier(l2, l1, variance)
    assert multiplier < variance**0.5 / l2
    for order in (2, 3, 5, 8, 16):
        exact = sum(divergence(order, shift, variance) for shift in shifts)
        bound = order / (2 * multiplier**2)
        assert exact <= bound * (1 + 1e-9)
        if variance == 500:  # nor is it empty where noise is large against the shift
            assert exact > 0.97 * bound
