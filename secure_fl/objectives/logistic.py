"""Logistic loss for two classes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from secure_fl.federation import broadcastable
from secure_fl.objectives.base import (
    Array,
    Codes,
    Features,
    Objective,
    Operator,
    add_to_diagonal,
    gram,
    scale_rows,
)


@broadcastable
@dataclass(frozen=True)
class LogisticLoss(Objective):
    """log(1 + exp(-s x w)) with s = +1 for class 1 and -1 for class 0.

    Weights and margins have the shapes (d,) and (n,). Exact at any finite margin: nothing
    overflows.

    Attributes:
        ridge: lambda, >= 0.

    Raises:
        ValueError: ridge out of its range.
    """

    @property
    def classes(self) -> int:
        """2."""
        return 2

    def shape(self, features: int) -> tuple[int, ...]:
        """(d,)."""
        return (features,)

    def losses(self, margins: Array, y: Codes) -> Array:
        """log(1 + exp(-s m)), as a stable sum of logarithms."""
        return np.logaddexp(0.0, -_signs(y) * margins)

    def residuals(self, margins: Array, y: Codes) -> Array:
        """-s times the probability of the other class; keeps its relative precision."""
        signs = _signs(y)
        return -signs * expit(-signs * margins)

    def curvature(self, margins: Array) -> Operator:
        """Multiplication by p (1 - p)."""
        slopes = self.diagonal_curvature(margins)
        return lambda change: slopes * change

    def diagonal_curvature(self, margins: Array) -> Array:
        """p (1 - p), with both factors computed directly."""
        return expit(margins) * expit(-margins)

    def hessian(self, weights: Array, X: Features, y: Codes) -> Array:
        """X' diag(p (1 - p)) X / n + ridge I, shape (d, d)."""
        self._check(weights, X, y)
        slopes = self.diagonal_curvature(X @ weights)
        return add_to_diagonal(gram(X, slopes) / X.shape[0], self.ridge)

    def root(self, weights: Array, X: Features) -> Features:
        """X with rows scaled by sqrt(p (1 - p))."""
        return scale_rows(X, np.sqrt(self.diagonal_curvature(X @ weights)))

    def predict(self, weights: Array, X: Features) -> NDArray[np.int64]:
        """1 where the margin is above 0, else 0."""
        return (X @ weights > 0).astype(np.int64)


def _signs(y: Codes) -> Array:
    return 2.0 * y - 1.0
