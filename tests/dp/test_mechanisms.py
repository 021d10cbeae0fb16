"""Every promise (epsilon, delta) is computed, not sampled, with mpmath as the oracle."""

from collections.abc import Callable
from fractions import Fraction

import mpmath
import pytest

from dp.errors import InputError
from dp.mechanisms import (
    GaussianNoise,
    GeometricNoise,
    Mechanism,
    Noise,
    OptimalNoise,
    StaircaseNoise,
    make_mechanism,
    row_delta,
)
from dp.samplers import DiscreteGaussian, Staircase, TwoSidedGeometric
from tests.dp.curves import privacy_curve

mpmath.mp.dps = 50
Pmf = Callable[[int], mpmath.mpf]


def _mpf(value: Fraction | float) -> mpmath.mpf:
    exact = Fraction(value)
    return mpmath.mpf(exact.numerator) / exact.denominator


def _closed_form(noise: Noise) -> Pmf:
    """The textbook formula, normalised by a sum in mpmath."""
    if isinstance(noise, TwoSidedGeometric):
        a, atom = mpmath.exp(-_mpf(noise.rate)), _mpf(noise.atom)

        def geometric(k: int) -> mpmath.mpf:
            return (1 - atom) * (1 - a) / (1 + a) * a ** abs(k) + (atom if k == 0 else 0)

        return geometric
    if isinstance(noise, Staircase):
        weight = _staircase_weight(noise)
    else:
        sigma = _mpf(noise.sigma)
        weight = lambda k: mpmath.exp(-mpmath.mpf(k * k) / (2 * sigma**2))  # noqa: E731  # a formula
    reach = _reach(noise)
    total = weight(0) + 2 * mpmath.fsum(weight(k) for k in range(1, reach))
    return lambda k: weight(k) / total


def _staircase_weight(noise: Staircase) -> Pmf:
    b = mpmath.exp(-_mpf(noise.epsilon))
    d, w = noise.sensitivity, noise.width
    return lambda k: b ** (abs(k) // d + (1 if abs(k) % d >= w else 0))


def _reach(noise: Noise) -> int:
    """Beyond it the probability is below 1e-40."""
    if isinstance(noise, TwoSidedGeometric):
        return int(100 / noise.rate) + 2
    if isinstance(noise, Staircase):
        return int(100 / noise.epsilon + 2) * noise.sensitivity
    return int(15 * noise.sigma) + 20


def _oracle_curve(noise: Noise, sensitivity: int, epsilon: float) -> mpmath.mpf:
    pmf, reach = _closed_form(noise), _reach(noise) + sensitivity
    p = {k: pmf(k) for k in range(-reach, reach + sensitivity + 1)}
    factor = mpmath.exp(_mpf(epsilon))
    return max(
        mpmath.fsum(max(p[k] - factor * p[k + s], 0) for k in range(-reach, reach + 1))
        for s in range(1, sensitivity + 1)
    )


CASES: list[tuple[Mechanism, int]] = [
    (OptimalNoise(1.0, 1e-5), 7),
    (OptimalNoise(2.0, 0.3), 3),
    (OptimalNoise(0.5, 0.0), 2),
    (GeometricNoise(1.5), 5),
    (GeometricNoise(3.0), 1),
    (StaircaseNoise(1.0), 6),
    (StaircaseNoise(4.0), 9),
    (GaussianNoise(1.0, 1e-5), 1),
    (GaussianNoise(0.7, 1e-6), 2),
    (GaussianNoise(6.0, 0.01), 12),
]


@pytest.mark.parametrize(("mechanism", "sensitivity"), CASES, ids=str)
def test_the_privacy_curve_stays_below_the_claimed_delta(
    mechanism: Mechanism, sensitivity: int
) -> None:
    noise = mechanism.noise(sensitivity)
    found = _oracle_curve(noise, sensitivity, mechanism.epsilon)
    assert found <= _mpf(mechanism.delta) + mpmath.mpf(10) ** -35


@pytest.mark.parametrize(("mechanism", "sensitivity"), CASES, ids=str)
def test_the_shipped_curve_agrees_with_the_oracle(mechanism: Mechanism, sensitivity: int) -> None:
    noise = mechanism.noise(sensitivity)
    for epsilon in (mechanism.epsilon, mechanism.epsilon / 2):
        ours = mpmath.mpf(str(privacy_curve(noise, sensitivity, epsilon)))
        assert abs(ours - _oracle_curve(noise, sensitivity, epsilon)) < mpmath.mpf(10) ** -30


@pytest.mark.parametrize(("mechanism", "sensitivity"), CASES, ids=str)
def test_noise_for_a_smaller_shift_breaks_the_promise(
    mechanism: Mechanism, sensitivity: int
) -> None:
    """The test above can fail: a tenth less noise than claimed is caught."""
    right = mechanism.noise(sensitivity)
    wrong: Noise
    match right:
        case TwoSidedGeometric():
            wrong = TwoSidedGeometric(right.rate * Fraction(10, 9), right.atom)
        case Staircase():
            wrong = Staircase(right.epsilon * Fraction(10, 9), right.sensitivity, right.width)
        case DiscreteGaussian():
            wrong = DiscreteGaussian(right.sigma * Fraction(9, 10))
    found = _oracle_curve(wrong, sensitivity, mechanism.epsilon)
    assert found > _mpf(mechanism.delta) * mpmath.mpf("1.001") + mpmath.mpf(10) ** -12


def test_the_gaussian_is_calibrated_tightly() -> None:
    """Exact calibration leaves next to nothing of delta unused, and beats the classical bound."""
    epsilon, delta, sensitivity = 0.7, 1e-6, 40
    noise = GaussianNoise(epsilon, delta).noise(sensitivity)
    assert isinstance(noise, DiscreteGaussian)
    found = _oracle_curve(noise, 1, epsilon)  # any shift is below the claim
    assert found < delta
    p = _closed_form(noise)
    reach = _reach(noise)
    factor = mpmath.exp(epsilon)
    at_sensitivity = mpmath.fsum(
        max(p(k) - factor * p(k + sensitivity), 0) for k in range(-reach, reach)
    )
    assert delta * (1 - 1e-4) < at_sensitivity <= delta
    classical = sensitivity * mpmath.sqrt(2 * mpmath.log(1.25 / delta)) / epsilon
    assert float(noise.sigma) < 0.95 * classical


def test_the_row_bound_covers_the_exact_curve_of_sampled_directions() -> None:
    """Rows: the concentrated bound is above the exact curve along an axis and along a diagonal."""
    epsilon, delta = 1.0, 1e-5
    noise = GaussianNoise(epsilon, delta).row_noise(32)
    assert isinstance(noise, DiscreteGaussian)
    p = _closed_form(noise)
    reach = 12 * int(noise.sigma + 1)
    factor = mpmath.exp(epsilon)
    along = mpmath.fsum(max(p(k) - factor * p(k + 5), 0) for k in range(-reach, reach))
    assert along < delta  # squared distance 25 of 32
    line = {k: p(k) for k in range(-reach - 4, reach + 5)}
    # Shift (4, 4): the loss depends on k1 + k2 alone, so the sums of pairs decide.
    pairs: dict[int, mpmath.mpf] = {}
    for i in range(-reach, reach + 1):
        for j in range(-reach, reach + 1):
            pairs[i + j] = pairs.get(i + j, 0) + line[i] * line[j]
    sigma2 = _mpf(noise.sigma) ** 2
    gain = mpmath.mpf(0)
    for total, weight in pairs.items():
        ratio = factor * mpmath.exp(-mpmath.mpf(2 * 4 * total + 32) / (2 * sigma2))
        if ratio < 1:
            gain += weight * (1 - ratio)
    assert gain < delta
    assert row_delta(float(noise.sigma), 32**0.5, epsilon) <= delta


@pytest.mark.parametrize("noise", [m.noise(s) for m, s in CASES], ids=str)
def test_probabilities_and_variance_match_the_closed_form(noise: Noise) -> None:
    p, reach = _closed_form(noise), _reach(noise)
    for k in (0, 1, 2, 5, 17, -3):
        assert abs(mpmath.mpf(str(noise.pmf(k))) / p(k) - 1) < mpmath.mpf(10) ** -30
    variance = 2 * mpmath.fsum(k * k * p(k) for k in range(1, reach))
    assert abs(variance / noise.variance - 1) < 1e-9


def test_the_staircase_has_the_least_mean_magnitude_of_its_family() -> None:
    best = StaircaseNoise(3.0).noise(8)
    assert isinstance(best, Staircase)

    def mean(noise: Staircase) -> mpmath.mpf:
        p = _closed_form(noise)
        return 2 * mpmath.fsum(k * p(k) for k in range(1, _reach(noise)))

    assert all(
        mean(best) <= mean(Staircase(best.epsilon, 8, width)) * (1 + mpmath.mpf(10) ** -12)
        for width in range(1, 9)
    )
    geometric = GeometricNoise(3.0).noise(8)
    p = _closed_form(geometric)
    assert mean(best) < 2 * mpmath.fsum(k * p(k) for k in range(1, _reach(geometric)))


@pytest.mark.parametrize("epsilon", [0, -1.0, float("nan"), float("inf"), True, "1"])
def test_a_bad_epsilon_is_refused(epsilon: object) -> None:
    with pytest.raises(InputError, match=r"^epsilon: found .* above 0$"):
        make_mechanism("optimal", epsilon, 0.0)


@pytest.mark.parametrize("delta", [-1e-9, 1, 1.0, float("nan"), None])
def test_a_bad_delta_is_refused(delta: object) -> None:
    with pytest.raises(InputError, match=r"^delta: found .*\[0, 1\)$"):
        make_mechanism("optimal", 1.0, delta)


@pytest.mark.parametrize(
    ("name", "delta", "message"),
    [
        ("laplace", 0.0, "mechanism: 'laplace' is unknown, expected one of optimal"),
        ("geometric", 1e-5, "the geometric mechanism is pure: give delta = 0"),
        ("staircase", 1e-5, "the staircase mechanism is pure: give delta = 0"),
        ("gaussian", 0.0, "the gaussian mechanism needs delta above 0"),
    ],
)
def test_a_delta_that_the_mechanism_cannot_have_is_refused(
    name: str, delta: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_mechanism(name, 1.0, delta)


def test_noise_that_would_overflow_integers_is_refused() -> None:
    for mechanism in (OptimalNoise(1e-6, 0), GeometricNoise(1e-6), GaussianNoise(1e-6, 1e-9)):
        with pytest.raises(InputError, match="take a larger grid step"):
            mechanism.noise(2**30)


def test_an_epsilon_that_leaves_no_noise_is_refused() -> None:
    """Such a number is a slip; its tables would also need thousands of digits."""
    for mechanism in (OptimalNoise(1e6, 0), GeometricNoise(1e6), StaircaseNoise(1e6)):
        with pytest.raises(InputError, match="is no protection"):
            mechanism.noise(3)
