"""Numbers that files spell out and float64 cannot hold: a whole number is never rounded."""

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT = 2.0**53
"""Below it float64 holds every whole number."""


def is_rounded(text: str) -> bool:
    """Whether a numeral spells every digit of a whole number that no float64 equals.

    `9007199254740993` does; `1.1` and `1e300` are measurements, for which the nearest float64 is
    meant.

    Args:
        text: a numeral that `float` reads.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        return False
    exponent = value.as_tuple().exponent
    spelled = isinstance(exponent, int) and exponent <= 0
    return spelled and value == value.to_integral_value() and Decimal(float(text)) != value


def large(values: NDArray[np.float64]) -> Iterator[tuple[int, ...]]:
    """Places of the values that may have been whole numbers before they were rounded."""
    for place in np.argwhere((np.abs(values) >= EXACT) & np.isfinite(values)):
        yield tuple(int(i) for i in place)


def rounded(exact: NDArray[Any], values: NDArray[np.float64]) -> tuple[int, ...] | None:
    """The first place where an array of integers differs from what became of it, or None.

    Args:
        exact: integers of any type.
        values: the same as float64.
    """
    for place in large(values):
        if int(exact[place]) != int(values[place]):
            return place
    return None
