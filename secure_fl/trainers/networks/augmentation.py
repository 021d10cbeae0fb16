"""Shifted copies of images, whose mean gradient counts as one record's.

De, Berrada, Hayes, Smith, Balle 2022 ("Unlocking high-accuracy differentially private image
classification through scale", 3.2, augmentation multiplicity): the gradients of a record's copies
are averaged before they are clipped, so that copies cost no privacy.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from dp.exact import RandomSource
from secure_fl.federation import broadcastable


@broadcastable
@dataclass(frozen=True)
class Shifts:
    """Copies of a record as an image, each moved by some pixels; what comes in is 0.

    Attributes:
        image: (channels, height, width); records are its pixels in that order.
        copies: of every record in a step, at least 1; a step takes so many times as long.
        pixels: a copy moves by at most, up or down and left or right, at least 1.

    Raises:
        ValueError: an attribute out of its range.
    """

    image: tuple[int, int, int]
    copies: int = 4
    pixels: int = 2

    def __post_init__(self) -> None:
        if len(self.image) != 3 or min(*self.image, self.copies, self.pixels) < 1:
            raise ValueError(f"shifts: found {self}, expected positive numbers, three of image")

    def moves(self, records: int, source: RandomSource) -> Tensor:
        """Where the copies of all records go, shape (records, copies, 2), from 0 to 2 `pixels`.

        They are drawn for records that a step does not take, too: who is taken moves no other's.
        """
        words = np.frombuffer(source(4 * 2 * self.copies * records), dtype="<u4")
        moves = (words % np.uint32(2 * self.pixels + 1)).astype(np.int64)
        return torch.from_numpy(moves.reshape(records, self.copies, 2))

    def moved(self, X: Tensor, moves: Tensor) -> Tensor:
        """One copy of each record.

        Args:
            X: records, shape (n, d).
            moves: of that copy, shape (n, 2).

        Raises:
            ValueError: records of another size than the image.
        """
        channels, height, width = self.image
        if X.shape[1] != math.prod(self.image):
            raise ValueError(f"shifts: found records of {X.shape[1]} features, images {self.image}")
        edge = (self.pixels,) * 4
        wide = pad(X.reshape(-1, channels, height, width), edge).permute(0, 2, 3, 1)
        moves = moves.to(X.device)
        rows = moves[:, :1] + torch.arange(height, device=X.device)
        columns = moves[:, 1:] + torch.arange(width, device=X.device)
        record = torch.arange(len(X), device=X.device)[:, None, None]
        taken = wide[record, rows[:, :, None], columns[:, None, :]]
        return taken.permute(0, 3, 1, 2).reshape(len(X), -1)


@dataclass(frozen=True)
class Copies:
    """The copies that a step sees.

    Attributes:
        shifts: what they are.
        moves: of all records, shape (records, copies, 2).
    """

    shifts: Shifts
    moves: Tensor

    def of(self, X: Tensor, rows: Tensor) -> list[Tensor]:
        """Those of some records: one tensor of them a copy.

        Args:
            X: all records, shape (records, d).
            rows: indices.
        """
        moves = self.moves[rows.cpu()]
        return [self.shifts.moved(X[rows], moves[:, k]) for k in range(self.shifts.copies)]
