"""Draws against distributions computed independently of the samplers."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.stats import chi2_contingency, chisquare

from dp.exact import os_randomness
from dp.samplers import BLOCK, DiscreteGaussian, Geometric, Staircase, TwoSidedGeometric

mp.dps = 50


def real(value: Any) -> Any:
    exact = value if isinstance(value, mpf) else Fraction(value)
    return exact if isinstance(exact, mpf) else mpf(exact.numerator) / exact.denominator


def geometric_pmf(rate: Any, atom: Any) -> Any:
    a, p = mp.exp(-real(rate)), real(atom)
    return lambda k: (1 - p) * (1 - a) / (1 + a) * a ** abs(k) + (p if k == 0 else 0)


def staircase_pmf(epsilon: float, sensitivity: int, width: int) -> Any:
    b = mp.exp(-mpf(epsilon))

    def weight(k: int) -> Any:
        period, place = divmod(abs(k), sensitivity)
        return b ** (period + (1 if place >= width else 0))

    side = sum(weight(k) for k in range(sensitivity)) / (1 - b)
    total = 2 * side - 1
    return lambda k: weight(k) / total


def gaussian_pmf(sigma: float) -> Any:
    s = mpf(sigma)
    total = mp.fsum(
        mp.exp(-mpf(k * k) / (2 * s**2)) for k in range(-int(20 * sigma + 5), int(20 * sigma + 6))
    )
    return lambda k: mp.exp(-(mpf(k) ** 2) / (2 * s**2)) / total


CASES = [
    (TwoSidedGeometric(Fraction(1, 3)), geometric_pmf(Fraction(1, 3), 0)),
    (TwoSidedGeometric(Fraction(1, 3), Fraction(1, 4)), geometric_pmf(Fraction(1, 3), 0.25)),
    (
        TwoSidedGeometric(Fraction(1, 700), Fraction(1, 100)),
        geometric_pmf(Fraction(1, 700), Fraction(1, 100)),
    ),
    (TwoSidedGeometric(Fraction(5)), geometric_pmf(5, 0)),
    (Staircase(Fraction(1), 7, 3), staircase_pmf(1, 7, 3)),
    (Staircase(Fraction(1, 2), 4, 4), staircase_pmf(0.5, 4, 4)),
    (Staircase(Fraction(3), 50, 1), staircase_pmf(3, 50, 1)),
    (DiscreteGaussian(Fraction(1, 2)), gaussian_pmf(0.5)),
    (DiscreteGaussian(Fraction(7, 2)), gaussian_pmf(3.5)),
    (DiscreteGaussian(Fraction(100)), gaussian_pmf(100)),
]
NAMES = [f"{type(noise).__name__}-{i}" for i, (noise, _) in enumerate(CASES)]


@pytest.mark.parametrize(("noise", "pmf"), CASES, ids=NAMES)
def test_probabilities_agree_with_mpmath(noise: Any, pmf: Any):
    for k in (0, 1, 2, 3, 6, 7, 8, 49, 50, 51, 100, -1, -7):
        expected = pmf(k)
        if expected > mpf(10) ** -30:
            assert abs(mpf(str(noise.pmf(k))) - expected) < mpf(10) ** -30


@pytest.mark.parametrize(("noise", "pmf"), CASES, ids=NAMES)
def test_a_million_draws_follow_the_probabilities(noise: Any, pmf: Any):
    """Chi-square over values of at least 50 expected draws, the two tails pooled by sign."""
    n = 1_000_000
    drawn = noise.draw(n)
    reach = 0
    while reach < 400 and float(pmf(reach + 1)) * n >= 50:
        reach += 1
    inner = np.arange(-reach, reach + 1)
    p = np.array([float(pmf(int(k))) for k in inner])
    tail = (1 - p.sum()) / 2
    counts = [int(np.sum(drawn == k)) for k in inner]
    counts = [int(np.sum(drawn < -reach)), *counts, int(np.sum(drawn > reach))]
    expected = np.array([tail, *p, tail]) * n
    kept = expected > 5
    if not kept.all():
        counts, expected = list(np.array(counts)[kept]), expected[kept]
        expected *= sum(counts) / expected.sum()
    assert chisquare(counts, expected).pvalue > 1e-6


@pytest.mark.parametrize(("noise", "pmf"), CASES, ids=NAMES)
def test_the_variance_is_that_of_the_probabilities(noise: Any, pmf: Any):
    deviation = noise.variance**0.5
    reach = int(40 * deviation) + 10
    total = sum(2 * float(pmf(k)) * k * k for k in range(1, reach))
    assert noise.variance == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize(
    ("scale", "n"),
    [
        (300.0, 200_000),
        pytest.param(300.0, 1_000_000, marks=pytest.mark.slow),
        pytest.param(2.0, 1_000_000, marks=pytest.mark.slow),
    ],
)
def test_draws_are_distributed_as_opendps_discrete_laplace(scale: float, n: int):
    """An independent exact sampler as oracle: chi-square of two samples over 40 common bins."""
    import opendp.prelude as opendp

    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l1_distance(T="i64")
    theirs = np.array(opendp.m.make_laplace(*space, scale=scale)([0] * n))
    ours = TwoSidedGeometric(1 / Fraction(scale)).draw(n)
    inner = np.unique(np.quantile(theirs, np.linspace(0, 1, 41)[1:-1]).astype(int))
    edges = np.concatenate([[-(10**9)], inner, [10**9]])
    both = np.array([np.histogram(x, edges)[0] for x in (ours, theirs)])
    assert chi2_contingency(both[:, both.sum(axis=0) > 0]).pvalue > 1e-6


def test_low_digits_and_memorylessness_make_a_geometric_variable():
    """Scale 40,000 has two low digits; its quantiles must be those of the closed form."""
    rate = Fraction(1, 40_000)
    drawn = Geometric(rate).draw(1_000_000, os_randomness)
    for share in (0.001, 0.1, 0.5, 0.9, 0.999, 0.99999):
        k = int(-np.log1p(-share) * 40_000)
        exact = float(-np.expm1(-k / 40_000))
        spread = (exact * (1 - exact) / 1e6) ** 0.5
        assert abs(np.mean(drawn < k) - exact) < 6 * spread
    low = chisquare(np.bincount(drawn % 256 // 16, minlength=16))
    assert low.pvalue > 1e-9  # nearly uniform: the rate over 256 steps is 0.6 %


def test_acceptance_of_the_gaussian_is_decided_by_the_exact_threshold():
    """Words just below and above 2^64 p, where double precision cannot tell them apart."""
    noise = DiscreteGaussian(Fraction(7, 2))
    centre = Fraction(49, 16)  # sigma^2 / (floor(sigma) + 1)
    for magnitude in (0, 1, 5, 9):
        exponent = (magnitude - centre) ** 2 / (2 * Fraction(49, 4))
        p = mp.exp(-mpf(exponent.numerator) / exponent.denominator)
        word = int(mp.floor(p * mpf(2) ** 64))
        fail = lambda n: pytest.fail("read more bits than it needed")  # noqa: E731 - a source
        assert noise._accept_exactly(magnitude, word - 1, fail)
        assert not noise._accept_exactly(magnitude, word + 1, fail)
        ones, zeros = (lambda n: b"\xff" * n), (lambda n: b"\x00" * n)
        assert noise._accept_exactly(magnitude, word, zeros)
        assert not noise._accept_exactly(magnitude, word, ones)


@settings(max_examples=30)
@given(
    steps=st.integers(1, 10**9),
    epsilon=st.floats(1e-2, 20),
    delta=st.floats(0, 0.9),
    n=st.integers(0, 500),
)
def test_any_rate_and_atom_draws_integers_of_the_asked_number(
    steps: int, epsilon: float, delta: float, n: int
):
    noise = TwoSidedGeometric(Fraction(epsilon) / steps, Fraction(delta))
    drawn = noise.draw(n)
    assert drawn.shape == (n,)
    assert drawn.dtype == np.int64
    assert (np.abs(drawn) <= 200 * max(1.0, steps / epsilon)).all()


def test_the_atom_makes_that_share_of_draws_exactly_zero():
    noise = TwoSidedGeometric(Fraction(1, 10**6), Fraction(1, 5))
    assert np.mean(noise.draw(200_000) == 0) == pytest.approx(0.2, abs=0.006)


def test_draws_longer_than_a_block_are_filled_to_the_end():
    drawn = TwoSidedGeometric(Fraction(1, 10**6)).draw(2 * BLOCK + 3)
    assert np.count_nonzero(drawn) >= len(drawn) - 3


def test_no_seed_can_reach_the_default_randomness():
    noise = TwoSidedGeometric(Fraction(1, 100))
    np.random.seed(0)
    first = noise.draw(100)
    np.random.seed(0)
    assert (first != noise.draw(100)).any()


def test_staircase_width_is_the_best_of_all():
    """Against the mean magnitude summed directly."""

    def mean(width: int) -> float:
        noise = Staircase(Fraction(1), 9, width)
        return float(sum(2 * k * noise.pmf(k) for k in range(1, 400)))

    widths = {width: mean(width) for width in range(1, 10)}
    chosen = Staircase.least_magnitude(Fraction(1), 9).width
    assert widths[chosen] == min(widths.values())


def test_probabilities_add_up_to_one():
    for noise, _ in CASES[:2] + CASES[3:6]:
        total = noise.pmf(0) + 2 * sum((noise.pmf(k) for k in range(1, 3000)), Decimal(0))
        assert abs(total - 1) < Decimal(10) ** -20
