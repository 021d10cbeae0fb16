"""The course of one client's second-order steps (fedrco.txt, figure 4), kept by the client itself.

A client keeps it that was asked to by `keep_trajectory`. It stays in the client's state, so that a
resumed run has all of it, and never leaves the client by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from secure_fl.federation import Client
from secure_fl.trainers.networks.kfac import Layer, gradient_of
from secure_fl.trainers.networks.models import Array
from secure_fl.trainers.networks.monitor import Verdict

_KEPT = "rco.trajectory"
VERDICTS: tuple[Verdict, ...] = ("step", "rollback", "reset")
"""What the numbers in the last column of a trajectory stand for."""
COLUMNS = ("round", "gradient", "layer", "found", "applied", "verdict")
"""Of a trajectory: round of the federation, from 0; largest norm over the layers of the gradient,
and of the natural gradient; the latter's norm as the monitor takes it (9), before it was judged and
as it was applied, 0 at a reset; the verdict's place in `VERDICTS`. Norms are those before the
learning rate."""


def keep_trajectory(client: Client) -> None:
    """Has a client keep its steps from here on; what it kept before is dropped."""
    client.state[_KEPT] = np.zeros((0, len(COLUMNS)))


def trajectory(client: Client) -> Array:
    """The steps that a client kept, shape (steps, 6); see `COLUMNS`."""
    found: Array = client.state.get(_KEPT, np.zeros((0, len(COLUMNS))))
    return found


@dataclass
class Recording:
    """Steps of one round of a client.

    Attributes:
        client: whose.
        rows: one a step; None where the client keeps no trajectory.
    """

    client: Client
    rows: list[list[float]] | None = None

    def __post_init__(self) -> None:
        if _KEPT in self.client.state:
            self.rows = []

    def add(
        self,
        layers: Sequence[Layer],
        norms: Sequence[float],
        found: float,
        applied: float,
        verdict: Verdict,
    ) -> None:
        """Takes in a step.

        Args:
            layers: with the batch's gradients.
            norms: of the natural gradient, layer by layer.
            found: its norm.
            applied: norm of what was applied of it.
            verdict: on it.
        """
        if self.rows is not None:
            gradient = max(_norm(gradient_of(layer)) for layer in layers)
            place = VERDICTS.index(verdict)
            self.rows.append([self.client.round, gradient, max(norms), found, applied, place])

    def keep(self) -> None:
        """Adds the round to what the client kept."""
        if self.rows:
            self.client.state[_KEPT] = np.concatenate([trajectory(self.client), self.rows])


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))
