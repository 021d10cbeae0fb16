"""Softmax cross-entropy: the usual loss of a linear head."""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, softmax

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
class SoftmaxLoss(ColumnPerClass):
    """-log of the softmax probability of the record's class (fednewton.txt, section 3.1).

    Weights have the shape (d, C), one column a class. Exact at any finite margin: nothing
    overflows.

    Attributes:
        ridge: lambda, >= 0. Without it the Hessian is singular, since adding one vector to all
            columns changes nothing.
        outputs: C, at least 2.

    Raises:
        ValueError: an attribute out of its range.
    """

    def losses(self, margins: Array, y: Codes) -> Array:
        """Minus the log-probability of each record's class."""
        return -log_softmax(margins, axis=1)[np.arange(len(y)), y]

    def residuals(self, margins: Array, y: Codes) -> Array:
        """Probabilities less the one-hot targets."""
        rest = softmax(margins, axis=1)
        rows = np.arange(len(y))
        # 1 - p of a sure record, summed from the others, keeps digits that p - 1 would lose.
        rest[rows, y] = 0.0
        rest[rows, y] = -rest.sum(axis=1)
        return rest

    def curvature(self, margins: Array) -> Operator:
        """diag(p) - p p' of each record."""
        p = softmax(margins, axis=1)

        def curve(change: Array) -> Array:
            weighted = p * change
            return weighted - p * weighted.sum(axis=1, keepdims=True)

        return curve

    def diagonal_curvature(self, margins: Array) -> Array:
        """p (1 - p)."""
        p = softmax(margins, axis=1)
        return p * (1.0 - p)

    def hessian(self, weights: Array, X: Features, y: Codes) -> Array:
        """Shape (d C, d C), weights in C order: entry (i, a), (j, b) is the mean of
        x_i x_j p_a ([a = b] - p_b), plus ridge on the diagonal.
        """
        self._check(weights, X, y)
        n, d = X.shape
        C = self.outputs
        p = softmax(X @ weights, axis=1)
        blocks = np.empty((d, C, d, C))
        for a in range(C):
            for b in range(a, C):
                slopes = p[:, a] * ((a == b) - p[:, b])
                blocks[:, a, :, b] = gram(X, slopes / n)
                blocks[:, b, :, a] = blocks[:, a, :, b]
        return add_to_diagonal(blocks.reshape(d * C, d * C), self.ridge)

    def root(self, weights: Array, X: Features) -> Root:
        """n C rows, one block B_i' (x_i' V) of C a record i.

        diag(p) - p p' = B B' for B = diag(q) - p q' and q = sqrt(p), for q'q is 1.
        """
        p = softmax(X @ weights, axis=1)
        q = np.sqrt(p)

        def forward(direction: Array) -> Array:
            margins = X @ direction
            return q * (margins - (p * margins).sum(axis=1, keepdims=True))

        def back(rows: Array) -> Array:
            product: Array = X.T @ (q * rows - p * (q * rows).sum(axis=1, keepdims=True))
            return product

        return Root(p.size, forward, back, lambda: _block_kernel(kernel(X), p, q))


def _block_kernel(K: Array, p: Array, q: Array) -> Array:
    """Entry (i, a), (j, b): K_ij q_ia q_jb ([a = b] - p_ja - p_ib + p_i'p_j), shape (n C, n C)."""
    n, C = p.shape
    inner = p @ p.T
    blocks = np.empty((n, C, n, C))
    for a in range(C):
        for b in range(C):
            product = inner + float(a == b) - p[None, :, a] - p[:, None, b]
            blocks[:, a, :, b] = K * product * q[:, None, a] * q[None, :, b]
    return blocks.reshape(n * C, n * C)
