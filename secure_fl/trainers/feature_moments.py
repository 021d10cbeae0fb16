"""Means and deviations of all clients' features, by one sum.

The sum is exact: every client's totals are whole numbers of a tiny unit, sent digit by digit, so
that masks, another order of the clients or an offset of the features change no bit of the result.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.data import Dataset, Scaling
from secure_fl.errors import FeatureError
from secure_fl.federation import Client, Federation, SecureAggregation, Tree, client_step

DIGIT_BITS, DIGITS = 36, 20
"""A total is below 2^360, in units of 2^-360."""
UNIT = Fraction(2) ** (-DIGIT_BITS * DIGITS // 2)
LARGEST = 2.0**150
"""Of a feature, so that totals of squares of 2^40 records have room."""
NO_SPREAD = 2.0**-44
"""A deviation below this part of the mean is the rounding of equal numbers."""


@client_step
def local_feature_moments(client: Client) -> Tree:
    """Records, sums and sums of squares of the features, as digits, shape (1 + 2 d, DIGITS)."""
    X = client.features
    return feature_digits(X if isinstance(X, np.ndarray) else X.toarray())


def feature_digits(X: NDArray[Any]) -> NDArray[np.float64]:
    """What `local_feature_moments` returns, of records (n, d).

    Raises:
        FeatureError: a feature is larger than LARGEST.
    """
    rows = X.astype(np.float64)
    if np.abs(rows).max() > LARGEST:
        raise FeatureError(
            f"features of up to {np.abs(rows).max():.3g}, moments take {LARGEST:.3g} at most;"
            " correct them, or give --scaling range or none"
        )
    n = len(rows)
    middle = rows.mean(axis=0)
    rows -= middle
    first, second = rows.sum(axis=0), np.square(rows).sum(axis=0)
    totals = [Fraction(n)]
    squares = []
    for m, r, s in zip(*_exact(middle, first, second), strict=True):
        totals.append(n * m + r)
        squares.append(s + 2 * m * r + n * m * m)
    return np.array([_digits(each) for each in (*totals, *squares)])


def _digits(value: Fraction) -> list[float]:
    """The digits of a total, lowest first, all of its sign."""
    whole = abs(round(value / UNIT))
    sign = -1.0 if value < 0 else 1.0
    mask = (1 << DIGIT_BITS) - 1
    return [sign * ((whole >> (DIGIT_BITS * i)) & mask) for i in range(DIGITS)]


def _total(digits: NDArray[np.float64]) -> Fraction:
    return UNIT * sum(int(each) << (DIGIT_BITS * i) for i, each in enumerate(digits.tolist()))


def scaling_of_moments(
    digits: NDArray[np.float64], factor: float, *, unit_rows: bool = False
) -> Scaling:
    """The scaling to mean 0 and deviation 1; a feature that does not vary becomes 0.

    Args:
        digits: sum over clients of what `feature_digits` gives, shape (1 + 2 d, DIGITS).
        factor: on all features.
        unit_rows: to equal deviations so that records have a mean squared length of 1 instead.
    """
    n, *totals = [_total(each) for each in digits]
    d = len(totals) // 2
    means = [each / n for each in totals[:d]]
    deviations = [
        math.sqrt(max(square / n - mean * mean, Fraction(0)))
        for mean, square in zip(means, totals[d:], strict=True)
    ]
    varies = [
        deviation > NO_SPREAD * abs(mean) for mean, deviation in zip(means, deviations, strict=True)
    ]
    length = math.sqrt(max(sum(varies), 1)) if unit_rows else 1.0
    spreads = [
        length * deviation if some else 1.0
        for deviation, some in zip(deviations, varies, strict=True)
    ]
    return Scaling(kind="moments", factor=factor, offsets=map(float, means), spreads=spreads)


def moments_scaling(
    clients: Sequence[Dataset], factor: float = 1.0, *, unit_rows: bool = False
) -> Scaling:
    """The scaling to mean 0 and deviation 1 over all clients' records, by one masked sum.

    One client's sum is its own, and not masked.

    Raises:
        FeatureError: a feature is too large.
    """
    members = [Client(each.name, each.X, each.y) for each in clients]
    masked = SecureAggregation(clip=2.0**DIGIT_BITS, outside="error")
    with Federation(members, aggregation=masked if len(members) > 1 else None) as fed:
        return scaling_of_moments(fed.sum(local_feature_moments), factor, unit_rows=unit_rows)


def _exact(*rows: NDArray[np.float64]) -> list[list[Fraction]]:
    return [[Fraction(each) for each in row.tolist()] for row in rows]
