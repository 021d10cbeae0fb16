"""What is done to every feature before anything is computed: the same at every client and query.

A constant factor, or a map of each feature to (x - offset) / spread times that factor. All of it is
public and recorded in the federation's manifest, or in the model.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import attrs
import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import FeatureError, InputError

ScalingKind = Literal["none", "range", "moments", "released"]
"""Features as they are; from public minima and maxima; from sums over all clients' records; from
such sums under noise that hides every record, which are in the clients' books."""
PUBLIC: tuple[ScalingKind, ...] = ("none", "range", "released")
"""Kinds whose constants tell nothing of records that is not in the books."""
SCALINGS: tuple[ScalingKind, ...] = get_args(ScalingKind)


def _numbers(value: Iterable[Any] | None) -> tuple[float, ...] | None:
    return None if value is None else tuple(float(each) for each in value)


@attrs.frozen(kw_only=True)
class Scaling:
    """The map of features; feature j becomes factor (x_j - offsets_j) / spreads_j.

    Attributes:
        kind: where offsets and spreads come from; "none" has neither.
        factor: on all features, finite, above 0.
        offsets: d finite numbers, or None.
        spreads: d finite numbers above 0, or None.

    Raises:
        FeatureError: the factor is out of range.
        InputError: offsets and spreads that do not belong to the kind, or to each other.
    """

    kind: str = "none"
    factor: float = 1.0
    offsets: tuple[float, ...] | None = attrs.field(default=None, converter=_numbers)
    spreads: tuple[float, ...] | None = attrs.field(default=None, converter=_numbers)

    def __attrs_post_init__(self) -> None:
        check_scale(self.factor)
        if self.kind not in SCALINGS:
            raise InputError(f"scaling: {self.kind!r}, expected one of {', '.join(SCALINGS)}")
        if self.kind == "none":
            if self.offsets is not None or self.spreads is not None:
                raise InputError('scaling: "none" has offsets or spreads')
            return
        offsets, spreads = self.offsets or (), self.spreads or ()
        if not offsets or len(offsets) != len(spreads):
            raise InputError(f"scaling: {len(offsets)} offsets and {len(spreads)} spreads")
        if not all(map(math.isfinite, offsets)) or not all(
            math.isfinite(each) and each > 0 for each in spreads
        ):
            raise InputError("scaling: an offset is not finite, or a spread not above 0")

    @property
    def affine(self) -> bool:
        """Whether it does more than multiply all features by one factor."""
        return self.kind != "none"

    def to_json(self) -> dict[str, Any]:
        """Kind, offsets and spreads, JSON types; the factor is kept beside it."""
        return {
            "kind": self.kind,
            "offsets": list(self.offsets or ()),
            "spreads": list(self.spreads or ()),
        }

    @classmethod
    def of_json(cls, content: Mapping[str, Any] | None, factor: float) -> "Scaling":
        """What `to_json` wrote; None stands for the kind "none".

        Raises:
            InputError, KeyError, TypeError, ValueError: it did not.
        """
        if content is None:
            return cls(factor=factor)
        return cls(
            kind=content["kind"],
            factor=factor,
            offsets=content["offsets"] or None,
            spreads=content["spreads"] or None,
        )

    def check_width(self, n_features: int, *, where: str) -> None:
        """Raises FeatureError unless it is of so many features."""
        if self.offsets is not None and len(self.offsets) != n_features:
            raise FeatureError(
                f"{where}: {n_features} features, the scaling has {len(self.offsets)}; scale with"
                " constants of the same features"
            )


Scale: TypeAlias = float | Scaling
"""A constant factor alone, or a scaling."""


def scaling_of(scale: Scale) -> Scaling:
    """A factor as a scaling; raises FeatureError where it is out of range."""
    return scale if isinstance(scale, Scaling) else Scaling(factor=float(scale))


def ranges_of(X: Any, factor: float = 1.0) -> Scaling:
    """The scaling that takes every feature of public records to [0, 1].

    A feature that does not vary becomes 0.

    Args:
        X: public records, shape (n, d), n >= 1, finite.
        factor: on all features.
    """
    dense = X if isinstance(X, np.ndarray) else X.toarray()
    low, high = dense.min(axis=0).astype(np.float64), dense.max(axis=0).astype(np.float64)
    return range_scaling(low, high, factor)


def range_scaling(low: NDArray[np.float64], high: NDArray[np.float64], factor: float) -> Scaling:
    """The scaling that takes [low_j, high_j] to [0, 1]; a range of one point to 0.

    Raises:
        InputError: a range is not finite, or ends below its start.
    """
    wide = high - low
    if not np.isfinite(wide).all() or (wide < 0).any():
        raise InputError("scaling: a public range is not finite, or ends below its start")
    spreads = np.where(wide > 0, wide, 1.0)
    return Scaling(kind="range", factor=factor, offsets=low.tolist(), spreads=spreads.tolist())


def outside(X: Any, scaling: Scaling) -> int:
    """Entries outside the public ranges of a scaling of the kind "range"; 0 of other kinds."""
    if scaling.kind != "range":
        return 0
    dense = X if isinstance(X, np.ndarray) else X.toarray()
    low = np.array(scaling.offsets)
    high = low + np.array(scaling.spreads)
    return int(np.count_nonzero((dense < low) | (dense > high)))


def check_scale(factor: float) -> None:
    """Refuses a constant factor on all features that is not finite and above 0.

    Raises:
        FeatureError: it is not.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise FeatureError(f"scale is {factor}; give a finite number above 0 (--scale)")


def scaled_features(X: Any, scale: Scale, dtype: type[np.floating[Any]], *, where: str) -> Any:
    """Features as they are computed with: scaled, in their type.

    Training and measures sum squares, so the sum of all squares must fit the type, and not be zero
    where a feature is not.

    Args:
        X: shape (n, d), float32 or float64, finite; dense or scipy CSR. A scaling with offsets
            makes it dense.
        scale: a constant factor, finite and above 0, or a scaling.
        dtype: `np.float32` or `np.float64`.
        where: whose features they are, and the file, for messages.

    Raises:
        FeatureError: the factor is out of range, a scaling is of another number of features, a
            scaled feature is too large for the type, or all become zero.
    """
    scaling = scaling_of(scale)
    scaling.check_width(X.shape[1], where=where)
    # What overflows or vanishes is refused below, in words.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = mapped_features(X, scaling, dtype)
        values, given = _values(found), _values(X)
        largest = dtype(np.max(np.abs(values), initial=0))
        vanished = largest * largest == 0 and np.any(given) and not scaling.affine
    limit = math.sqrt(float(np.finfo(dtype).max) / (4 * max(math.prod(X.shape), 1)))
    name = np.dtype(dtype).name
    if not largest <= limit:
        row, column = _first_above(found, limit)
        how = "scaled" if scaling.affine else f"times the scale {scaling.factor:g}"
        raise FeatureError(
            f"{where}: feature {column} of record {row} (both from 0) is {X[row, column]:.6g},"
            f" {how} above {limit:.2g}, with which sums of squares overflow {name}; correct it or"
            " give a smaller --scale"
        )
    if vanished:
        raise FeatureError(
            f"{where}: features of at most {np.max(np.abs(given)):.3g}, times the scale"
            f" {scaling.factor:g}, are all zero in squares of {name}; give a larger --scale"
        )
    return found


def mapped_features(X: Any, scaling: Scaling, dtype: type[np.floating[Any]]) -> Any:
    """As `scaled_features`, and nothing is checked."""
    if not scaling.affine:
        return X.astype(dtype) * dtype(scaling.factor)
    dense = X if isinstance(X, np.ndarray) else X.toarray()
    # In float64 whatever the features are: an offset must not take their digits.
    found = dense.astype(np.float64) - np.array(scaling.offsets)
    found *= scaling.factor / np.array(scaling.spreads)
    return found.astype(dtype)


def _values(X: Any) -> NDArray[Any]:
    values: NDArray[Any] = X if isinstance(X, np.ndarray) else X.data
    return values


def _first_above(X: Any, limit: float) -> tuple[int, int]:
    """Place of the first entry whose size is not at most a limit, or of the largest."""
    if isinstance(X, np.ndarray):
        rows, columns = np.nonzero(X)
        values = X[rows, columns]
    else:
        entries = X.tocoo()
        rows, columns, values = entries.row, entries.col, entries.data
    above = np.flatnonzero(~(np.abs(values) <= limit))
    i = int(above[0]) if above.size else int(np.argmax(np.abs(values)))
    return int(rows[i]), int(columns[i])
