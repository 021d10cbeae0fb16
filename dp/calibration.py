"""The least noise with which sampled Gaussian steps keep a promise."""

from collections.abc import Callable
from functools import lru_cache

from dp.accounting import Gaussian, compose_gaussians
from dp.errors import InputError
from dp.mechanisms import check_delta, check_epsilon

SMALLEST_MULTIPLIER = 0.25
"""Below it a step alone costs more than any useful epsilon, and the accountants fail."""
LARGEST_MULTIPLIER = 2.0**14
PRECISION = 1e-3


@lru_cache(maxsize=256)
def noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    sample_rate: float,
    steps: int,
    beside: tuple[Gaussian, ...] = (),
) -> float:
    """Noise multiplier of steps that, with the events beside them, cost at most epsilon.

    What `dp.accounting` says of the result never exceeds epsilon; it is the least such multiplier
    to about a relative 1e-3.

    Args:
        epsilon: above 0.
        delta: in (0, 1).
        sample_rate: of Poisson sampling, in (0, 1].
        steps: at least 1.
        beside: other Gaussian events within the same epsilon.

    Raises:
        InputError: an argument out of range, or no multiplier up to 2^14 is enough.
    """
    check_epsilon(epsilon)
    if check_delta(delta) == 0:
        raise InputError("delta: found 0, Gaussian noise needs delta above 0")

    def events(multiplier: float) -> list[Gaussian]:
        return [*beside, Gaussian(multiplier, sample_rate, steps)]

    return _least(lambda each: compose_gaussians(events(each), delta).epsilon, epsilon)


def _least(spent: Callable[[float], float], epsilon: float) -> float:
    """The multiplier at which a falling function reaches epsilon, from above, by bisection."""
    low, high = 0.0, 1.0
    while spent(high) > epsilon:
        low, high = high, _bounded(2 * high, epsilon)
    while high - low > PRECISION * high and high > SMALLEST_MULTIPLIER:
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) > epsilon else (low, middle)
    return high


def _bounded(multiplier: float, epsilon: float) -> float:
    if multiplier > LARGEST_MULTIPLIER:
        raise InputError(
            f"epsilon: {epsilon:g} needs a noise multiplier above {LARGEST_MULTIPLIER:g}; take a"
            " larger epsilon, fewer steps or a smaller sample rate"
        )
    return multiplier
