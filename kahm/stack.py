"""Machines of equal size as stacks of small matrices, evaluated from inner products alone.

Write z for a query and Z for a machine's N records, both less a common origin o, g = Z z for their
inner products, U S V^T for the records less their own mean, and k for the kernel values. Everything
eq. (102) needs is then small:

- exponents (147), up to what all records of a query share: B g + c,
  B = (N-1)/k U S^-2 U^T over the kept directions, c = -B Z mu - diag(U U^T) (N-1)/(2k);
- memberships (155), up to a common factor: u = R k with R = lambda* (K + lambda* I)^-1, and their
  sum s = (R 1)^T k;
- with a = A(x) - o: <z, a> = (R g)^T k / s and |a|^2 = k^T (R G R) k / s^2 with G = Z Z^T;
- |x - A(x)|^2 from the three of them, and the angle from <o, a> = (R Z o)^T k / s as well.

So a query costs two products with N x N matrices per machine and nothing of size d. The origin lies
near the records where these have an offset: products of what is left keep the digits that the
offset would take. It is 0 where they have none, and <o, a> is then left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from kahm._typing import Array, IntArray
from kahm.machine import nonzero
from kahm.measures import Measure, angle_share, combine, half_sine_sq, measure_folds

_ROUNDINGS = 32
"""How many roundings of its terms a sum of few products may be wrong by."""


@dataclass(frozen=True)
class Stack:
    """m fitted machines of N records each, whatever the origin; float64.

    Attributes:
        encoded: U sqrt((N-1)/k), the records in the machine's own coordinates over the root of k,
            shape (m, N, r); columns of directions that are not kept are 0.
        inverse: 1/S, shape (m, r), 0 for directions that are not kept.
        solver: R, shape (m, N, N).
        floor: least squared distances, shape (m,); 0 unless N = 1.
    """

    encoded: Array
    inverse: Array
    solver: Array
    floor: Array

    @property
    def n_machines(self) -> int:
        """m."""
        return len(self.solver)

    @property
    def size(self) -> int:
        """N."""
        return int(self.solver.shape[2])

    def __getitem__(self, machines: slice | IntArray | list[int]) -> "Stack":
        parts = (self.encoded, self.inverse, self.solver, self.floor)
        return Stack(*(each[machines] for each in parts))

    def products(self, Z: Array, origin: Array | None, dtype: type) -> "Products":
        """What evaluates these machines from products with their records.

        Args:
            Z: records less the origin, shape (m, N, d), float64.
            origin: o, shape (d,), or None for 0.
            dtype: of the result.
        """
        G = Z @ Z.transpose(0, 2, 1)
        scaled = self.encoded * self.inverse[:, None, :]
        B = scaled @ scaled.transpose(0, 2, 1)
        R = self.solver
        norms = np.square(self.encoded).sum(axis=2, keepdims=True)
        offset = -(B @ G.mean(axis=2, keepdims=True)) - 0.5 * norms
        rows = [R @ G @ R, R.sum(axis=1, keepdims=True)]
        if origin is not None:
            rows.append(((Z @ origin)[:, None, :]) @ R)
        lengths = np.diagonal(G, axis1=1, axis2=2)
        stretch = np.sqrt((np.square(B) @ lengths[:, :, None]).max(axis=(1, 2)))
        score, gram = np.concatenate([B, R], axis=1), np.concatenate(rows, axis=1)
        parts = (score, offset, gram, stretch, self.floor)
        return Products(*(each.astype(dtype) for each in parts))


@dataclass(frozen=True)
class Products:
    """m machines of N records each, about an origin.

    Attributes:
        score: rows [B; R], shape (m, 2N, N).
        offset: c, shape (m, N, 1).
        gram: rows [R G R; (R 1)^T], and (R Z o)^T where the origin is not 0, shape
            (m, N + 1 or N + 2, N).
        stretch: the length of a row of B with every entry times the length of its record, the
            largest one, shape (m,). An exponent's rounding error is about this times |z| roundings.
        floor: as in `Stack`.
    """

    score: Array
    offset: Array
    gram: Array
    stretch: Array
    floor: Array

    @property
    def n_machines(self) -> int:
        """m."""
        return len(self.score)

    @property
    def size(self) -> int:
        """N."""
        return int(self.score.shape[2])

    def __getitem__(self, machines: slice) -> "Products":
        parts = (self.score, self.offset, self.gram, self.stretch, self.floor)
        return Products(*(each[machines] for each in parts))


def join_stacks(stacks: Sequence[Stack]) -> Stack:
    """One stack of all machines of stacks of equal size."""
    if len(stacks) == 1:
        return stacks[0]
    return Stack(
        np.concatenate([stack.encoded for stack in stacks]),
        np.concatenate([stack.inverse for stack in stacks]),
        np.concatenate([stack.solver for stack in stacks]),
        np.concatenate([stack.floor for stack in stacks]),
    )


@dataclass
class Workspace:
    """Scratch memory of one thread, so that blocks do not pay for fresh pages."""

    inner: Array
    scores: Array
    kernel: Array
    grams: Array

    @classmethod
    def allocate(cls, n_values: int, dtype: type) -> "Workspace":
        """Room for blocks of up to `n_values` = machines x (N + 2) x queries."""
        return cls(*(np.empty(size * n_values, dtype) for size in (1, 2, 1, 1)))

    def products(self, records: Array, queries: Array, size: int) -> Array:
        """Inner products of the records of machines of N each with queries, shape (m, N, q).

        Args:
            records: of all machines, shape (m N, d).
            queries: shape (q, d).
            size: N.
        """
        out = _view(self.inner, len(records), len(queries))
        return np.matmul(records, queries.T, out=out).reshape(
            len(records) // size, size, len(queries)
        )


def _view(flat: Array, *shape: int) -> Array:
    return flat[: int(np.prod(shape))].reshape(shape)


@dataclass(frozen=True)
class Queries:
    """What a chunk of q queries has in common with every machine.

    Attributes:
        about_sq: |z|^2, shape (q,).
        point_sq: |x|^2, shape (q,).
        along: <o, z>, shape (q,), or None where the origin is 0.
    """

    about_sq: Array
    point_sq: Array
    along: Array | None


@dataclass(frozen=True)
class Doubt:
    """From where on a small difference of large numbers is not believed.

    Attributes:
        closeness: of squared distances to what they are differences of.
        exponent: rounding error of an exponent of the kernel that is still harmless.
        angle: the same of an angle, in radians.
    """

    closeness: float
    exponent: float
    angle: float

    def of_size(self, size: int) -> "Doubt":
        """For machines of so many records: their longer sums are rounded more often."""
        return replace(self, closeness=self.closeness * max(1.0, size / 25))


def image_norms(products: Products, g: Array, work: Workspace) -> tuple[Array, Array, Array | None]:
    """<z, a>, |a|^2 and, where the origin is not 0, <o, a> for every machine and query.

    Args:
        products: m machines of N records.
        g: inner products of records and queries, shape (m, N, q).
        work: scratch memory with room for m (N + 1) q values.

    Returns:
        Arrays of shape (m, q).
    """
    m, n, q = g.shape
    scores = np.matmul(products.score, g, out=_view(work.scores, m, 2 * n, q))
    k, projected = scores[:, :n], scores[:, n:]
    k += products.offset
    k -= k.max(axis=1, keepdims=True)
    kernel = np.exp(k, out=_view(work.kernel, m, n, q))
    rows = products.gram.shape[1]
    grams = np.matmul(products.gram, kernel, out=_view(work.grams, m, rows, q))
    total = nonzero(grams[:, n])
    along = grams[:, n + 1] / total if rows > n + 1 else None
    inner = np.einsum("mnq,mnq->mq", projected, kernel) / total
    image_sq = np.einsum("mnq,mnq->mq", kernel, grams[:, :n]) / np.square(total)
    # Rounding can push the square of a norm below 0.
    np.maximum(image_sq, 0.0, out=image_sq)
    return inner, image_sq, along


def measure_stack(
    products: Products, g: Array, queries: Queries, measure: Measure, work: Workspace, doubt: Doubt
) -> tuple[Array, NDArray[np.bool_]]:
    """The measure of every machine at every query, shape (m, q), and where to distrust it.

    The second array marks pairs where a small difference of large numbers decides: |x - A(x)|^2
    or its part across x within `closeness` of the norms, an angle that close to pi, an image too
    far away for its angle, exponents that are rounded too coarsely, or a value that is not finite.
    The caller computes those from the records.
    """
    inner, image_sq, along = image_norms(products, g, work)
    size = queries.about_sq + image_sq
    distance_sq = size - 2.0 * inner
    distrusted = ~(distance_sq > doubt.closeness * size) | ~np.isfinite(size)
    limit = doubt.exponent / np.finfo(size.dtype).eps
    distrusted |= products.stretch[:, None] * np.sqrt(queries.about_sq) > limit
    np.maximum(distance_sq, 0.0, out=distance_sq)
    if along is None:
        half = half_sine_sq(distance_sq, queries.point_sq, image_sq)
        distrusted |= half < 0.1 * doubt.closeness
        # Of a query beside an image far away the angle is what the rounding of that leaves.
        rounding = np.finfo(size.dtype).eps * size
        distrusted |= rounding > doubt.angle * 4.0 * np.sqrt(queries.point_sq * image_sq)
    else:
        assert queries.along is not None
        # |x|^2 - |A(x)|^2, from parts that the offset does not enter squared.
        gap = 2.0 * (queries.along - along) + (queries.about_sq - image_sq)
        half, unsure = _half_about_origin(distance_sq, queries.point_sq, gap, size, doubt)
        distrusted |= unsure
    distrusted |= half > 1.0 - 0.1 * doubt.closeness
    if products.size == 1:
        np.maximum(distance_sq, products.floor[:, None], out=distance_sq)
    return combine(distance_sq, angle_share(half), measure), distrusted


def _half_about_origin(
    distance_sq: Array, point_sq: Array, gap: Array, size: Array, doubt: Doubt
) -> tuple[Array, NDArray[np.bool_]]:
    """`half_sine_sq` from the difference of squared norms, and where to distrust it."""
    image_sq = point_sq - gap
    unsure = ~(image_sq > doubt.closeness * point_sq)
    point, image = np.sqrt(point_sq), np.sqrt(np.maximum(image_sq, 0.0))
    sides = 4.0 * point * image
    with np.errstate(divide="ignore", invalid="ignore"):
        chord = distance_sq - np.square(gap / (point + image))
        half = np.clip(np.nan_to_num(chord / sides, nan=0.5), 0.0, 1.0)
    # Its rounding error as a share of the chord, or whole, as what it does to the angle.
    error = _ROUNDINGS * np.finfo(size.dtype).eps * (size + np.abs(gap))
    believed = error < 2.0 * doubt.angle * np.sqrt(sides * np.maximum(chord, 0.0))
    unsure |= ~(believed | (error < np.square(doubt.angle) * sides))
    return half, unsure


def measure_from_records(stack: Stack, records: Array, queries: Array, measure: Measure) -> Array:
    """The measures of machines by differences from their records, in float64.

    Args:
        stack: m machines of N records.
        records: theirs, shape (m, N, d), float64.
        queries: q of each machine's own, shape (m, q, d), float64.

    Returns:
        Shape (m, q).
    """
    centre = records.mean(axis=1, keepdims=True)
    about = records - centre
    z = queries - centre
    directions = directions_of(stack, about)
    # `encoded` is about the exact mean, of which the centre is the rounding.
    encoded = (z - about.mean(axis=1, keepdims=True)) @ directions.transpose(0, 2, 1)
    pairs = zip(encoded, stack.encoded, strict=True)
    exponents = -0.5 * np.stack([cdist(own, kept, "sqeuclidean") for own, kept in pairs])
    kernel = np.exp(exponents - exponents.max(axis=2, keepdims=True))
    memberships = kernel @ stack.solver
    images = memberships / nonzero(memberships.sum(axis=2, keepdims=True)) @ about
    vectors = (queries, centre + images, z - images)
    points, folded, folds = (each.reshape(-1, queries.shape[2]) for each in vectors)
    floor = np.repeat(stack.floor, queries.shape[1])
    return measure_folds(points, folded, folds, measure, floor).reshape(queries.shape[:2])


def directions_of(stack: Stack, about: Array) -> Array:
    """What takes points about the mean to a machine's own coordinates, shape (m, r, d).

    Args:
        stack: m machines of N records.
        about: their records less their mean, shape (m, N, d).
    """
    scaled = stack.encoded * np.square(stack.inverse)[:, None, :]
    return scaled.transpose(0, 2, 1) @ about


def by_count(pairs: NDArray[np.bool_], most: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Marked pairs of machines and queries, machines of about equally many together.

    Args:
        pairs: shape (m, q).
        most: of them at a time, as far as machines stay whole.

    Yields:
        Machines, shape (k,), and as many queries of each, shape (k, h); where a machine has fewer
        than h its last one stands again.
    """
    counts = pairs.sum(axis=1)
    halvings = np.frexp(counts)[1]
    for halving in np.unique(halvings[counts > 0]).tolist():
        alike = np.flatnonzero(halvings == halving)
        step = max(1, most >> halving)
        for start in range(0, len(alike), step):
            machines = alike[start : start + step]
            own = counts[machines]
            rows = np.flatnonzero(pairs[machines]) % pairs.shape[1]
            places = np.minimum(np.arange(own.max()), own[:, None] - 1)
            yield machines, rows[places + (np.cumsum(own) - own)[:, None]]
