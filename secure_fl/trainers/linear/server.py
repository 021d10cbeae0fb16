"""What the server does with the mean change of a round: add it, with momentum, or by Adam."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from secure_fl.federation import broadcastable
from secure_fl.objectives.base import Array

Moments: TypeAlias = tuple[Array, ...]
"""Running means that a server optimiser keeps; empty before its first round."""


@dataclass(frozen=True)
class ServerOptimizer(ABC):
    """Turns mean changes into steps.

    Attributes:
        learning_rate: factor on the step, finite and > 0.

    Raises:
        ValueError: an attribute out of its range.
    """

    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"server learning rate is {self.learning_rate}; give a number above 0")

    @abstractmethod
    def step(self, change: Array, moments: Moments) -> tuple[Array, Moments]:
        """What to add to the weights, and the moments after it."""


@broadcastable
@dataclass(frozen=True)
class Averaging(ServerOptimizer):
    """The mean change itself: FedAvg (McMahan et al. 2017)."""

    def step(self, change: Array, moments: Moments) -> tuple[Array, Moments]:
        """See `ServerOptimizer.step`."""
        return self.learning_rate * change, ()


@broadcastable
@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """FedAvgM (Hsu et al. 2019): v <- beta v + change.

    Attributes:
        beta: in [0, 1).
    """

    beta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta is {self.beta}; give a number in [0, 1)")

    def step(self, change: Array, moments: Moments) -> tuple[Array, Moments]:
        """See `ServerOptimizer.step`."""
        velocity = change if not moments else self.beta * moments[0] + change
        return self.learning_rate * velocity, (velocity,)


@broadcastable
@dataclass(frozen=True)
class Adam(ServerOptimizer):
    """FedAdam (Reddi et al. 2021, algorithm 2): no bias correction, tau in the denominator.

    Attributes:
        learning_rate: size of a step in each weight.
        beta_1: of the mean, in [0, 1).
        beta_2: of the mean square, in [0, 1).
        tau: > 0, the adaptivity; the square of it is where the mean square starts.
    """

    learning_rate: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.beta_1 < 1 and 0 <= self.beta_2 < 1 and self.tau > 0):
            raise ValueError(f"Adam with betas {self.beta_1}, {self.beta_2} and tau {self.tau}")

    def step(self, change: Array, moments: Moments) -> tuple[Array, Moments]:
        """See `ServerOptimizer.step`."""
        mean, square = moments or (np.zeros_like(change), np.full_like(change, self.tau**2))
        mean = self.beta_1 * mean + (1.0 - self.beta_1) * change
        square = self.beta_2 * square + (1.0 - self.beta_2) * np.square(change)
        return self.learning_rate * mean / (np.sqrt(square) + self.tau), (mean, square)
