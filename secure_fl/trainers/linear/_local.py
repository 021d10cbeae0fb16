"""Local first-order training, the client's side of FedAvg and its relatives."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import Client, broadcastable
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array
from secure_fl.trainers.linear._client import records


@broadcastable
@dataclass(frozen=True)
class LocalTraining:
    """What a client does in one round of a first-order trainer.

    Attributes:
        learning_rate: > 0.
        epochs: passes over the client's records, >= 1.
        batch_size: records of one step, >= 1, in random order; None takes all, so that an epoch is
            one step.
        momentum: of the local steps, in [0, 1).

    Raises:
        ValueError: an attribute out of its range.
    """

    learning_rate: float
    epochs: int = 1
    batch_size: int | None = None
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning rate is {self.learning_rate}; give a number above 0")
        if self.epochs < 1 or (self.batch_size is not None and self.batch_size < 1):
            raise ValueError(f"{self.epochs} local epochs in steps of {self.batch_size} records")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}; give a number in [0, 1)")


def train_locally(
    client: Client,
    objective: Objective,
    start: Array,
    training: LocalTraining,
    proximal: float = 0.0,
) -> Array:
    """Gradient descent on the client's objective plus proximal / 2 |w - start|^2.

    Returns:
        Change of the weights, of their shape.
    """
    X, y = records(client)
    weights = np.array(start, dtype=np.float64)
    velocity = np.zeros_like(weights)
    for rows in batches(client, len(y), training):
        gradient = objective.gradient(weights, X[rows], y[rows])
        velocity = training.momentum * velocity + gradient + proximal * (weights - start)
        weights -= training.learning_rate * velocity
    change: Array = weights - start
    return change


def batches(client: Client, count: int, training: LocalTraining) -> list[slice | NDArray[np.int64]]:
    """Rows of each step of a round, for so many records."""
    size = training.batch_size
    if size is None:
        return [slice(None)] * training.epochs
    orders = [client.rng.permutation(count) for _ in range(training.epochs)]
    return [order[i : i + size] for order in orders for i in range(0, count, size)]
