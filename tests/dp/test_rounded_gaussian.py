"""The rounded Gaussian against the normal distribution of scipy and mpmath."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.stats import binomtest, chisquare, kstest, norm

from dp import InputError
from dp.rounded_gaussian import RoundedGaussian

SIGMAS = [Fraction(1, 8), Fraction(1, 2), Fraction(1), Fraction(7, 2), Fraction(100)]


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_draws_are_normal_variables_rounded_to_integers(sigma: Fraction):
    n = 300_000
    drawn = RoundedGaussian(sigma).draw(n)
    reach = 0
    while norm.sf((reach + 1.5) / float(sigma)) * n >= 50:
        reach += 1
    edges = np.arange(-reach, reach + 2) - 0.5
    inner = np.diff(norm.cdf(edges / float(sigma)))
    tail = (1 - inner.sum()) / 2
    counts = [np.sum(drawn < -reach), *(np.sum(drawn == k) for k in range(-reach, reach + 1))]
    counts = np.array([*counts, np.sum(drawn > reach)])
    expected = n * np.array([tail, *inner, tail])
    kept = expected > 5
    if kept.sum() > 1:
        scaled = expected[kept] * counts[kept].sum() / expected[kept].sum()
        assert chisquare(counts[kept], scaled).pvalue > 1e-6
    rare = expected[~kept].sum() / n
    assert binomtest(int(counts[~kept].sum()), n, rare).pvalue > 1e-6


def test_on_a_fine_grid_draws_follow_the_normal_distribution_far_into_the_tails():
    sigma = 2.0**30 / 3
    drawn = RoundedGaussian(Fraction(sigma)).draw(400_000) / sigma
    assert kstest(drawn, norm.cdf).pvalue > 1e-6
    expected = 400_000 * 2 * norm.sf(4)
    assert abs(np.sum(np.abs(drawn) > 4) - expected) < 6 * expected**0.5


@settings(max_examples=60)
@given(
    st.sampled_from([*SIGMAS, Fraction(2**20)]),
    st.floats(0, 5),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**8), 2**8),
)
def test_close_decisions_are_those_of_many_digits(
    sigma: Fraction, deviations: float, fraction: int, off: int
):
    """mpmath decides W < p with 80 digits where both words lie within 2^-56 of one another."""
    noise = RoundedGaussian(sigma)
    whole = int(deviations * sigma)
    rest = bytes.fromhex("0000008000000080")  # both variables go on with a one and zeros
    with mp.workdps(80):
        u = (mpf(fraction) + mpf(1) / 2) / 2**64
        s, t = mpf(sigma.numerator) / sigma.denominator, int(sigma) + 1
        p = mp.exp(-((whole + u - s**2 / t) ** 2) / (2 * s**2) - u / t)
        word = min(max(int(p * 2**64) + off, 0), 2**64 - 1)
        expected = (mpf(word) + mpf(1) / 2) / 2**64 < p
    feed = iter([rest] + [bytes(8)] * 50)
    assert noise.accept_exactly(whole, fraction, word, lambda n: next(feed)[:n]) == expected


def test_every_draw_is_made_of_the_source_alone():
    def stream(seed: int):
        rng = np.random.default_rng(seed)
        return rng.bytes

    noise = RoundedGaussian(Fraction(1000))
    first, again, other = (noise.draw(500, stream(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("sigma", [Fraction(1, 2**11), Fraction(2**41)])
def test_a_scale_beyond_the_integers_is_refused(sigma: Fraction):
    with pytest.raises(InputError, match="another grid"):
        RoundedGaussian(sigma)
