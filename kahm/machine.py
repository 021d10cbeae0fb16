"""One kernel affine hull machine, as short as the paper has it (kahm.txt, Appendix A).

This is the reference that `kahm.bank` must agree with. The errata of the project are applied where
they change the formula; each is said beside its line.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

from kahm._typing import Array
from kahm.checks import feature_matrix
from kahm.errors import InputError
from kahm.measures import Measure, measure_folds

MAX_DIRECTIONS = 20
"""Algorithm 1, line 1."""
MIN_RANGE = 1e-3
"""Algorithm 1, line 3: a direction along which the records spread less is dropped."""
RANK_TOLERANCE = 1e-14
"""Variance relative to the largest below which an eigenvalue is rounding, not a direction."""

_LEAST_SHIFT = 1e-6
"""What must be added to a kernel's diagonal for its Cholesky factor to be trusted."""
_MOST_STEPS = 8
_LAST_STEP = 1e-8
"""Of lambda*; its square, which is what the solution is then wrong by, is below rounding."""

Regularisation = Literal["absolute", "relative", "relative-floor"]
"""lambda* of eq. (149), which is in the data's units squared, or the same of the records divided by
their root mean square, whatever unit they are in: folds then do not depend on a factor on all
features (A of c X at c x is c A(x)). Under the third one it also bounds how near a machine without
a kernel comes, see `least_distance_sq`. Only the first is the paper's."""

REGULARISATIONS: tuple[Regularisation, ...] = get_args(Regularisation)


def check_regularisation(regularisation: str, factor: float) -> None:
    """Raises InputError unless it is one of REGULARISATIONS, and the factor finite and above 0."""
    if not (np.isfinite(factor) and factor > 0):
        raise InputError(f"lambda factor: found {factor}, expected a finite number above 0")
    if regularisation not in REGULARISATIONS:
        raise InputError(
            f"regularisation: {regularisation!r} is unknown, expected one of"
            f" {', '.join(REGULARISATIONS)}"
        )


@dataclass(frozen=True)
class Encoding:
    """The encoding of Algorithm 1.

    Attributes:
        directions: P_X, shape (k, d); k = 0 when the records do not spread.
        variances: sample variances along the directions, shape (k,).
    """

    directions: Array
    variances: Array


def centred(X: Array) -> tuple[Array, Array]:
    """The mean of the records, shape (d,), and the records less that very number.

    Distances do not change by it, and products of what is left keep the digits that an offset of
    the features would take.
    """
    centre: Array = X.mean(axis=0)
    return centre, X - centre


def encode(X: Array) -> Encoding:
    """Algorithm 1: principal directions of the records, the last ones dropped until all spread.

    Args:
        X: records, shape (N, d), float64.
    """
    n_records, n_features = X.shape
    if n_records == 1:
        return Encoding(np.empty((0, n_features)), np.empty(0))
    # The mean is rounded in units of the offset; the mean of what is left is not.
    X = centred(centred(X)[1])[1]
    _, singular, directions = np.linalg.svd(X, full_matrices=False)
    variances = np.square(singular) / (n_records - 1)
    rank = int(np.sum(variances > RANK_TOLERANCE * variances[0]))
    spread = np.ptp(X @ directions.T, axis=0) >= MIN_RANGE
    leading = int(np.cumprod(spread).sum())
    k = min(MAX_DIRECTIONS, n_features, n_records - 1, rank, leading)
    return Encoding(directions[:k], variances[:k])


def fixed_point(eigenvalues: Array, energies: Array, tau: float) -> float:
    """The fixed point of eq. (150), r written in the eigenbasis of K.

    Args:
        eigenvalues: of the kernel matrix, shape (N,), at least 0.
        energies: |v_i^T X|^2 / (d N) for the eigenvectors v_i, shape (N,).
        tau: 2 |X|_F^2 / (d N), above 0.

    Returns:
        e with r(e, tau) = e, in [0, tau / 2].
    """

    def gap(e: float) -> float:
        shrink = (e + tau) / (eigenvalues + e + tau)
        return float(np.sum(np.square(shrink) * energies)) - e

    upper = float(np.sum(energies))
    if gap(upper) >= 0:  # equality up to rounding: the kernel explains nothing
        return upper
    return float(brentq(gap, 0.0, upper, xtol=1e-14 * upper, rtol=1e-14))


def least_distance_sq(records: Array, kind: Regularisation, factor: float) -> float:
    """How near a machine that holds a single record may come to a point, squared.

    Machines of many records measure more than 0 at their own, by lambda. One that folds every point
    onto a single record has no kernel for lambda to act on: it measures 0 there however smooth the
    others are, and takes every query that equals its record from them. H_X of eq. (135), which does
    not divide by the sum of its weights, would leave that record lambda / (1 + lambda) of its
    length short. Where the kind is "relative-floor", no distance counts as less than this share of
    the records' root mean square length: a record's own says where it lies, not how others spread.

    Args:
        records: all that a bank holds, shape (R, d).
        kind: one of REGULARISATIONS; 0 is returned for the others.
        factor: on lambda.
    """
    if kind != "relative-floor":
        return 0.0
    alone = np.ones(1)
    lam = factor * (fixed_point(alone, alone, 2.0) + 2.0)
    squares = float(np.einsum("nd,nd->", records, records, dtype=np.float64))
    return (lam / (1.0 + lam)) ** 2 * squares / len(records)


def strength(K: Array, X: Array, kind: Regularisation = "absolute") -> float:
    """lambda* of eq. (149), of the records as they are or over their root mean square."""
    if kind != "absolute":
        largest = float(np.abs(X).max()) or 1.0  # first, for squares of tiny records vanish
        X = X / largest
        X = X / (float(np.sqrt(np.mean(np.square(X)))) or 1.0)
    return _strength_in(*np.linalg.eigh(K), X)


def _strength_in(eigenvalues: Array, eigenvectors: Array, X: Array) -> float:
    tau = 2.0 * float(np.sum(np.square(X))) / X.size
    energies = np.sum(np.square(eigenvectors.T @ X), axis=1) / X.size
    return fixed_point(np.maximum(eigenvalues, 0.0), energies, tau) + tau


def kernel_exponents(A: Array, B: Array) -> Array:
    """The exponents of eq. (147) between whitened encodings, shape (len(A), len(B))."""
    return -cdist(A, B, "sqeuclidean") / (2.0 * A.shape[1])


@dataclass(frozen=True)
class KAHM:
    """A fitted machine A_X of eq. (19).

    Attributes:
        records: X, shape (N, d), float64.
        whitening: theta_X^(-1/2) P_X, shape (k, d). The covariance of principal coordinates is
            diagonal, so theta is the vector of their variances. k = 0: every point folds onto the
            mean of the records.
        solver: Cholesky factor of K_X + lambda* I, as `scipy.linalg.cho_factor` returns it.
        centre: what is taken from records and points before any product, shape (d,).
        floor: least squared distance from a point to its image, see `least_distance_sq`.
    """

    records: Array
    centre: Array
    whitening: Array
    solver: tuple[Array, bool] | None
    floor: float = 0.0

    @classmethod
    def fit(
        cls, X: object, regularisation: Regularisation = "absolute", factor: float = 1.0
    ) -> "KAHM":
        """Fits a machine to the records.

        Args:
            X: records, shape (N, d), N >= 1, finite.
            regularisation: one of REGULARISATIONS.
            factor: on lambda*, above 0; other than 1 it departs from eq. (149).

        Raises:
            InputError: no record, a row that is not finite, an unknown regularisation, or a
                factor out of range.
        """
        check_regularisation(regularisation, factor)
        records = feature_matrix(X, name="records").astype(np.float64)
        if len(records) == 0:
            raise InputError("records: 0 rows, a machine needs at least 1")
        encoding = encode(records)
        whitening = encoding.directions / np.sqrt(encoding.variances)[:, None]
        centre, about = centred(records)
        if len(whitening) == 0:
            floor = least_distance_sq(records, regularisation, factor)
            return cls(records, centre, whitening, None, floor)
        encoded = about @ whitening.T
        K = np.exp(kernel_exponents(encoded, encoded))
        K[np.diag_indices_from(K)] += factor * strength(K, records, regularisation)
        return cls(records, centre, whitening, cho_factor(K))

    def weights(self, points: object) -> Array:
        """The affine weights h_i / sum_j h_j of eq. (19), shape (n, N).

        The largest exponent is subtracted first: the weights do not change, and far from the data
        0/0 does not arise. Raises InputError as `feature_matrix` does.
        """
        points = feature_matrix(points, name="points", n_features=self.records.shape[1])
        n_records = len(self.records)
        if self.solver is None:
            return np.full((len(points), n_records), 1.0 / n_records)
        exponents = kernel_exponents(
            (points - self.centre) @ self.whitening.T, self._about @ self.whitening.T
        )
        exponents -= exponents.max(axis=1, keepdims=True)
        memberships = cho_solve(self.solver, np.exp(exponents).T).T
        return memberships / nonzero(memberships.sum(axis=1, keepdims=True))

    def fold(self, points: object) -> Array:
        """The images A_X(x) of eq. (19), shape (n, d)."""
        return self.centre + self.weights(points) @ self._about

    def measure(self, points: object, measure: Measure = "folding") -> Array:
        """The space folding measure of each point, shape (n,), in [0, 1] (eq. 102)."""
        points = feature_matrix(points, name="points", n_features=self.records.shape[1])
        points = points.astype(np.float64)
        images = self.weights(points) @ self._about
        folds = (points - self.centre) - images
        return measure_folds(points, self.centre + images, folds, measure, self.floor)

    @property
    def _about(self) -> Array:
        return self.records - self.centre


def nonzero(total: Array) -> Array:
    """Keeps the denominator of eq. (19) from being exactly 0, where the image is undefined.

    The memberships may be negative, so their sum can vanish between records of tiny norm. A point
    there gets an image far away, hence a measure near 1.
    """
    smallest = np.finfo(total.dtype).tiny
    return np.where(np.abs(total) < smallest, smallest, total)


def smoother(X: object) -> Array:
    """The smoothing matrix H_X of eq. (135), (K + lambda* I)^-1 K, symmetric, shape (N, N).

    Records that do not spread have no kernel; every one is then replaced by their mean, in keeping
    with what their machine folds points to.
    """
    X = feature_matrix(X, name="records").astype(np.float64)
    K = _own_kernel(X)
    if K is None:
        return np.full((len(X), len(X)), 1.0 / len(X))
    kept, directions = _shares(K, X)
    return (directions * kept) @ directions.T


def smoothed(X: Array) -> Array:
    """H_X^T X without H_X itself, a third of the work; X as `smoother` takes it, float64."""
    K = _own_kernel(X)
    if K is None:
        return np.broadcast_to(X.mean(axis=0), X.shape).copy()
    solved = _ridge_solution(K, X)
    if solved is None:
        kept, directions = _shares(K, X)
        return directions @ (kept[:, None] * (directions.T @ X))
    lam, solution = solved
    return X - lam * solution


def _ridge_solution(K: Array, X: Array) -> tuple[float, Array] | None:
    """lambda* of eq. (149) and (K + lambda* I)^-1 X, without eigenvectors of K.

    lambda* = s where s^2 |(K + s I)^-1 X|^2 / (d N) = s - tau, eq. (150), and s is in
    [tau, 3 tau / 2]. Halley's steps on that take two or three factorisations, a tenth each of what
    a decomposition takes. None where K + s I is too near a singular matrix for one.
    """
    tau = 2.0 * float(np.sum(np.square(X))) / X.size
    if not tau > _LEAST_SHIFT:
        return None
    s = 1.25 * tau
    for _ in range(_MOST_STEPS):
        shifted = K.copy()
        shifted[np.diag_indices_from(K)] += s
        factor = cho_factor(shifted, overwrite_a=True, check_finite=False)
        first = cho_solve(factor, X, check_finite=False)
        second = cho_solve(factor, first, check_finite=False)
        pairs = (first, first), (first, second), (second, second)
        squares, mixed, seconds = (float(np.vdot(a, b)) / X.size for a, b in pairs)
        gap = s * s * squares - (s - tau)
        slope = 2.0 * s * squares - 2.0 * s * s * mixed - 1.0
        bend = 2.0 * squares - 8.0 * s * mixed + 6.0 * s * s * seconds
        new = s - 2.0 * gap * slope / (2.0 * slope * slope - gap * bend)
        step, s = new - s, new
        if not tau <= s <= 1.5 * tau:
            return None
        if abs(step) <= _LAST_STEP * s:
            return s, first - step * second
    return None


def _own_kernel(X: Array) -> Array | None:
    """The kernel matrix of records with each other, (N, N); None where they do not spread."""
    encoding = encode(X)
    if len(encoding.variances) == 0:
        return None
    encoded = centred(X)[1] @ (encoding.directions / np.sqrt(encoding.variances)[:, None]).T
    return np.exp(kernel_exponents(encoded, encoded))


def _shares(K: Array, X: Array) -> tuple[Array, Array]:
    """What H_X keeps of the directions that it does not turn: shares (N,), directions (N, N).

    The decomposition of K that lambda* takes gives (K + lambda* I)^-1 K as well.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(K)
    return eigenvalues / (eigenvalues + _strength_in(eigenvalues, eigenvectors, X)), eigenvectors
