"""The worth of integer parts against convolutions and sums over shifted lattices."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import InputError
from dp.gaussian_parts import continuous_multiplier
from dp.loss_distribution import gaussian_log_delta


def law_of_parts(sigma: float, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Integers and probabilities of a sum of discrete Gaussians, by convolution."""
    reach = int(14 * sigma)
    one = np.exp(-np.square(np.arange(-reach, reach + 1) / sigma) / 2)
    one /= one.sum()
    total = np.ones(1)
    for _ in range(parts):
        total = np.convolve(total, one)
    return np.arange(len(total)) - len(total) // 2, total


@settings(max_examples=30)
@given(
    sigma=st.floats(4.0, 20.0),
    parts=st.integers(1, 4),
    shift=st.integers(1, 40),
    epsilon=st.floats(0.0, 6.0),
)
def test_the_exact_curve_of_an_entry_is_below_the_continuous_one(
    sigma: float, parts: int, shift: int, epsilon: float
):
    _, p = law_of_parts(sigma, parts)
    moved = np.concatenate([np.zeros(shift), p])
    here = np.concatenate([p, np.zeros(shift)])
    delta = np.maximum(moved - math.exp(epsilon) * here, 0).sum()
    multiplier = continuous_multiplier(float(shift), sigma, parts)
    assert delta <= math.exp(gaussian_log_delta(1 / multiplier, epsilon)) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("shift", [(3, 0), (2, 2), (5, -1), (4, 7)])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_it_is_in_every_direction_of_the_plane(shift: tuple[int, int], epsilon: float):
    k, p = law_of_parts(4.0, 2)
    wide = np.arange(k[0] - 10, k[-1] + 11)
    still, *moved = (np.interp(wide, k + s, p, left=0, right=0) for s in (0, *shift))
    joint, other = np.outer(still, still), np.outer(*moved)
    delta = np.maximum(other - math.exp(epsilon) * joint, 0).sum()
    multiplier = continuous_multiplier(math.hypot(*shift), 4.0, 2)
    assert delta <= math.exp(gaussian_log_delta(1 / multiplier, epsilon)) * (1 + 1e-9)


def test_a_larger_multiplier_would_be_caught():
    """Along an axis the curve is that close to the continuous one's."""
    _, p = law_of_parts(4.0, 3)
    shift, epsilon = 5, 2.0
    here, moved = np.concatenate([p, np.zeros(shift)]), np.concatenate([np.zeros(shift), p])
    delta = np.maximum(moved - math.exp(epsilon) * here, 0).sum()
    better = 1.06 * continuous_multiplier(float(shift), 4.0, 3)
    assert delta > math.exp(gaussian_log_delta(1 / better, epsilon))


def test_lattice_sums_are_as_flat_as_the_proof_says():
    """Step (*) at the two variances of the constants, over shifts, in 60 digits."""
    import mpmath

    with mpmath.workdps(60):
        for variance, bound in ((4.0, 1e-33), (8.0, 1e-67)):
            flat = mpmath.sqrt(2 * mpmath.pi * variance)
            for m in (0, 0.25, 0.5, 0.9):
                total = mpmath.fsum(
                    mpmath.exp(-((j - mpmath.mpf(m)) ** 2) / (2 * variance)) for j in range(-60, 61)
                )
                assert abs(total / flat - 1) < bound


def test_noise_of_few_steps_is_refused():
    with pytest.raises(InputError, match="at least 4 are needed"):
        continuous_multiplier(1.0, 3.99)
