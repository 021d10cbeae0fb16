"""The constant factor on all features: public, and recorded in the federation's manifest."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import FeatureError


def check_scale(factor: float) -> None:
    """Refuses a constant factor on all features that is not finite and above 0.

    Raises:
        FeatureError: it is not.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise FeatureError(f"scale is {factor}; give a finite number above 0 (--scale)")


def scaled_features(X: Any, factor: float, dtype: type[np.floating[Any]], *, where: str) -> Any:
    """Features times a constant, in the type that they are computed with.

    Training and measures sum squares, so the sum of all squares must fit the type, and not be zero
    where a feature is not.

    Args:
        X: shape (n, d), float32 or float64, finite; dense or scipy CSR.
        factor: finite, above 0.
        dtype: `np.float32` or `np.float64`.
        where: whose features they are, and the file, for messages.

    Raises:
        FeatureError: the factor is out of range, a scaled feature is too large for the type, or
            all become zero.
    """
    check_scale(factor)
    # What overflows or vanishes is refused below, in words.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = X.astype(dtype) * dtype(factor)
        values, given = _values(found), _values(X)
        largest = dtype(np.max(np.abs(values), initial=0))
        vanished = largest * largest == 0 and np.any(given)
    limit = math.sqrt(float(np.finfo(dtype).max) / (4 * max(math.prod(X.shape), 1)))
    name = np.dtype(dtype).name
    if not largest <= limit:
        row, column, value = _first_above(X, limit / factor)
        raise FeatureError(
            f"{where}: feature {column} of record {row} (both from 0) is {value:.6g}, times the"
            f" scale {factor:g} above {limit:.2g}, with which sums of squares overflow {name};"
            " correct it or give a smaller --scale"
        )
    if vanished:
        raise FeatureError(
            f"{where}: features of at most {np.max(np.abs(given)):.3g}, times the scale"
            f" {factor:g}, are all zero in squares of {name}; give a larger --scale"
        )
    return found


def _values(X: Any) -> NDArray[Any]:
    values: NDArray[Any] = X if isinstance(X, np.ndarray) else X.data
    return values


def _first_above(X: Any, limit: float) -> tuple[int, int, float]:
    """Place and value of the first entry above a limit, or of the largest."""
    if isinstance(X, np.ndarray):
        rows, columns = np.nonzero(X)
        values = X[rows, columns]
    else:
        entries = X.tocoo()
        rows, columns, values = entries.row, entries.col, entries.data
    above = np.flatnonzero(np.abs(values) > limit)
    i = int(above[0]) if above.size else int(np.argmax(np.abs(values)))
    return int(rows[i]), int(columns[i]), float(values[i])
