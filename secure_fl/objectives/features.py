"""Fixed feature maps in front of a linear model."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import FeatureError
from secure_fl.objectives.base import Array, Features


@dataclass(frozen=True, eq=False)
class RandomFourierFeatures:
    """sqrt(2/M) cos(X Omega + b), whose inner products approach a Gaussian kernel.

    Rahimi and Recht 2007; fednewton.txt, appendix B. There 1/sqrt(M) is printed, which tends to
    half the kernel and only rescales lambda. Expected error of one kernel value: 1/sqrt(M).

    Attributes:
        frequencies: Omega, shape (d, M).
        phases: b, shape (M,), in [0, 2 pi).
    """

    frequencies: Array
    phases: Array

    def __post_init__(self) -> None:
        if self.frequencies.ndim != 2 or self.phases.shape != self.frequencies.shape[1:]:
            raise ValueError(
                f"frequencies of shape {self.frequencies.shape}, phases {self.phases.shape}"
            )

    @classmethod
    def draw(
        cls, features: int, count: int, variance: float, rng: np.random.Generator
    ) -> "RandomFourierFeatures":
        """Features of the kernel exp(-variance |x - z|^2 / 2).

        Args:
            features: d, at least 1.
            count: M, at least 1.
            variance: of every frequency, > 0, in units of 1/feature^2.
            rng: public randomness, since all clients use the same features.

        Raises:
            ValueError: an argument out of its range.
        """
        if features < 1 or count < 1 or not (math.isfinite(variance) and variance > 0):
            raise ValueError(f"{features} features, {count} frequencies, variance {variance}")
        frequencies = math.sqrt(variance) * rng.standard_normal((features, count))
        return cls(frequencies, rng.uniform(0.0, 2.0 * math.pi, count))

    @property
    def count(self) -> int:
        """M."""
        return int(self.phases.shape[0])

    def apply(self, X: Features) -> NDArray[np.float64]:
        """Features of the records, shape (n, M).

        Args:
            X: shape (n, d), dense or CSR.

        Raises:
            FeatureError: another d.
        """
        if X.shape[1] != self.frequencies.shape[0]:
            raise FeatureError(
                f"{X.shape[1]} features, the random features were drawn for"
                f" {self.frequencies.shape[0]}"
            )
        mapped: NDArray[np.float64] = np.asarray(X @ self.frequencies, dtype=np.float64)
        mapped += self.phases
        np.cos(mapped, out=mapped)
        mapped *= math.sqrt(2.0 / self.count)
        return mapped


def with_constant(X: Features) -> Any:
    """X with a last column of ones, of the same type: the bias of a linear head.

    The ridge acts on the bias as on every weight.
    """
    if isinstance(X, np.ndarray):
        return np.concatenate([X, np.ones((X.shape[0], 1), dtype=X.dtype)], axis=1)
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack([X, np.ones((X.shape[0], 1), dtype=X.dtype)], format="csr"))
