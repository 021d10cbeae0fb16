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


def combine(distance_sq: Array, half_sine_sq: Array, measure: Measure) -> Array:
    """The space folding measure of eq. (102).

    Args:
        distance_sq: |x - A(x)|^2, any shape, at least 0.
        half_sine_sq: sin^2 of half the angle between x and A(x), same shape, in [0, 1].
        measure: which of MEASURES.

    Returns:
        Values in [0, 1], same shape.
    """
    check_measure(measure)
    if measure == "euclidean":
        return euclidean_measure(distance_sq)
    cosine = np.arcsin(np.sqrt(half_sine_sq))
    cosine *= 2.0 / np.pi
    if measure == "cosine":
        return cosine
    return _COMBINE[measure](euclidean_measure(distance_sq), cosine)


def measure_images(points: Array, images: Array, measure: Measure) -> Array:
    """The measure from points and their images, both of shape (n, d), float64; shape (n,).

    Unit vectors u and v give sin(t/2) = |u - v| / 2, accurate for every angle up to a right one,
    and cos(t/2) = |u + v| / 2, accurate for the others.
    """
    distance_sq = np.sum(np.square(points - images), axis=1)
    norms = [np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (points, images)]
    defined = (norms[0] > 0) & (norms[1] > 0)
    u, v = (
        np.divide(vectors, norm, out=np.zeros_like(vectors), where=defined)
        for vectors, norm in zip((points, images), norms, strict=True)
    )
    sine_sq = np.sum(np.square(u - v), axis=1)
    cosine_sq = np.sum(np.square(u + v), axis=1)
    undefined = np.where(distance_sq > 0, 0.5, 0.0)
    both = sine_sq + cosine_sq
    half = np.divide(sine_sq, both, out=undefined, where=both > 0)
    return combine(distance_sq, half, measure)
