"""Fixed scaling of features: public constants, recorded in the federation's manifest."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import FeatureError, FormatError

_KEYS = {"factor", "lower", "upper"}


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
                bounds, or a scaled value overflows.
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
    return float(value)


def _reals(value: Any, source: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise FormatError(f"{source}: scaling bounds are not a list; restore the file")
    return tuple(_real(each, source) for each in value)
