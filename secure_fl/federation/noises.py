"""Integer noise that adds up over clients: discrete Gaussian parts, or Skellam ones.

A sum of discrete Gaussians is not a discrete Gaussian (Kairouz, Liu, Steinke 2021, "The distributed
discrete Gaussian mechanism for federated learning with secure aggregation"), but on a fine grid it
costs what continuous noise costs: `dp.gaussian_parts` has the proof. Skellam parts add up to
exactly what was accounted for (Agarwal, Kairouz, Liu 2021), for a bound on Renyi divergences that
holds at whole orders alone.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from dp import Gaussian, InputError
from dp.exact import RandomSource
from dp.gaussian_parts import continuous_multiplier
from dp.samplers import DiscreteGaussian
from dp.skellam import Skellam, skellam_multiplier
from secure_fl.errors import PrivacyError

NoiseName = Literal["gaussian", "skellam"]


@frozen
class IntegerNoise:
    """One kind of noise.

    Attributes:
        name: of the kind.
        largest: standard deviation, in grid steps, that it is drawn up to.
        draw: (sigma, n, source of random bytes) to n draws of at least that deviation, int64.
        multiplier: (L2 sensitivity in grid steps, sigma of a part, fewest parts, most parts,
            dimension) to the noise multiplier of one Gaussian that is no more private.
        whole_orders: whether that holds at whole Renyi orders alone.
    """

    name: NoiseName
    largest: float
    draw: Callable[[float, int, RandomSource], NDArray[np.int64]]
    multiplier: Callable[[float, float, int, int, int], float]
    whole_orders: bool

    def event(self, multiplier: float, steps: int = 1) -> Gaussian:
        """Sums under such noise, for the books."""
        whole = self.whole_orders
        return Gaussian(multiplier, steps=steps, discrete=whole, whole_orders=whole)


def distributed_multiplier(
    sensitivity: float, sigma: float, fewest: int, most: int, dimension: int
) -> float:
    """Noise multiplier of one Gaussian that is no more private than the sum of the parts.

    Args:
        sensitivity: L2 norm of a contribution in grid steps.
        sigma: of one client's part in grid steps, at least 4.
        fewest: parts that are surely in the sum, at least 1.
        most: parts that may be in it; more only add independent noise.
        dimension: entries of the vector; any number.

    Raises:
        PrivacyError: sigma below 4, which `dp.gaussian_parts` does not cover.
    """
    try:
        return continuous_multiplier(sensitivity, sigma, fewest)
    except InputError as error:
        raise PrivacyError(f"{error} (64 bits)") from None


@lru_cache(maxsize=16)
def part_noise(sigma: float) -> DiscreteGaussian:
    """Noise of at least that scale, in grid steps."""
    # Upwards: never less noise than was booked.
    return DiscreteGaussian(Fraction(math.ceil(sigma * 2**20), 2**20))


@lru_cache(maxsize=16)
def _skellam(sigma: float) -> Skellam:
    return Skellam.of_scale(sigma)


def _skellam_multiplier(
    sensitivity: float, sigma: float, fewest: int, most: int, dimension: int
) -> float:
    # Of integers, no L1 norm is above the squared L2 norm. More parts only add independent noise.
    l1 = min(math.sqrt(dimension) * sensitivity, sensitivity**2)
    return skellam_multiplier(sensitivity, l1, fewest * sigma**2)


NOISES: dict[NoiseName, IntegerNoise] = {
    "gaussian": IntegerNoise(
        "gaussian",
        2.0**40,
        lambda sigma, n, source: part_noise(sigma).draw(n, source),
        distributed_multiplier,
        whole_orders=False,
    ),
    "skellam": IntegerNoise(
        "skellam",
        2.0**16,
        lambda sigma, n, source: _skellam(sigma).draw(n, source),
        _skellam_multiplier,
        whole_orders=True,
    ),
}
