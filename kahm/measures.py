"""Space folding measures: how far a point must move to reach its image (kahm.txt, eqs. 102-104).

Every function works on squared norms, so that a caller who knows only inner products can use it.
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from kahm._typing import Array
from kahm.errors import InputError

Measure = Literal["folding", "product", "minimum", "maximum", "cosine", "euclidean"]
"""Options 1 to 4 of eq. (102), the two parts alone, the second being remark 12 made bounded."""

MEASURES: tuple[Measure, ...] = get_args(Measure)


def euclidean_measure(distance_sq: Array) -> Array:
    """Eq. (103) from squared distances; in [0, 1]."""
    return -np.expm1(-np.sqrt(distance_sq))


def half_sine_sq(distance_sq: Array, point_sq: Array, image_sq: Array) -> Array:
    """sin^2 of half the angle between x and A(x), from the squared sides of their triangle.

    |x - y|^2 = (|x| - |y|)^2 + 4 |x||y| sin^2(t/2). Small angles survive this, unlike arccos of a
    rounded cosine. With a zero vector the angle is undefined and is read as a right one, or as 0
    when point and image coincide.
    """
    point, image = np.sqrt(point_sq), np.sqrt(image_sq)
    sides = 4.0 * point * image
    chord = distance_sq - np.square(point - image)
    undefined = np.where(distance_sq > 0, 0.5, 0.0).astype(chord.dtype)
    half = np.divide(chord, sides, out=undefined, where=sides > 0)
    return np.clip(half, 0.0, 1.0, out=half)


def _root_mean_square(euclidean: Array, cosine: Array) -> Array:
    # Dividing by sqrt(2) printed as 1.4142 would exceed 1; halving inside the root cannot.
    return np.sqrt(0.5 * (np.square(euclidean) + np.square(cosine)))


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "folding": _root_mean_square,
    "product": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
}


def check_measure(measure: str) -> None:
    """Raises InputError unless `measure` is one of MEASURES."""
    if measure not in MEASURES:
        raise InputError(f"measure: {measure!r} is unknown, expected one of {', '.join(MEASURES)}")


def angle_share(half_sine_sq: Array) -> Array:
    """The angle between x and A(x) as a share of pi, in [0, 1], from sin^2 of half of it."""
    share: Array = np.arcsin(np.sqrt(half_sine_sq))
    share *= 2.0 / np.pi
    return share


def combine(distance_sq: Array, angle: Array, measure: Measure) -> Array:
    """The space folding measure of eq. (102).

    Args:
        distance_sq: |x - A(x)|^2, any shape, at least 0.
        angle: between x and A(x), as a share of pi, same shape, in [0, 1].
        measure: which of MEASURES.

    Returns:
        Values in [0, 1], same shape.
    """
    check_measure(measure)
    if measure == "euclidean":
        return euclidean_measure(distance_sq)
    if measure == "cosine":
        return angle
    return _COMBINE[measure](euclidean_measure(distance_sq), angle)


def measure_folds(
    points: Array, images: Array, folds: Array, measure: Measure, floor: Array | float = 0.0
) -> Array:
    """The measure from points, their images and the differences of the two.

    Where all features have a large offset the difference of rounded points and images has lost
    what folding is about, so the caller gives it, computed about the records' mean.

    Args:
        points: x, shape (n, d), float64.
        images: A(x), shape (n, d), float64.
        folds: x - A(x), shape (n, d), float64.
        measure: which of MEASURES.
        floor: what squared distances count at least; one number, or shape (n,).

    Returns:
        Values in [0, 1], shape (n,).
    """
    norms = [np.linalg.norm(vectors, axis=1) for vectors in (points, images, folds)]
    distance_sq = np.maximum(np.square(norms[2]), floor)
    return combine(distance_sq, _angle(points, images, folds, norms), measure)


def _angle(points: Array, images: Array, folds: Array, norms: list[Array]) -> Array:
    """The angle from what stands upright on x in the shorter of image and fold: both hold it."""
    point, image, fold = norms
    unit = np.divide(points, point[:, None], out=np.zeros_like(points), where=(point > 0)[:, None])
    by_image = image <= fold
    shorter = np.where(by_image[:, None], images, folds)
    along = np.sum(shorter * unit, axis=1)
    upright = np.linalg.norm(shorter - along[:, None] * unit, axis=1)
    angle = np.arctan2(upright, np.where(by_image, along, point - along)) / np.pi
    undefined = np.where(fold > 0, 0.5, 0.0)
    return np.where((point > 0) & (image > 0), angle, undefined)
