"""Noise of the clients in a masked sum that hides every record, and its place in the books.

Every client adds its part of discrete Gaussian noise before masking; parts are sized for the fewest
clients that the federation's threshold lets survive. They cost what continuous noise costs
(`dp.gaussian_parts`), and Gaussians of several sums are one whose squared inverse multiplier is the
sum of theirs.
"""

import math
from typing import cast, get_args

import numpy as np
from attrs import frozen

from dp import Event, Gaussian
from secure_fl.errors import InputError
from secure_fl.federation import Federation, PrivacyError
from secure_fl.federation.noises import distributed_multiplier, part_noise
from secure_fl.federation.privacy import TAIL
from secure_fl.federation.steps import NoisySum
from secure_fl.objectives.base import Array, Features, scale_rows
from secure_fl.privacy.promises import Neighbours, record_unit

GRID = 2.0**-20
"""Noise and what it hides are multiples of this."""
RECORDS_CHANGED: dict[Neighbours, float] = {"replace": 2.0, "add-remove": 1.0}
"""Terms by which neighbours' sums over records differ: replaced, one goes and another comes."""


@frozen
class SumNoise:
    """Noise of one sum.

    Attributes:
        sigma: of one client's part, in grid steps.
        multiplier: of the sum as booked: no less noise than the parts' together.
    """

    sigma: float
    multiplier: float

    @classmethod
    def sized(
        cls, fed: Federation, sensitivity: float, size: int, multiplier: float, colluding: int = 0
    ) -> "SumNoise":
        """For a sum over all of this round's participants.

        Args:
            fed: under secure aggregation, so that the server sees no client's smaller noise.
            sensitivity: L2 norm by which neighbouring data sets' exact sums differ, > 0.
            size: numbers in it.
            multiplier: of the noise in the sum over the sensitivity, > 0.
            colluding: clients whose part of the noise the server might learn from them, >= 0.

        Raises:
            PrivacyError: no secure aggregation, or no honest client is surely left.
        """
        if "mask" not in fed.pipeline:
            raise PrivacyError(
                "record-level noise: a server that sees single updates would see too little of it;"
                " give the federation aggregation=SecureAggregation()"
            )
        fewest = fed.threshold - colluding
        if fewest < 1:
            raise PrivacyError(
                f"colluding: found {colluding} of {fed.threshold} clients that are surely left;"
                " raise the threshold"
            )
        sigma = multiplier * _steps(sensitivity, size) / math.sqrt(fewest)
        return cls(sigma, booked(sensitivity, size, sigma, fewest, len(fed.participants)))


def booked(sensitivity: float, size: int, sigma: float, fewest: int, most: int) -> float:
    """Noise multiplier that a sum of the parts is worth; see `distributed_multiplier`."""
    return distributed_multiplier(_steps(sensitivity, size), sigma, fewest, most, size)


def _steps(sensitivity: float, size: int) -> float:
    # Rounding moves each entry of either data set's sum by at most half a step, and the rounding
    # errors of sums of up to 10^6 records stay far below a hundredth of one.
    return sensitivity / GRID + 1.01 * math.sqrt(size)


def checked(neighbours: str) -> Neighbours:
    """Raises InputError unless it is one of `Neighbours`."""
    for known in get_args(Neighbours):
        if neighbours == known:
            return cast(Neighbours, known)
    raise InputError(
        f"adjacency: found {neighbours!r}, expected one of {', '.join(get_args(Neighbours))}"
    )


def event(what: str, norm: float, *multipliers: float, neighbours: Neighbours = "replace") -> Event:
    """Sums with that much noise, as one event."""
    together = 1.0 / math.sqrt(sum(each**-2 for each in multipliers))
    return Event(what, record_unit(norm, neighbours), gaussian=Gaussian(together))


def promised(found: Event, records: int, longest: float, sigma: float) -> NoisySum:
    """What a client that books for itself must know of a sum.

    Args:
        found: what the sum costs.
        records: of the client; what follows from their number stays with the client.
        longest: L2 norm that a record adds at most.
        sigma: of the client's part of the noise, in grid steps.
    """
    return NoisySum(found, records * longest + TAIL * sigma * GRID, GRID)


def with_noise(exact: Array, sigma: float) -> Array:
    """The grid multiples nearest to a client's exact numbers, under its part of the noise.

    The noise is fresh from the operating system: every call is a new release.
    """
    codes = np.rint(exact / GRID).astype(np.int64)
    return (codes + part_noise(sigma).draw(len(codes))) * GRID


def clipped(X: Features, norm: float) -> Features:
    """Rows divided by the norm, or by their own length where that is larger."""
    squares = np.square(X) if isinstance(X, np.ndarray) else X.multiply(X)
    lengths = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    return scale_rows(X, 1.0 / np.maximum(lengths, norm))


def check_task(who: str, norm: float, features: int, outputs: int, *, least: int = 2) -> None:
    """Raises InputError unless norm > 0, features >= 1 and outputs >= least."""
    if not (math.isfinite(norm) and norm > 0) or features < 1 or outputs < least:
        raise InputError(f"{who}: norm {norm}, {features} features, {outputs} classes")
