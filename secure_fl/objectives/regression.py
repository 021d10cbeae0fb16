"""Squared loss on real targets: regression, of which one-hot targets are a use."""

from dataclasses import dataclass

import numpy as np

from secure_fl.errors import LabelError
from secure_fl.federation import broadcastable
from secure_fl.objectives.base import Array, Codes, Features, Objective
from secure_fl.objectives.squared import SquaredLoss


@broadcastable
@dataclass(frozen=True)
class RegressionLoss(SquaredLoss):
    """Half the squared distance of the margins to the targets (fednewton.txt, eq. 1).

    Every trainer of the squared loss takes it. Targets are real and finite, of the shape (n,) for
    one output and (n, C) for more; weights have the shape (d, C).

    Attributes:
        ridge: lambda, >= 0.
        outputs: C, at least 1.

    Raises:
        ValueError: an attribute out of its range.
    """

    outputs: int = 1

    def __post_init__(self) -> None:
        Objective.__post_init__(self)
        if self.outputs < 1:
            raise ValueError(f"{self.outputs} outputs; a regression needs at least one")

    def residuals(self, margins: Array, y: Codes | Array) -> Array:
        """Margins less the targets."""
        rest: Array = margins - np.asarray(y, dtype=np.float64).reshape(margins.shape)
        return rest

    def predict(self, weights: Array, X: Features) -> Array:  # type: ignore[override]  # values, not codes
        """Predicted values, shape (n,) for one output, else (n, C)."""
        values: Array = X @ weights
        return values[:, 0] if self.outputs == 1 else values

    def _check(self, weights: Array, X: Features, y: Codes | Array) -> None:
        self._check_weights(weights, X, f"{self.outputs} outputs")
        n = X.shape[0]
        fine = [(n, self.outputs)] + ([(n,)] if self.outputs == 1 else [])
        if y.shape not in fine:
            raise LabelError(
                f"targets have the shape {y.shape}, {n} records and {self.outputs} outputs need"
                f" {fine[-1]}"
            )
        if not np.isfinite(y).all():
            raise LabelError("a target is not finite; fill it in or remove the record")


def rmse(predicted: Array, y: Array) -> float:
    """Root of the mean squared error, in the targets' units."""
    return float(np.sqrt(np.mean(np.square(predicted - y))))


def r_squared(predicted: Array, y: Array) -> float:
    """1 less the mean squared error over the targets' variance; nan where they are all equal."""
    spread = float(np.sum(np.square(y - np.mean(y, axis=0))))
    return float("nan") if spread == 0 else 1.0 - float(np.sum(np.square(predicted - y))) / spread
