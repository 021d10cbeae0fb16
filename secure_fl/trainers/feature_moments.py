"""Means and deviations of all clients' features, by one sum.

The sum is exact: every client's totals are whole numbers of a tiny unit, sent digit by digit, so
that masks, another order of the clients or an offset of the features change no bit of the result.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from secure_fl.data import Dataset, Scaling, TargetSet
from secure_fl.errors import FeatureError
from secure_fl.federation import Client, Federation, SecureAggregation, Tree, client_step

DIGIT_BITS, DIGITS = 36, 20
"""A total is below 2^360, in units of 2^-360."""
UNIT = Fraction(2) ** (-DIGIT_BITS * DIGITS // 2)
POWERS = 2
"""Of features that are summed: for means and deviations."""
LARGEST = 2.0**80
"""Of a feature, so that totals of squares of 2^40 records have room by far."""
NO_SPREAD = 2.0**-44
"""A deviation below this part of the mean is the rounding of equal numbers."""

Spread = Literal["moments", "floored", "common"]
"""What a feature is divided by: its own deviation; that, but at least the median of all features'
deviations; one number, the root of the mean of their squares.

Own deviations make features of other units alike, and a feature that hardly ever varies (a pixel at
the rim, a rare word) as loud as all others. The median leaves it as quiet as it is. One number is
for features of one unit, such as pixels."""
SPREADS: tuple[Spread, ...] = get_args(Spread)


@client_step
def local_feature_moments(client: Client) -> Tree:
    """Records, and sums of the first POWERS powers of features, as `feature_digits` has them."""
    X = client.features
    return feature_digits(X if isinstance(X, np.ndarray) else X.toarray())


def feature_digits(X: NDArray[Any]) -> NDArray[np.float64]:
    """Digits of the number of records and of every feature's power sums.

    Args:
        X: shape (n, d), finite.

    Returns:
        Shape (1 + POWERS d, DIGITS), the features of one power together.

    Raises:
        FeatureError: a feature is larger than LARGEST.
    """
    rows = X.astype(np.float64)
    if np.abs(rows).max() > LARGEST:
        raise FeatureError(
            f"features of up to {np.abs(rows).max():.3g}, moments take {LARGEST:.3g} at most;"
            " correct them, or give --scaling range or none"
        )
    n, middle = len(rows), rows.mean(axis=0)
    rows -= middle
    about = [np.power(rows, k).sum(axis=0).tolist() for k in range(1, POWERS + 1)]
    columns = [
        _power_sums(Fraction(m), [Fraction(n), *map(Fraction, own)])
        for m, *own in zip(middle.tolist(), *about, strict=True)
    ]
    totals = [column[k] for k in range(POWERS) for column in columns]
    return np.array([_digits(each) for each in (Fraction(n), *totals)])


def _power_sums(middle: Fraction, about: list[Fraction]) -> list[Fraction]:
    """Sums of powers 1 to POWERS about 0 from those of powers 0 to POWERS about another point."""
    return [
        sum((math.comb(k, i) * middle ** (k - i) * about[i] for i in range(k + 1)), Fraction(0))
        for k in range(1, POWERS + 1)
    ]


def _digits(value: Fraction) -> list[float]:
    """The digits of a total, lowest first, all of its sign."""
    whole = abs(round(value / UNIT))
    sign = -1.0 if value < 0 else 1.0
    mask = (1 << DIGIT_BITS) - 1
    return [sign * ((whole >> (DIGIT_BITS * i)) & mask) for i in range(DIGITS)]


def _total(digits: NDArray[np.float64]) -> Fraction:
    return UNIT * sum(int(each) << (DIGIT_BITS * i) for i, each in enumerate(digits.tolist()))


def scaling_of_moments(
    digits: NDArray[np.float64],
    factor: float,
    *,
    unit_rows: bool = False,
    spread: Spread = "moments",
) -> Scaling:
    """The scaling to mean 0 and deviation 1, or below; a feature that does not vary becomes 0.

    Args:
        digits: sum over clients of what `feature_digits` gives.
        factor: on all features.
        unit_rows: divide all by one number more, so that records have a mean squared length of 1.
        spread: what features are divided by.
    """
    means, deviations = _means_and_deviations(digits)
    return scaling_by(means, deviations, factor, unit_rows=unit_rows, spread=spread)


def scaling_by(
    means: Sequence[float],
    deviations: NDArray[np.float64],
    factor: float,
    *,
    unit_rows: bool,
    spread: Spread,
    kind: str = "moments",
) -> Scaling:
    """The scaling by means and deviations, (d,) each, whatever they come from.

    Args:
        kind: of the scaling; the others are as `scaling_of_moments` has them.
    """
    varying = deviations > 0
    spreads = np.ones(len(deviations))
    if varying.any():
        own = deviations[varying]
        spreads[varying] = {
            "moments": own,
            "floored": np.maximum(own, np.median(own)),
            "common": np.full(len(own), np.sqrt(np.mean(np.square(own)))),
        }[spread]
        if unit_rows:
            # What does not vary is 0 whatever it is divided by.
            spreads *= np.sqrt(np.sum(np.square(deviations / spreads)))
    return Scaling(kind=kind, factor=factor, offsets=tuple(means), spreads=spreads.tolist())


def _means_and_deviations(digits: NDArray[np.float64]) -> tuple[list[float], NDArray[np.float64]]:
    """Of every feature, (d,) each; the deviation is 0 where only rounding is left of it."""
    n, *totals = [_total(each) for each in digits]
    d = len(totals) // POWERS
    means, deviations = [], []
    for j in range(d):
        sums = [n, *(totals[k * d + j] for k in range(POWERS))]
        mean = sums[1] / n
        second = _power_sums(-mean, sums)[1] / n
        deviation = math.sqrt(max(second, Fraction(0)))
        means.append(float(mean))
        deviations.append(deviation if deviation > NO_SPREAD * abs(means[-1]) else 0.0)
    return means, np.array(deviations)


def summed_moments(clients: Sequence[Dataset] | Sequence[TargetSet]) -> NDArray[np.float64]:
    """The sum over clients of what `feature_digits` gives, masked.

    One client's sum is its own, and not masked.

    Raises:
        FeatureError: a feature is too large.
    """
    members = [Client(each.name, each.X, each.y) for each in clients]
    masked = SecureAggregation(clip=2.0**DIGIT_BITS, outside="error")
    with Federation(members, aggregation=masked if len(members) > 1 else None) as fed:
        total: NDArray[np.float64] = fed.sum(local_feature_moments)
    return total
