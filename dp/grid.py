"""The public integer grid that every released value lies on.

Floating-point noise can be attacked through its low bits, and an output that equals the input bit
for bit is recognisable. So entries are clamped to public bounds, rounded to multiples of a public
step, and all noise is integer. Rounding is exact, half up: two entries at most d apart are at most
ceil(d / step) steps apart afterwards, in real numbers and here.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from dp.errors import InputError
from dp.exact import IntArray

Array = NDArray[np.float64]

LARGEST_CODE = 2**45
"""So that a code plus noise is far from overflow and times the step exact to double precision."""
DERIVED = ("data", "auto", "minmax", "range")
"""Names under which other software takes bounds from the data."""


@frozen
class Grid:
    """Multiples of `step` inside the bounds.

    Attributes:
        low: lower clamping bound, public.
        high: upper clamping bound, public, above low.
        step: public grid step g, above 0.
    """

    low: float
    high: float
    step: float

    @classmethod
    def make(cls, bounds: object, step: object) -> "Grid":
        """Checks bounds and step.

        Args:
            bounds: (low, high), fixed without looking at the private matrix.
            step: grid step in the units of the features.

        Raises:
            InputError: bounds missing, derived from data, reversed or not finite; a step that is
                not above 0, is larger than the range, or so small that integers overflow.
        """
        low, high = check_bounds(bounds)
        if not _is_number(step) or not step > 0:  # type: ignore[operator]  # a number by then
            raise InputError(f"grid: found {step!r}, expected a finite step above 0")
        grid = cls(low, high, float(step))  # type: ignore[arg-type]  # a number by then
        if max(abs(low), abs(high)) / grid.step > LARGEST_CODE:
            raise InputError(
                f"grid: step {grid.step:g} cuts [{low:g}, {high:g}] so finely that integers"
                f" overflow (at most 2^45 steps from 0); take a larger step"
            )
        if grid.levels < 1:
            raise InputError(
                f"grid: step {grid.step:g} leaves no two multiples inside [{low:g}, {high:g}];"
                " take a step smaller than the range"
            )
        return grid

    @property
    def first(self) -> int:
        """Code of the smallest multiple inside the bounds."""
        return math.ceil(Fraction(self.low) / Fraction(self.step))

    @property
    def last(self) -> int:
        """Code of the largest multiple inside the bounds."""
        return math.floor(Fraction(self.high) / Fraction(self.step))

    @property
    def levels(self) -> int:
        """Steps between the first and the last code: no entry can move further."""
        return self.last - self.first

    def sensitivity(self, distance: float) -> int:
        """Steps an entry can move when it moves by `distance`: ceil(d / step), at most levels."""
        return min(math.ceil(Fraction(distance) / Fraction(self.step)), self.levels)

    def encode(self, X: Array) -> IntArray:
        """Codes of the entries, rounded half up and clamped, the shape of X."""
        quotient = np.clip(X, self.low, self.high) / self.step
        codes = np.floor(quotient + 0.5).astype(np.int64)
        # A quotient this near a half could have been rounded across it.
        near = np.abs(quotient - np.floor(quotient) - 0.5) <= 1e-15 * (1 + np.abs(quotient))
        for place in zip(*np.nonzero(near), strict=True):
            entry = Fraction(float(np.clip(X[place], self.low, self.high)))
            codes[place] = math.floor(entry / Fraction(self.step) + Fraction(1, 2))
        return np.clip(codes, self.first, self.last)

    def decode(self, codes: IntArray) -> Array:
        """Multiples of the step."""
        return codes * self.step

    def nearest(self, X: Array) -> Array:
        """The nearest multiples of the step, not clamped; for released values only."""
        return np.rint(X / self.step) * self.step + 0.0  # no signed zeros


def clip_rows(codes: IntArray, largest: int) -> IntArray:
    """Shrinks rows towards 0 until their squared L2 norm is at most `largest`, exactly.

    Args:
        codes: shape (N, n).
        largest: squared norm in squared steps, at least 0.
    """
    clipped = codes.copy()
    norms = [sum(c * c for c in row) for row in codes.tolist()]
    for i, norm in enumerate(norms):
        factor = 1.0
        while norm > largest:
            factor *= min(math.sqrt(largest / norm), 1 - 2.0**-40)
            clipped[i] = np.trunc(codes[i] * factor).astype(np.int64)
            norm = sum(c * c for c in clipped[i].tolist())
    return clipped


def matrix(X: object, name: str) -> Array:
    """X as a finite float64 matrix.

    Raises:
        InputError: not two-dimensional, empty, not numbers, NaN or infinity.
    """
    try:
        values: NDArray[Any] = np.asarray(X)
        if values.dtype.kind not in "fiub":
            raise TypeError(f"dtype {values.dtype}")
        values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: not a matrix of numbers ({error})") from error
    if values.ndim != 2:
        raise InputError(f"{name}: found {values.ndim} dimension(s), expected 2 (rows, columns)")
    if values.size == 0:
        raise InputError(
            f"{name}: empty, shape {values.shape}; a release needs at least one row and one column"
        )
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(f"{name}: row {row} holds NaN or infinity; remove or repair the record")
    return values


def check_bounds(bounds: object) -> tuple[float, float]:
    """Public clamping bounds (low, high).

    Raises:
        InputError: missing, derived from data, reversed or not finite.
    """
    if bounds is None:
        raise InputError(
            "bounds: missing; give (low, high) from public knowledge, e.g. what the encoder can"
            " return: the data's own minimum and maximum would reveal two entries exactly"
        )
    if callable(bounds) or (isinstance(bounds, str) and bounds in DERIVED):
        raise InputError(
            "bounds: derived from the data; the minimum and maximum are entries of the private"
            " matrix and would be published unprotected; give (low, high) from public knowledge"
        )
    pair = tuple(bounds) if isinstance(bounds, tuple | list | np.ndarray) else ()
    if len(pair) != 2 or not all(_is_number(b) for b in pair):
        raise InputError(f"bounds: found {bounds!r}, expected two finite numbers (low, high)")
    low, high = float(pair[0]), float(pair[1])
    if not low < high:
        raise InputError(f"bounds: found [{low:g}, {high:g}], the lower must be below the upper")
    return low, high


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return math.isfinite(value)
