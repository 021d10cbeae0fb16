"""Small federations whose pooled problem an oracle can solve."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from secure_fl.federation import Client, Federation
from secure_fl.objectives import Objective


class CountingFederation(Federation):
    """Counts the sums that a trainer asks for, and refuses per-client values."""

    sums = 0

    def mean(self, *arguments: Any, **options: Any) -> Any:
        """One more sum."""
        self.sums += 1
        return super().mean(*arguments, **options)

    def gather(self, *arguments: Any, **options: Any) -> Any:
        """Never."""
        raise AssertionError("a trainer asked for per-client values")


@dataclass
class Pool:
    """Records of all clients.

    Attributes:
        X: features, (n, d).
        y: class codes, (n,).
        parts: rows of each client.
    """

    X: Any
    y: Any
    parts: list[Any]

    def federation(self, **options: Any) -> CountingFederation:
        """A fresh federation of these clients."""
        return CountingFederation(
            [Client(f"c{i}", self.X[p], self.y[p]) for i, p in enumerate(self.parts)], **options
        )

    @property
    def shares(self) -> Any:
        """p_j of the papers."""
        return np.array([len(p) for p in self.parts]) / len(self.y)


def pool(
    seed: int = 0,
    *,
    sizes: tuple[int, ...] = (30, 8, 17),
    features: int = 6,
    classes: int = 3,
    skew: float = 1.0,
) -> Pool:
    """Clients whose features have different spreads, so that their Hessians differ.

    Args:
        seed: of all draws.
        sizes: records of each client.
        features: d.
        classes: C.
        skew: standard deviation of the logarithm of a client's spread in each feature.
    """
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.standard_normal((classes, features))
    X, y, parts, end = [], [], [], 0
    for size in sizes:
        own = rng.integers(0, classes, size)
        spread = np.exp(skew * rng.standard_normal(features))
        X.append((centres[own] + rng.standard_normal((size, features))) * spread)
        y.append(own)
        parts.append(np.arange(end, end + size))
        end += size
    stacked = np.concatenate(X)
    return Pool(stacked / np.abs(stacked).max(), np.concatenate(y), parts)


def pooled_minimum(objective: Objective, data: Pool) -> Any:
    """Weights where the pooled gradient vanishes, by Newton's method on the pooled records."""
    weights = objective.zeros(data.X.shape[1])
    for _ in range(50):
        hessian = objective.hessian(weights, data.X, data.y)
        gradient = objective.gradient(weights, data.X, data.y)
        step = np.linalg.solve(hessian, gradient.reshape(len(hessian), -1))
        weights = weights - step.reshape(weights.shape)
    assert np.abs(objective.gradient(weights, data.X, data.y)).max() < 1e-12
    return weights
