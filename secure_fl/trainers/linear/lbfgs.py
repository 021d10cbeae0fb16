"""L-BFGS on the server: curvature from successive global gradients (fednewton.txt, A.3)."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from secure_fl.federation import broadcastable
from secure_fl.objectives.base import Array, Operator

Pairs: TypeAlias = tuple[tuple[Array, Array], ...]
"""(change of the weights, change of the gradient), oldest first."""


@broadcastable
@dataclass(frozen=True)
class LBFGS:
    """Newton steps without any client's Hessian: one sum a round instead of two.

    Attributes:
        memory: pairs kept, at least 1.

    Raises:
        ValueError: memory below 1.
    """

    memory: int = 10

    def __post_init__(self) -> None:
        if self.memory < 1:
            raise ValueError(f"L-BFGS memory is {self.memory}; give at least 1")

    def direction(self, gradient: Array, pairs: Pairs) -> Array:
        """The step to subtract (Nocedal and Wright, algorithm 7.4).

        Without pairs it is the gradient at unit length; the line search finds the length.
        """
        if not pairs:
            length = float(np.linalg.norm(gradient))
            return gradient / length if length > 0 else gradient
        moved, bent = pairs[-1]
        scale = float(np.vdot(moved, bent) / np.vdot(bent, bent))
        return two_loops(gradient, pairs, lambda vector: scale * vector)


def two_loops(gradient: Array, pairs: Pairs, start: Operator) -> Array:
    """An inverse Hessian, corrected to map the remembered changes, times the gradient.

    Args:
        gradient: shape of the weights.
        pairs: each with positive curvature.
        start: the inverse before the corrections, applied once.
    """
    step = np.array(gradient)
    shares = []
    for moved, bent in reversed(pairs):
        share = float(np.vdot(moved, step) / np.vdot(moved, bent))
        step -= share * bent
        shares.append(share)
    step = np.array(start(step))
    for (moved, bent), share in zip(pairs, reversed(shares), strict=True):
        step += (share - float(np.vdot(bent, step) / np.vdot(moved, bent))) * moved
    return step


def remember(pairs: Pairs, moved: Array, bent: Array, memory: int) -> Pairs:
    """The latest `memory` pairs with a new one, which is left out if it shows no curvature."""
    curvature = float(np.vdot(moved, bent))
    # Rounding (or noise in the sums) can make tiny pairs point the wrong way.
    floor = 1e-10 * float(np.linalg.norm(moved) * np.linalg.norm(bent))
    if memory == 0 or not curvature > floor:
        return pairs
    return (*pairs, (moved, bent))[-memory:]
