"""Ways for a client to apply the inverse of its Hessian (fednewton.txt, appendix A).

Every solver approximates (Hessian + damping I)^-1 v for the client's own Hessian. The server's
L-BFGS, which needs no client, stands in `lbfgs`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from secure_fl.errors import InputError
from secure_fl.federation import broadcastable
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array, Codes, Features, Operator, Root, add_to_diagonal

MOST_UNKNOWNS = 20_000
"""Side of the largest Hessian that is formed: 3.2 GB."""


@dataclass(frozen=True)
class Solver(ABC):
    """How a client solves with its Hessian.

    Attributes:
        damping: added to the Hessian's diagonal, finite and >= 0, beside the objective's ridge.

    Raises:
        ValueError: an attribute out of its range.
    """

    damping: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.damping) and self.damping >= 0):
            raise ValueError(f"damping is {self.damping}; give a finite number, at least 0")

    @abstractmethod
    def solve(
        self,
        objective: Objective,
        weights: Array,
        X: Features,
        y: Codes,
        right: Array,
        cache: MutableMapping[str, Any],
    ) -> Array:
        """Approximates (Hessian at `weights` + damping I)^-1 `right`, shape of the weights.

        Args:
            objective: gives the Hessian.
            weights: where; shape `objective.shape(d)`.
            X: the client's features, (n, d).
            y: its class codes, (n,).
            right: v, shape of the weights.
            cache: keeps factors that serve later rounds; may be emptied at any time.

        Raises:
            InputError: the Hessian is singular, or too large for this solver.
        """

    def _operator(self, objective: Objective, weights: Array, X: Features, y: Codes) -> Operator:
        product = objective.hessian_operator(weights, X, y)
        return lambda direction: product(direction) + self.damping * direction


@broadcastable
@dataclass(frozen=True)
class Exact(Solver):
    """Cholesky factor of the Hessian; of a quadratic objective it is computed once and kept.

    A client with fewer records than features factors the Gram matrix of the Hessian's root
    instead, which is the same solution: n rows in place of d for the squared loss, n C in place
    of d C for the softmax.
    """

    def solve(
        self,
        objective: Objective,
        weights: Array,
        X: Features,
        y: Codes,
        right: Array,
        cache: MutableMapping[str, Any],
    ) -> Array:
        """See `Solver.solve`."""
        if not objective.quadratic:
            return self._factor(objective, weights, X, y)(right)
        key = f"inverse {objective!r} {self!r}"
        if key not in cache:
            cache[key] = self._factor(objective, weights, X, y)
        solved: Array = cache[key](right)
        return solved

    def _factor(self, objective: Objective, weights: Array, X: Features, y: Codes) -> Operator:
        n, d = X.shape
        shift = objective.ridge + self.damping
        root = objective.root(weights, X) if n < d and shift > 0 else None
        unknowns = root.rows if root else d if objective.quadratic else weights.size
        if unknowns > MOST_UNKNOWNS:
            raise InputError(
                f"exact solver: a Hessian of {unknowns:,} unknowns, at most {MOST_UNKNOWNS:,} are"
                " formed; use ConjugateGradient"
            )
        if root:
            return _dual_inverse(root, n, shift)
        hessian = objective.hessian(weights, X, y)
        return _inverse(add_to_diagonal(hessian, self.damping))


@broadcastable
@dataclass(frozen=True)
class ConjugateGradient(Solver):
    """Conjugate gradients by Hessian products (appendix A.1): no matrix is formed.

    Attributes:
        iterations: at most so many products, >= 1. The paper's example is 10.
        tolerance: stops at this norm of the residual relative to the right side, >= 0.
    """

    iterations: int = 10
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations < 1 or not self.tolerance >= 0:
            raise ValueError(f"{self.iterations} iterations, tolerance {self.tolerance}")

    def solve(
        self,
        objective: Objective,
        weights: Array,
        X: Features,
        y: Codes,
        right: Array,
        cache: MutableMapping[str, Any],
    ) -> Array:
        """See `Solver.solve`; stops early where the Hessian has no curvature left."""
        operator = self._operator(objective, weights, X, y)
        solution = np.zeros(right.shape)
        rest = np.array(right, dtype=np.float64)
        direction = rest.copy()
        squared = float(np.vdot(rest, rest))
        goal = self.tolerance**2 * squared
        for _ in range(self.iterations):
            curved = operator(direction)
            bend = float(np.vdot(direction, curved))
            if not (bend > 0 and squared > goal):
                break
            length = squared / bend
            solution += length * direction
            rest -= length * curved
            previous, squared = squared, float(np.vdot(rest, rest))
            direction = rest + (squared / previous) * direction
        return solution


@broadcastable
@dataclass(frozen=True)
class Diagonal(Solver):
    """Division by the Hessian's diagonal, or by the empirical Fisher's (appendix A.2).

    Attributes:
        fisher: True takes eq. (12), as the paper does; it vanishes where the model fits, so steps
            grow without bound. False, the default, takes the exact diagonal at the same cost.
    """

    fisher: bool = False

    def solve(
        self,
        objective: Objective,
        weights: Array,
        X: Features,
        y: Codes,
        right: Array,
        cache: MutableMapping[str, Any],
    ) -> Array:
        """See `Solver.solve`."""
        kind = objective.fisher_diagonal if self.fisher else objective.hessian_diagonal
        diagonal = kind(weights, X, y) + self.damping
        if not diagonal.min() > 0:
            raise InputError("diagonal solver: a zero on the diagonal; give a ridge or a damping")
        return right / diagonal


@broadcastable
@dataclass(frozen=True)
class LowRank(Solver):
    """The largest eigenpairs exactly, the rest as a multiple of the identity (appendix A.4).

    The multiple is the smallest kept eigenvalue, so that the flat directions take the gradient
    step that this bound on their curvature allows. The pairs come from early-stopped Lanczos by
    Hessian products, so that a nearly flat pair may be a mixture of its neighbours.

    Attributes:
        rank: eigenpairs, >= 1; all of a smaller Hessian.
        products: Hessian products, >= rank; None takes 2 rank + 10.
    """

    rank: int = 20
    products: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank < 1 or (self.products is not None and self.products < self.rank):
            raise ValueError(f"rank {self.rank} from {self.products} products")

    def solve(
        self,
        objective: Objective,
        weights: Array,
        X: Features,
        y: Codes,
        right: Array,
        cache: MutableMapping[str, Any],
    ) -> Array:
        """See `Solver.solve`."""
        if not right.any():
            return np.zeros(right.shape)
        key = f"eigenpairs {objective!r} {self!r}"
        pairs = cache.get(key) if objective.quadratic else None
        if pairs is None:
            pairs = self._eigenpairs(objective, weights, X, y, right)
        if objective.quadratic:
            cache[key] = pairs
        values, vectors = pairs
        if not values[0] > 0:
            raise InputError("low-rank solver: no curvature; give a ridge or a damping")
        columns = right.reshape(len(vectors), -1)
        inside = vectors.T @ columns
        solved = vectors @ (inside / values[:, None]) + (columns - vectors @ inside) / values[0]
        return solved.reshape(right.shape)

    def _eigenpairs(
        self, objective: Objective, weights: Array, X: Features, y: Codes, right: Array
    ) -> tuple[Array, Array]:
        """Ascending eigenvalues, shape (rank,), and vectors, shape (k, rank)."""
        operator = self._operator(objective, weights, X, y)
        size = X.shape[1] if objective.quadratic else right.size

        def product(vector: Array) -> Array:
            if not objective.quadratic:
                return operator(vector.reshape(right.shape)).ravel()
            # Every column of the weights has the same Hessian: one column is enough.
            wide = np.zeros(right.shape)
            wide[:, 0] = vector
            return operator(wide)[:, 0]

        products = min(self.products or 2 * self.rank + 10, size)
        basis, curved = _lanczos(product, right.reshape(size, -1).sum(axis=1), products)
        values, inside = np.linalg.eigh(basis @ curved.T)
        return values[-self.rank :], basis.T @ inside[:, -self.rank :]


def _lanczos(product: Operator, start: Array, count: int) -> tuple[Array, Array]:
    """Orthonormal basis of a Krylov space and its products, each of shape (count, k).

    Where the space is exhausted before `count` vectors, it goes on from a fixed random one.
    """
    spare = np.random.default_rng(0)
    basis, curved = np.zeros((2, count, len(start)))
    vector = start
    for i in range(count):
        scale = float(np.linalg.norm(vector))
        rest = _orthogonal(vector, basis[:i])
        while not np.linalg.norm(rest) > 1e-10 * scale:
            rest = _orthogonal(spare.standard_normal(len(start)), basis[:i])
            scale = 1.0
        basis[i] = rest / np.linalg.norm(rest)
        vector = curved[i] = product(basis[i])
    return basis, curved


def _orthogonal(vector: Array, basis: Array) -> Array:
    # Twice: after one pass rounding can leave a share along the basis.
    for _ in range(2):
        vector = vector - (basis @ vector) @ basis
    return vector


def _inverse(matrix: Array) -> Operator:
    from scipy.linalg import cho_factor, cho_solve

    try:
        factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError as error:
        raise InputError(
            "exact solver: the Hessian is singular; give the objective a ridge or the solver a"
            " damping"
        ) from error
    side = len(matrix)

    def solve(right: Array) -> Array:
        columns = right.reshape(side, -1)
        solved: Array = cho_solve(factor, columns, check_finite=False)
        return solved.reshape(right.shape)

    return solve


def _dual_inverse(root: Root, n: int, shift: float) -> Operator:
    """(R'R/n + shift I)^-1 = (I - R' (R R' + n shift I)^-1 R) / shift (Woodbury)."""
    inner = _inverse(add_to_diagonal(root.gram(), n * shift))

    def solve(right: Array) -> Array:
        solved: Array = (right - root.back(inner(root.forward(right)))) / shift
        return solved

    return solve
