"""Batches and terms on which gradients by other means are compared with autograd's."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from secure_fl.trainers.networks import Regularization

CLASSES, INPUTS = 3, 11
_weights = st.sampled_from([0.0, 0.03, 1.0])


@dataclass(frozen=True)
class Case:
    """One batch.

    Attributes:
        x: records, shape (n, INPUTS), float32, some or most of their numbers 0.
        y: class codes, shape (n,).
        terms: of FedAvgR.
        grouped: whether the MMD is that of each class.
        centred: whether there is anything to pull features to.
        rng: for what else is drawn.
    """

    x: np.ndarray
    y: np.ndarray
    terms: Regularization
    grouped: bool
    centred: bool
    rng: np.random.Generator

    def centres(self, width):
        """Shape (1 or CLASSES, width), float32; nobody told of one class. None without them."""
        if not self.centred:
            return None
        made = self.rng.normal(size=(CLASSES if self.grouped else 1, width)).astype(np.float32)
        if self.grouped:
            made[self.rng.integers(CLASSES)] = np.nan
        return made


@st.composite
def cases(draw):
    """Batches of 1 to 12 records."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    centres = draw(st.sampled_from(["no centre", "one centre", "by class"]))
    weights = (draw(_weights) for _ in range(3))
    n = draw(st.integers(1, 12))
    x = rng.normal(size=(n, INPUTS)).astype(np.float32)
    x[rng.random(x.shape) < draw(st.sampled_from([0.3, 0.8]))] = 0
    grouped = centres == "by class"
    return Case(
        x,
        rng.integers(0, CLASSES, n),
        Regularization(*weights, per_class=grouped),
        grouped,
        centres != "no centre",
        rng,
    )
