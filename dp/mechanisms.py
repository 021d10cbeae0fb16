"""What noise keeps a promise (epsilon, delta) for a sensitivity given in grid steps."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, TypeAlias

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from dp.errors import InputError
from dp.samplers import DiscreteGaussian, Staircase, TwoSidedGeometric

Noise: TypeAlias = TwoSidedGeometric | Staircase | DiscreteGaussian

SMALLEST_RATE = Fraction(1, 2**40)
"""Smallest epsilon over sensitivity in steps: below it noise nears the range of integers."""
LARGEST_RATE = 200
"""Largest epsilon over sensitivity in steps: above it noise is 0 but for a chance of e^-200."""
LARGEST_STAIRCASE_EPSILON = 2000
"""Its exponential is computed to as many digits as it has zeros."""
DeltaOf: TypeAlias = Callable[[float, float, float], float]
"""(sigma, sensitivity, epsilon) -> delta."""
LARGEST_SIGMA = 2.0**40
"""In steps, so that noise is far from the range of integers."""
LARGEST_ENTRY_SIGMA = 2.0**19
"""In steps; the exact calibration of one entry sums over 28 times as many integers."""


def check_epsilon(epsilon: object) -> float:
    """Raises InputError unless epsilon is a finite number above 0."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float | np.floating):
        raise InputError(f"epsilon: found {epsilon!r}, expected a number above 0")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon: found {epsilon!r}, expected a finite number above 0")
    return float(epsilon)


def check_delta(delta: object) -> float:
    """Raises InputError unless delta is a number in [0, 1)."""
    if isinstance(delta, bool) or not isinstance(delta, int | float | np.floating):
        raise InputError(f"delta: found {delta!r}, expected a number in [0, 1)")
    if not 0 <= delta < 1:
        raise InputError(f"delta: found {delta!r}, expected a number in [0, 1)")
    return float(delta)


def _rate(epsilon: float, sensitivity: int) -> Fraction:
    rate = Fraction(epsilon) / sensitivity
    if rate < SMALLEST_RATE:
        raise InputError(
            f"grid: epsilon {epsilon:g} at a sensitivity of {sensitivity} steps needs noise that"
            " overflows integers; take a larger grid step or epsilon"
        )
    if rate > LARGEST_RATE:
        raise InputError(
            f"epsilon: {epsilon:g} at a sensitivity of {sensitivity} steps is no protection (more"
            f" than {LARGEST_RATE} a step); take a smaller epsilon or grid step"
        )
    return rate


@frozen
class OptimalNoise:
    """Exactly 0 with probability delta, else two-sided geometric (kahm.txt, eq. 129, corrected).

    The grid form needs no correction. With P = delta [k = 0] + (1 - delta) Q, Q two-sided geometric
    of rate epsilon / s and a shift of 1 to s, Q(k) <= e^epsilon Q(k + shift) for every k. So
    P(k) - e^epsilon P(k + shift) is above 0 at most at k = 0, where it is
    delta + (1 - delta) (Q(0) - e^epsilon Q(shift)) <= delta, with equality at shift = s.

    Attributes:
        epsilon: above 0, for one matrix entry.
        delta: in [0, 1), for one matrix entry.
    """

    epsilon: float = field(converter=check_epsilon)
    delta: float = field(converter=check_delta)
    name: ClassVar[str] = "optimal"
    title: ClassVar[str] = "two-sided geometric with an atom at 0 (kahm.txt, eq. 129, corrected)"

    def noise(self, sensitivity: int) -> Noise:
        """Noise for one entry that moves by at most `sensitivity` steps.

        Raises:
            InputError: the noise would overflow integers.
        """
        return TwoSidedGeometric(_rate(self.epsilon, sensitivity), Fraction(self.delta))


def _no_delta(delta: float, name: str) -> float:
    if delta != 0:
        raise InputError(f"delta: found {delta:g}, the {name} mechanism is pure: give delta = 0")
    return delta


@frozen
class GeometricNoise:
    """Two-sided geometric noise: pure epsilon (Ghosh, Roughgarden, Sundararajan 2009)."""

    epsilon: float = field(converter=check_epsilon)
    delta: float = field(default=0.0, converter=check_delta)
    name: ClassVar[str] = "geometric"
    title: ClassVar[str] = "two-sided geometric"

    def __attrs_post_init__(self) -> None:
        _no_delta(self.delta, self.name)

    def noise(self, sensitivity: int) -> Noise:
        """Noise for one entry that moves by at most `sensitivity` steps."""
        return TwoSidedGeometric(_rate(self.epsilon, sensitivity))


@frozen
class StaircaseNoise:
    """Staircase noise of least mean magnitude: pure epsilon (Geng, Viswanath 2014)."""

    epsilon: float = field(converter=check_epsilon)
    delta: float = field(default=0.0, converter=check_delta)
    name: ClassVar[str] = "staircase"
    title: ClassVar[str] = "staircase of least mean magnitude"

    def __attrs_post_init__(self) -> None:
        _no_delta(self.delta, self.name)

    def noise(self, sensitivity: int) -> Noise:
        """Noise for one entry that moves by at most `sensitivity` steps."""
        if sensitivity > 2**24:
            raise InputError(
                f"grid: a staircase over {sensitivity} steps is too long (at most 2^24);"
                " take a larger step"
            )
        if self.epsilon > LARGEST_STAIRCASE_EPSILON:
            raise InputError(
                f"epsilon: {self.epsilon:g} is no protection; a staircase takes at most"
                f" {LARGEST_STAIRCASE_EPSILON}"
            )
        _rate(self.epsilon, sensitivity)
        return Staircase.least_magnitude(Fraction(self.epsilon), sensitivity)


@frozen
class GaussianNoise:
    """Discrete Gaussian noise (Canonne, Kamath, Steinke 2020), delta above 0."""

    epsilon: float = field(converter=check_epsilon)
    delta: float = field(converter=check_delta)
    name: ClassVar[str] = "gaussian"
    title: ClassVar[str] = "discrete Gaussian"

    def __attrs_post_init__(self) -> None:
        if self.delta == 0:
            raise InputError("delta: found 0, the gaussian mechanism needs delta above 0")

    def noise(self, sensitivity: int) -> Noise:
        """Noise for one entry: the least sigma whose exact curve keeps delta (their theorem 7)."""
        enough = self._least(float(sensitivity), concentrated_delta, 0.0, LARGEST_ENTRY_SIGMA)
        return DiscreteGaussian(
            Fraction(self._least(float(sensitivity), _entry_delta, enough / 4, 2 * enough))
        )

    def row_noise(self, squared_sensitivity: int) -> Noise:
        """Noise for a row that moves by that squared L2 distance in squared steps.

        The least sigma whose bound in every direction of the grid keeps delta: the better of
        `row_delta` and the concentrated bound, both proven.
        """
        return DiscreteGaussian(_row_sigma(self, squared_sensitivity))

    def _least(self, sensitivity: float, delta_of: DeltaOf, low: float, largest: float) -> float:
        """The least sigma that keeps delta, from above, to a relative 1e-6."""
        target = self.delta * (1 - 1e-9)
        high = max(low, 1.0)
        while delta_of(high, sensitivity, self.epsilon) > target:
            low, high = high, 2 * high
            if high > largest:
                raise InputError(
                    f"grid: epsilon {self.epsilon:g} at a sensitivity of {sensitivity:.0f} steps"
                    f" needs a sigma of more than {largest:g} steps; take a larger grid step"
                )
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            if delta_of(middle, sensitivity, self.epsilon) > target:
                low = middle
            else:
                high = middle
        return high


@lru_cache(maxsize=16)
def _row_sigma(mechanism: GaussianNoise, squared_sensitivity: int) -> Fraction:
    # Every client of a run asks for the same, once for its books and once for its noise.
    sensitivity = math.sqrt(squared_sensitivity) * (1 + 1e-15)

    def delta_of(sigma: float, sensitivity: float, epsilon: float) -> float:
        bounds = (concentrated_delta, row_delta)
        return min(bound(sigma, sensitivity, epsilon) for bound in bounds)

    return Fraction(mechanism._least(sensitivity, delta_of, 0.0, LARGEST_SIGMA))


def _entry_delta(sigma: float, sensitivity: float, epsilon: float) -> float:
    # The sum ends at e^-90: a smaller delta is left to the concentrated bound.
    bounds = (one_entry_delta, concentrated_delta)
    return min(bound(sigma, sensitivity, epsilon) for bound in bounds)


def one_entry_delta(sigma: float, sensitivity: float, epsilon: float) -> float:
    """Delta of one entry shifted by `sensitivity` steps (CKS 2020, theorem 7).

    The sum of P(k) - e^epsilon P(k + D) over k > epsilon sigma^2 / D - D / 2, where it is positive,
    up to 14 sigma; what is beyond weighs less than e^-90, which is added.
    """
    reach = math.ceil(14 * sigma)
    first = math.floor(epsilon * sigma**2 / sensitivity - sensitivity / 2)
    total = np.exp(-np.square(np.arange(1, reach + 1) / sigma) / 2).sum() * 2 + 1
    k = np.arange(max(first, -reach), reach + 1)
    p = np.exp(-np.square(k / sigma) / 2)
    # A ratio of two probabilities has no cancellation where their difference would.
    loss = (2 * k + sensitivity) * (sensitivity / (2 * sigma**2))
    return float((p * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum() / total) + math.exp(-90)


def concentrated_delta(sigma: float, sensitivity: float, epsilon: float) -> float:
    """delta of rho-concentrated noise, rho = D^2 / (2 sigma^2) (CKS 2020, corollary 13).

    The least over orders alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1)
    (1 - 1 / alpha)^alpha; any order gives a valid bound.
    """
    rho = sensitivity**2 / (2 * sigma**2)
    centre = max((epsilon + rho) / (2 * rho), 1 + 1e-9)
    alpha = 1 + np.geomspace((centre - 1) / 8 + 1e-9, (centre - 1) * 8 + 8, 4001)
    log_delta = (
        (alpha - 1) * (alpha * rho - epsilon) - np.log(alpha - 1) + alpha * np.log1p(-1 / alpha)
    )
    return float(np.exp(min(log_delta.min(), 0.0)))


def row_delta(sigma: float, sensitivity: float, epsilon: float) -> float:
    """An upper bound on delta of a row shifted by an integer vector v, |v| <= `sensitivity` = D.

    Proof. With x the noise, the privacy loss is L = (2 <x, v> + |v|^2) / (2 sigma^2) and
    delta = E max(1 - e^(epsilon - L), 0).

    1. For any u >= 0 the tangent of 1 - e^-t at u lies above it, so
       max(1 - e^(epsilon - L), 0) <= e^-u max(L - c, 0) with c = epsilon + u + 1 - e^u; the right
       side is convex in <x, v>.
    2. Let z be independent N(0, tau^2 I). By Jensen's inequality over z, x + z in place of x
       makes a convex function's mean no smaller.
    3. The density of an entry of x + z at y is, completing the square with
       s^2 = sigma^2 tau^2 / (sigma^2 + tau^2) and m = y sigma^2 / (sigma^2 + tau^2), that of
       N(0, sigma^2 + tau^2) times

           sqrt(sigma^2 + tau^2) / (tau Z) * sum over k of exp(-(k - m)^2 / (2 s^2)),

       Z the sum of exp(-k^2 / (2 sigma^2)). By Poisson summation Z >= sqrt(2 pi) sigma, and the sum
       is at most sqrt(2 pi) s (1 + eta), eta = 2 sum over j >= 1 of exp(-2 pi^2 s^2 j^2). So the
       factor is at most 1 + eta.
    4. At most |v|^2 entries of an integer vector v differ from 0, and L depends on no others.

    Hence delta <= (1 + eta)^(D^2) e^-u E max(G - c, 0) for G normal with mean |v|^2 / (2 sigma^2)
    and deviation |v| sqrt(sigma^2 + tau^2) / sigma^2, which grows with |v|. Any tau and u give a
    valid bound; the least over a few is taken.
    """
    tau = np.linspace(0.8, 2.4, 17)[:, None]
    u = np.concatenate([[0.0], np.geomspace(1e-3, 3.0, 60)])
    spread = (sigma * tau) ** 2 / (sigma**2 + tau**2)
    # The terms fall faster than a geometric series of the first one's ratio.
    first = np.exp(-2 * np.pi**2 * spread)
    excess = sensitivity**2 * np.log1p(2 * first / (1 - first))
    deviation = sensitivity * np.sqrt(sigma**2 + tau**2) / sigma**2
    z = (epsilon - np.expm1(u) + u - sensitivity**2 / (2 * sigma**2)) / deviation
    log_mean = np.log(deviation) + _log_normal_excess(z)
    return float(np.exp(min((excess - u + log_mean).min(), 0.0)))


def _log_normal_excess(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """log E max(Z - z, 0) of a standard normal Z: log(phi(z) - z Q(z)).

    Where z is large the difference would cancel; phi(z) / z^2 is above it there.
    """
    from scipy.special import erfcx

    log_phi = -np.square(z) / 2 - math.log(2 * math.pi) / 2
    near = np.clip(z, -30.0, 100.0)
    share = 1 - near * math.sqrt(math.pi / 2) * erfcx(near / math.sqrt(2))
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = log_phi + np.log(share)
        below = np.log1p(-z)  # E max(Z - z, 0) <= E |Z| - z <= 1 - z for z < 0
        beyond = log_phi - 2 * np.log(np.abs(z))
    return np.where(z > 100, beyond, np.where(z < -30, below, inside))


Mechanism: TypeAlias = OptimalNoise | GeometricNoise | StaircaseNoise | GaussianNoise
MECHANISMS: dict[str, type[Mechanism]] = {
    each.name: each for each in (OptimalNoise, GeometricNoise, StaircaseNoise, GaussianNoise)
}


def make_mechanism(name: str, epsilon: object, delta: object) -> Mechanism:
    """The mechanism of that name.

    Raises:
        InputError: unknown name, epsilon not above 0, delta outside [0, 1), or a delta that the
            mechanism cannot have.
    """
    if name not in MECHANISMS:
        raise InputError(f"mechanism: {name!r} is unknown, expected one of {', '.join(MECHANISMS)}")
    return MECHANISMS[name](epsilon, delta)
