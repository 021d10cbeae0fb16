"""Comparison, minimum, maximum and equality of integers given as encrypted base-4 digits.

A comparison of digit vectors a and b takes the sign of every digit's difference (a 3-bit table),
then combines the signs in groups of three as 4 x + 2 y + z, whose sign is that of the most
significant non-zero one (a 4-bit table). A minimum then selects every digit with one more 4-bit
table over (a - b + 3) + 7 [a < b]. An equality counts the digits that differ (a 3-bit table each)
and looks whether the count is 0 (one 4-bit table for up to 15 digits). No table is wider than 4
bits.

Functions are traced on arrays of shape (pairs, digits), so one call compares many pairs and the
library spreads them over the cores.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .library import concrete_fhe

Traced = Any
"""An array of integers, or the library's stand-in for an encrypted one."""

MAX_DIGITS = 15
"""Differing digits are counted in one 4-bit table."""

_DIGIT_SPAN = 7
"""Differences of two digits take the values -3..3."""


def _seven_if_negative(value: NDArray[Any]) -> NDArray[Any]:
    return _DIGIT_SPAN * (np.asarray(value) < 0)


def _difference_if_less(value: NDArray[Any]) -> NDArray[Any]:
    value = np.asarray(value)
    return np.where(value >= _DIGIT_SPAN, value - (_DIGIT_SPAN + 3), 0)


def _difference_if_not_less(value: NDArray[Any]) -> NDArray[Any]:
    value = np.asarray(value)
    return np.where(value < _DIGIT_SPAN, value - 3, 0)


def one_if_negative(value: NDArray[Any]) -> NDArray[Any]:
    """The last table of a comparison whose answer is wanted as a bit."""
    return (np.asarray(value) < 0).astype(np.int64)


def _one_if_zero(value: NDArray[Any]) -> NDArray[Any]:
    return (np.asarray(value) == 0).astype(np.int64)


def _one_if_not_zero(value: NDArray[Any]) -> NDArray[Any]:
    return (np.asarray(value) != 0).astype(np.int64)


def _combine(signs: list[Traced], final: Callable[..., Any] = _seven_if_negative) -> Traced:
    """`final` of the most significant non-zero sign: by default 7 if it is negative, else 0."""
    fhe = concrete_fhe()

    while True:
        last = len(signs) <= 3
        combined = []
        for start in range(0, len(signs), 3):
            group = signs[start : start + 3]
            if len(group) == 1 and not last:
                combined.append(group[0])
                continue
            total = group[-1]
            for power, sign in enumerate(reversed(group[:-1]), start=1):
                total = total + sign * 2**power
            combined.append(fhe.univariate(final if last else np.sign)(total))
        if last:
            return combined[0]
        signs = combined


def minimum(a: Traced, b: Traced, keep: int) -> Traced:
    """The last `keep` digits of the smaller of a and b, both of shape (pairs, digits)."""
    fhe = concrete_fhe()

    digits = a.shape[1]
    difference = a - b
    sign = fhe.univariate(np.sign)(difference)
    less = _combine([sign[:, i] for i in range(digits)])
    index = difference[:, digits - keep :] + 3 + less.reshape((a.shape[0], 1))
    return b[:, digits - keep :] + fhe.univariate(_difference_if_less)(index)


def maximum(a: Traced, b: Traced) -> Traced:
    """The larger of a and b, both of shape (pairs, digits)."""
    fhe = concrete_fhe()
    digits = a.shape[1]
    difference = a - b
    sign = fhe.univariate(np.sign)(difference)
    less = _combine([sign[:, i] for i in range(digits)])
    index = difference + 3 + less.reshape((a.shape[0], 1))
    return b + fhe.univariate(_difference_if_not_less)(index)


def less(a: Traced, b: Traced) -> Traced:
    """1 where a < b, else 0, shape (pairs,)."""
    fhe = concrete_fhe()
    sign = fhe.univariate(np.sign)(a - b)
    return _combine([sign[:, i] for i in range(a.shape[1])], one_if_negative)


def equality(a: Traced, b: Traced) -> Traced:
    """1 where all digits agree, else 0, shape (pairs,)."""
    return all_equal(a - b, concrete_fhe())


def all_equal(difference: Traced, fhe: Any) -> Traced:
    """1 where all digits of the last axis are 0, else 0; the axis is gone."""
    differs = fhe.univariate(_one_if_not_zero)(difference)
    return fhe.univariate(_one_if_zero)(np.sum(differs, axis=len(difference.shape) - 1))
