"""Queries for a model of numbers, and how far its predictions are from the truth."""

import math
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from secure_fl.data import ReadOptions
from secure_fl.heads.queries import query_records
from secure_fl.objectives.regression import r_squared, rmse
from secure_fl.training.linear_model import RegressionModel

Array = NDArray[Any]


@attrs.frozen
class TargetError:
    """How far predictions of a target are from the truth.

    Attributes:
        target: its name.
        rmse: root of the mean squared error, in the target's units.
        r2: 1 less the mean squared error over the target's variance; None where it has none.
        deviation: of the target among these records: the error of predicting its mean.
        records: how many there are.
    """

    target: str
    rmse: float
    r2: float | None
    deviation: float
    records: int

    def text(self) -> str:
        """One line."""
        share = "" if self.r2 is None else f", R2 {self.r2:.4f}"
        return (
            f"{self.target}: RMSE {self.rmse:.4g}{share} on {self.records:,} records; predicting"
            f" their mean {self.deviation:.4g}"
        )


def errors_of(targets: tuple[str, ...], values: Array, truth: Array) -> tuple[TargetError, ...]:
    """The error of every target.

    Args:
        targets: C names.
        values: predicted, shape (n, C).
        truth: shape (n, C).
    """
    found = []
    for i, name in enumerate(targets):
        share = r_squared(values[:, i], truth[:, i])
        error = rmse(values[:, i], truth[:, i])
        kept = share if math.isfinite(share) else None
        found.append(TargetError(name, error, kept, float(np.std(truth[:, i])), len(truth)))
    return tuple(found)


def read_target_queries(
    path: Path, model: RegressionModel, options: ReadOptions, rows: slice
) -> tuple[Array, Array | None]:
    """Scaled features of the queries, and their targets where the file has them.

    Arguments and errors as `secure_fl.heads.queries.query_records`; the options name the targets.
    """
    features, records = query_records(path, model, options, rows)
    if records is None or records.targets is None:
        return features, None
    return features, records.targets[rows]
