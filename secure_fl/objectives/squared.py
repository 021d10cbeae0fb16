"""Squared loss on one-hot targets: the objective of (kernel) ridge regression."""

from dataclasses import dataclass

import numpy as np

from secure_fl.federation import broadcastable
from secure_fl.objectives.base import (
    Array,
    Codes,
    ColumnPerClass,
    Features,
    Operator,
    Root,
    add_to_diagonal,
    gram,
    kernel,
)


@broadcastable
@dataclass(frozen=True)
class SquaredLoss(ColumnPerClass):
    """Half the squared distance of the margins to the one-hot target (fednewton.txt, eq. 1).

    Weights have the shape (d, C). The Hessian is X'X/n + ridge I for every column.

    Attributes:
        ridge: lambda, >= 0.
        outputs: C, at least 2.

    Raises:
        ValueError: an attribute out of its range.
    """

    @property
    def quadratic(self) -> bool:
        """True."""
        return True

    def losses(self, margins: Array, y: Codes) -> Array:
        """Half squared distances."""
        return 0.5 * np.square(self.residuals(margins, y)).sum(axis=1)

    def residuals(self, margins: Array, y: Codes) -> Array:
        """Margins less the one-hot targets."""
        rest = np.array(margins, dtype=np.float64)
        rest[np.arange(len(y)), y] -= 1.0
        return rest

    def curvature(self, margins: Array) -> Operator:
        """The identity."""
        return lambda change: change

    def diagonal_curvature(self, margins: Array) -> Array:
        """Ones."""
        return np.ones(margins.shape)

    def hessian(self, weights: Array, X: Features, y: Codes) -> Array:
        """X'X/n + ridge I, shape (d, d)."""
        self._check(weights, X, y)
        return add_to_diagonal(gram(X) / X.shape[0], self.ridge)

    def root(self, weights: Array, X: Features) -> Root:
        """X itself."""
        return Root(X.shape[0], lambda V: X @ V, lambda U: X.T @ U, lambda: kernel(X))
