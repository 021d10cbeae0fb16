"""What every objective of a linear model shares: loss of the margins X W, plus a ridge.

The loss of one record depends on the model through its margins x W alone, so value, gradient and
curvature each are one function of the margins, wrapped in products with the features.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import FeatureError, LabelError

Array: TypeAlias = NDArray[np.floating[Any]]
Codes: TypeAlias = NDArray[np.integer[Any]]
Features: TypeAlias = Any
"""(n, d) float array, or a `scipy.sparse.csr_array` of that shape."""
Operator: TypeAlias = Callable[[Array], Array]
"""Maps a direction of the weights' shape to one of the same shape."""


@dataclass(frozen=True)
class Root:
    """A factor R of a Hessian, of shape (rows, k), which is never formed.

    Attributes:
        rows: of R.
        forward: R times a direction of the weights' shape; `.reshape(rows, -1)` gives its columns.
        back: R' times what `forward` returns, shape of the weights.
        gram: makes R R', shape (rows, rows).
    """

    rows: int
    forward: Operator
    back: Operator
    gram: Callable[[], Array]


@dataclass(frozen=True)
class Objective(ABC):
    """Mean loss over records plus ridge / 2 times the squared norm of the weights.

    Every method takes features X of shape (n, d), n >= 1, dense or CSR, and class codes y of
    shape (n,). Results are float64; pass float64 features, because float32 ones are converted
    at every call. Means over clients weighted by their records are the objective of the pooled
    records (fednewton.txt, proposition 1; it holds for any mean loss).

    Attributes:
        ridge: lambda, finite and >= 0; also applied to a constant feature.

    Raises:
        ValueError: ridge out of its range.
        FeatureError: shapes of weights, X and y do not fit together, or n is 0.
        LabelError: a code is outside 0..C-1.
    """

    ridge: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ridge) and self.ridge >= 0):
            raise ValueError(f"ridge is {self.ridge}; give a finite number, at least 0")

    @property
    @abstractmethod
    def classes(self) -> int:
        """C, the number of classes."""

    @property
    def quadratic(self) -> bool:
        """Whether the Hessian is the same at all weights."""
        return False

    @abstractmethod
    def shape(self, features: int) -> tuple[int, ...]:
        """Shape of the weights for d features."""

    def zeros(self, features: int) -> Array:
        """Weights of zeros for d features."""
        return np.zeros(self.shape(features))

    # The loss of the margins; margins have the shape (n, C), or (n,) where the weights are (d,).

    @abstractmethod
    def losses(self, margins: Array, y: Codes) -> Array:
        """Loss of each record, shape (n,)."""

    @abstractmethod
    def residuals(self, margins: Array, y: Codes) -> Array:
        """Derivative of each record's loss by its margins, shape of the margins."""

    @abstractmethod
    def curvature(self, margins: Array) -> Operator:
        """Each record's second derivative by its margins, as a map of (changes of) margins."""

    @abstractmethod
    def diagonal_curvature(self, margins: Array) -> Array:
        """The diagonal of each record's second derivative, shape of the margins."""

    @abstractmethod
    def hessian(self, weights: Array, X: Features, y: Codes) -> Array:
        """The Hessian, shape (k, k), as it acts on `weights.reshape(k, -1)`.

        k is d where all columns of the weights share one Hessian (squared loss), else the number
        of weights in C order.
        """

    @abstractmethod
    def root(self, weights: Array, X: Features) -> "Root":
        """R with Hessian = R'R / n + ridge I, as `hessian` acts; n is the number of records."""

    def value(self, weights: Array, X: Features, y: Codes) -> float:
        """Objective at these weights."""
        self._check(weights, X, y)
        return self._value(weights, X @ weights, y)

    def gradient(self, weights: Array, X: Features, y: Codes) -> Array:
        """Gradient by the weights, of their shape."""
        self._check(weights, X, y)
        return self._gradient(weights, X, X @ weights, y)

    def value_and_gradient(self, weights: Array, X: Features, y: Codes) -> tuple[float, Array]:
        """Both, for one product with the features instead of two."""
        self._check(weights, X, y)
        margins = X @ weights
        return self._value(weights, margins, y), self._gradient(weights, X, margins, y)

    def hessian_operator(self, weights: Array, X: Features, y: Codes) -> Operator:
        """The Hessian at these weights as a map; two products with the features a call."""
        self._check(weights, X, y)
        curve = self.curvature(X @ weights)

        def product(direction: Array) -> Array:
            return X.T @ curve(X @ direction) / X.shape[0] + self.ridge * direction

        return product

    def hessian_product(self, weights: Array, X: Features, y: Codes, direction: Array) -> Array:
        """Hessian at `weights` times a direction of their shape (fednewton.txt, eq. 11)."""
        return self.hessian_operator(weights, X, y)(direction)

    def hessian_diagonal(self, weights: Array, X: Features, y: Codes) -> Array:
        """Diagonal of the Hessian, shape of the weights."""
        self._check(weights, X, y)
        curves = self.diagonal_curvature(X @ weights)
        return _squares(X).T @ curves / X.shape[0] + self.ridge

    def fisher_diagonal(self, weights: Array, X: Features, y: Codes) -> Array:
        """Mean squared gradient of the records' losses plus ridge (fednewton.txt, eq. 12)."""
        self._check(weights, X, y)
        squares: Array = np.square(self.residuals(X @ weights, y))
        return _squares(X).T @ squares / X.shape[0] + self.ridge

    def predict(self, weights: Array, X: Features) -> NDArray[np.int64]:
        """Class codes, shape (n,): the largest margin, the lowest class on a tie."""
        return np.argmax(X @ weights, axis=1)

    def _check_weights(self, weights: Array, X: Features, outputs: str) -> None:
        if len(X.shape) != 2 or X.shape[0] == 0:
            raise FeatureError(f"features have the shape {X.shape}; give at least one record")
        if weights.shape != self.shape(X.shape[1]):
            raise FeatureError(
                f"weights have the shape {weights.shape}, {X.shape[1]} features and"
                f" {outputs} need {self.shape(X.shape[1])}"
            )

    def _value(self, weights: Array, margins: Array, y: Codes) -> float:
        penalty = 0.5 * self.ridge * float(np.vdot(weights, weights))
        return float(np.mean(self.losses(margins, y))) + penalty

    def _gradient(self, weights: Array, X: Features, margins: Array, y: Codes) -> Array:
        return X.T @ self.residuals(margins, y) / X.shape[0] + self.ridge * weights

    def _check(self, weights: Array, X: Features, y: Codes) -> None:
        self._check_weights(weights, X, f"{self.classes} classes")
        if y.shape != (X.shape[0],):
            raise FeatureError(f"{X.shape[0]} records and labels of the shape {y.shape}")
        if y.dtype.kind not in "iu":
            raise LabelError(
                f"labels of type {y.dtype}, expected class codes 0..{self.classes - 1} of type"
                " int64 (np.unique(labels, return_inverse=True) makes them)"
            )
        if not 0 <= int(y.min()) <= int(y.max()) < self.classes:
            raise LabelError(
                f"class codes from {y.min()} to {y.max()}, the objective has"
                f" {self.classes} classes; code them 0..{self.classes - 1}"
            )


@dataclass(frozen=True)
class ColumnPerClass(Objective):
    """An objective whose weights have the shape (d, C), one column a class.

    Attributes:
        ridge: lambda, >= 0.
        outputs: C, at least 2.

    Raises:
        ValueError: an attribute out of its range.
    """

    outputs: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outputs < 2:
            raise ValueError(f"{self.outputs} classes; a classifier needs at least two")

    @property
    def classes(self) -> int:
        """C."""
        return self.outputs

    def shape(self, features: int) -> tuple[int, ...]:
        """(d, C)."""
        return (features, self.outputs)


def gram(X: Features, weights: Array | None = None) -> Array:
    """X' diag(weights) X, dense, shape (d, d); `weights` of shape (n,), None for ones."""
    scaled = X if weights is None else scale_rows(X, weights)
    product = X.T @ scaled
    return product if isinstance(X, np.ndarray) else product.toarray()


def kernel(X: Features) -> Array:
    """X X', dense, shape (n, n)."""
    product = X @ X.T
    return product if isinstance(product, np.ndarray) else product.toarray()


def scale_rows(X: Features, factors: Array) -> Features:
    """Row i of X times factors[i]; CSR stays CSR."""
    if isinstance(X, np.ndarray):
        return X * factors[:, None]
    return X.multiply(factors[:, None]).tocsr()


def add_to_diagonal(matrix: Array, value: float) -> Array:
    """The matrix itself, with `value` added to its diagonal."""
    matrix.flat[:: matrix.shape[0] + 1] += value
    return matrix


def _squares(X: Features) -> Features:
    return np.square(X) if isinstance(X, np.ndarray) else X.multiply(X).tocsr()
