"""L-BFGS on the server: curvature from successive global gradients (fednewton.txt, A.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from secure_fl.federation import broadcastable
from secure_fl.objectives.base import Array

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
        """The step to subtract: the two-loop recursion (Nocedal and Wright, algorithm 7.4).

        Without pairs it is the gradient at unit length, the line search finds the length.
        """
        if not pairs:
            length = float(np.linalg.norm(gradient))
            return gradient / length if length > 0 else gradient
        step = np.array(gradient)
        shares = []
        for moved, bent in reversed(pairs):
            share = float(np.vdot(moved, step) / np.vdot(moved, bent))
            step -= share * bent
            shares.append(share)
        moved, bent = pairs[-1]
        step *= float(np.vdot(moved, bent) / np.vdot(bent, bent))
        for (moved, bent), share in zip(pairs, reversed(shares), strict=True):
            step += (share - float(np.vdot(bent, step) / np.vdot(moved, bent))) * moved
        return step

    def remember(self, pairs: Pairs, moved: Array, bent: Array) -> Pairs:
        """The pairs with a new one, unless it shows no curvature; the oldest go."""
        curvature = float(np.vdot(moved, bent))
        # Rounding (or noise in the sums) can make tiny pairs point the wrong way.
        floor = 1e-10 * float(np.linalg.norm(moved) * np.linalg.norm(bent))
        if not curvature > floor:
            return pairs
        return _last(((*pairs, (moved, bent))), self.memory)


def _last(pairs: Sequence[tuple[Array, Array]], count: int) -> Pairs:
    return tuple(pairs[-count:])
