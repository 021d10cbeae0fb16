"""What the server of a FedNL method carries from round to round."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import broadcastable

Array = NDArray[Any]


@broadcastable
@dataclass(frozen=True)
class NewtonState:
    """State of fednl, fednl_ls, fednl_cr and the corners of the Newton triangle.

    Attributes:
        weights: the model x^k, shape (d,).
        hessian: the estimate H^k, packed lower triangle.
        round: rounds finished, k.
        bits: sent by a client so far: 64 a float, indices, the initial Hessian where it is sent.
        loss: f(x^{k-1}), what the round started from; NaN before the first.
        gradient_norm: |gradient of f(x^{k-1})|; NaN before the first.
        error: l^{k-1}.
        members: whose estimates `hessian` is the mean of, one name a line.
    """

    weights: Array
    hessian: Array
    round: int = 0
    bits: float = 0.0
    loss: float = float("nan")
    gradient_norm: float = float("nan")
    error: float = 0.0
    members: str = ""


def origin(d: int, start: Array | None) -> Array:
    """x^0: zeros, or a copy of what was given.

    Raises:
        ValueError: another shape than (d,), or not finite.
    """
    if start is None:
        return np.zeros(d)
    x = np.array(start, np.float64)
    if x.shape != (d,) or not np.isfinite(x).all():
        raise ValueError(f"x0: found shape {x.shape}, expected {d} finite numbers")
    return x
