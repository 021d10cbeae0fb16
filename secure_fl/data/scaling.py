"""Fixed scaling of features: public constants, recorded in the federation's manifest."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import FeatureError, FormatError

_KEYS = {"factor", "lower", "upper"}


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


@dataclass(frozen=True)
class FixedScaling:
    """x -> factor * (clip(x, lower, upper) - lower) / (upper - lower), or factor * x.

    The constants must be public (known limits of the measurement, public data, or a
    differentially private release): computed from private records they would leak.

    Attributes:
        factor: finite and not 0.
        lower: d public lower bounds, or None; features are clipped to the bounds.
        upper: d public upper bounds, each above its lower one; None together with `lower`.

    Raises:
        FeatureError: a constant is out of its range, or only one bound is given.
    """

    factor: float = 1.0
    lower: tuple[float, ...] | None = None
    upper: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.factor) or self.factor == 0:
            raise FeatureError(f"scaling factor is {self.factor}; give a finite number, not 0")
        if (self.lower is None) != (self.upper is None):
            raise FeatureError("scaling has one bound only; give both lower and upper, or neither")
        if self.lower is None or self.upper is None:
            return
        if not self.lower or len(self.lower) != len(self.upper):
            raise FeatureError(
                f"scaling has {len(self.lower)} lower and {len(self.upper)} upper bounds; give one"
                " of each a feature"
            )
        for i, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise FeatureError(
                    f"scaling bounds of feature {i} are [{low}, {high}]; give finite bounds, the"
                    " lower one first"
                )

    def apply(self, X: Any) -> Any:
        """Scaled copy of the features, of the same type.

        Args:
            X: shape (n, d), float32 or float64; scipy CSR works without bounds.

        Raises:
            FeatureError: the bounds are for another d, the features are sparse and there are
                bounds, a scaled value overflows, or all become zero.
        """
        # An overflow is refused below, in words.
        with np.errstate(over="ignore"):
            bounded = self.lower is not None
            scaled = self._bounded(X) if bounded else X * X.dtype.type(self.factor)
        values = scaled if isinstance(scaled, np.ndarray) else scaled.data
        if not np.isfinite(values).all():
            raise FeatureError(
                f"scaling by {self.factor} overflows {X.dtype}; use a smaller factor"
            )
        if not bounded and not values.any() and _values(X).any():
            raise FeatureError(
                f"scaling by {self.factor} leaves only zeros in {X.dtype}; use a larger factor"
            )
        return scaled

    def _bounded(self, X: Any) -> NDArray[Any]:
        assert self.lower is not None
        assert self.upper is not None
        if not isinstance(X, np.ndarray):
            raise FeatureError("scaling with bounds would fill sparse features; read them dense")
        if X.shape[1] != len(self.lower):
            raise FeatureError(
                f"{X.shape[1]} features, the scaling has bounds for {len(self.lower)}; give bounds"
                " for each feature"
            )
        low, high = np.array(self.lower), np.array(self.upper)
        unit = (np.clip(X, low, high) - low) / (high - low)
        return (self.factor * unit).astype(X.dtype)

    def to_json(self) -> dict[str, Any]:
        """The constants as JSON types; bounds are null where there are none."""
        return {
            "factor": self.factor,
            "lower": None if self.lower is None else list(self.lower),
            "upper": None if self.upper is None else list(self.upper),
        }

    @classmethod
    def from_json(cls, value: Any, source: str = "federation.json") -> "FixedScaling":
        """Reads what `to_json` wrote.

        Args:
            value: parsed JSON.
            source: the file, for errors.

        Raises:
            FormatError: other keys or types, or a constant out of its range; names the file.
        """
        if not isinstance(value, Mapping) or set(value) != _KEYS:
            raise FormatError(
                f"{source}: scaling is not {{factor, lower, upper}}; restore the file"
            )
        factor = _real(value["factor"], source)
        lower, upper = _reals(value["lower"], source), _reals(value["upper"], source)
        try:
            return cls(factor, lower, upper)
        except FeatureError as error:
            raise FormatError(f"{source}: {error}") from None


def _real(value: Any, source: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{source}: scaling holds {value!r}, not a number; restore the file")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if number != value:
        raise FormatError(f"{source}: scaling holds an integer beyond float64; restore the file")
    return number


def _reals(value: Any, source: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise FormatError(f"{source}: scaling bounds are not a list; restore the file")
    return tuple(_real(each, source) for each in value)
