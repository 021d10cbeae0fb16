"""FedAvgR's three regularisers (fedavgr.txt, section 4.1)."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from secure_fl.federation import broadcastable
from secure_fl.trainers.networks.models import Array


@broadcastable
@dataclass(frozen=True)
class Regularization:
    """Weights of the three terms, each >= 0; a term of weight 0 is not computed.

    Attributes:
        trace: alpha, of the trace norm of W.
        features: beta, of the Frobenius norm of the batch's features.
        mmd: gamma, of the squared MMD between the batch's features and the global ones.
        samples: drawn from the global feature distribution once a round, at least 1; with
            `per_class` from each class's.
        per_class: the MMD is taken between features of one class, see `squared_mmd_by_class`. Not
            in the paper: the plain MMD also pulls together clients of different classes.
    """

    trace: float = 0.0
    features: float = 0.0
    mmd: float = 0.0
    samples: int = 100
    # Books of DP-SGD, which refuses it, name messages by this text: those of before stay valid.
    per_class: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if min(self.trace, self.features, self.mmd) < 0 or self.samples < 1:
            raise ValueError(f"regularization: found {self}, expected weights >= 0, samples >= 1")

    def penalty(self, head: Tensor, phi: Tensor, y: Tensor, centres: Tensor | None) -> Tensor:
        """The sum of the terms.

        Args:
            head: W, shape (C, D).
            phi: features of a batch, shape (records, D).
            y: class codes, shape (records,).
            centres: mean of the global features, shape (1, D), or with `per_class` of each class's,
                shape (C, D); None leaves MMD out.
        """
        total = head.new_zeros(())
        if self.trace:
            total = total + self.trace * trace_norm(head)
        if self.features:
            total = total + self.features * torch.linalg.vector_norm(phi)
        if self.mmd and centres is not None:
            by_class = self.per_class
            found = squared_mmd_by_class(phi, y, centres) if by_class else squared_mmd(phi, centres)
            total = total + self.mmd * found
        return total


def trace_subgradient(matrix: Array) -> tuple[float, Array]:
    """The trace norm and its subgradient of least norm; see `trace_norm`.

    By the eigenvectors of the smaller of the Gram matrices, in float64: at such sizes half the time
    of a decomposition, and exact far below the rounding of float32, which is what parameters are.
    """
    if not np.isfinite(matrix).all():
        # The decomposition would raise; not a number makes the handle refuse the update.
        return math.nan, np.full_like(matrix, math.nan)
    wide = matrix.astype(np.float64)
    if len(wide) > wide.shape[1]:
        wide = wide.T
    squares, vectors = np.linalg.eigh(wide @ wide.T)
    s = np.sqrt(np.maximum(squares, 0.0))
    # Directions at rounding level are no directions: any choice of theirs would be arbitrary.
    kept = s > s[-1] * max(matrix.shape) * np.finfo(np.float32).eps
    basis = vectors[:, kept]
    direction = (basis / s[kept]) @ (basis.T @ wide)
    own = direction if matrix.shape == direction.shape else direction.T
    return float(s.sum()), own.astype(matrix.dtype)


class _TraceNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        value, subgradient = trace_subgradient(matrix.detach().cpu().numpy())
        ctx.save_for_backward(torch.from_numpy(subgradient).to(matrix.device))
        return matrix.new_tensor(value)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        (subgradient,) = ctx.saved_tensors
        return upstream[0] * subgradient


def trace_norm(matrix: Tensor) -> Tensor:
    """Sum of the singular values; the gradient is the subgradient of least norm, U_r V_r^T.

    At full rank that is the gradient. At lower rank it leaves the null directions at 0. Of a
    matrix that is not finite both are not a number.
    """
    value: Tensor = _TraceNorm.apply(matrix)  # type: ignore[no-untyped-call]  # torch leaves apply untyped
    return value


def squared_mmd(phi: Tensor, other: Tensor) -> Tensor:
    """|mean phi - mean other|^2, the expansion of section 4.1 with the inner product as kernel."""
    return (phi.mean(dim=0) - other.mean(dim=0)).square().sum()


def squared_mmd_by_class(phi: Tensor, y: Tensor, centres: Tensor) -> Tensor:
    """Sum over classes c of (n_c / n) |mean of the batch's phi of class c - centre of c|^2.

    The squared MMDs of the class-conditional distributions, weighted by the classes' shares of the
    batch: 0 where clients agree on every class, however the classes are divided among them. Of one
    class it is the squared MMD. A class whose centre is not a number, for nobody told it, is left
    out.

    Args:
        phi: features of a batch, shape (records, D).
        y: class codes, shape (records,).
        centres: mean of each class's global features, shape (C, D).
    """
    own = torch.nn.functional.one_hot(y, len(centres)).to(phi.dtype)  # (records, C)
    counts = own.sum(dim=0)
    gaps = (own.T @ phi) / counts.clamp(min=1)[:, None] - centres
    told = (counts > 0) & ~centres.isnan().any(dim=1)
    return (counts[told] / len(phi) * gaps[told].square().sum(dim=1)).sum()
