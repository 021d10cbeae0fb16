"""What a client promises of each of its records while a network is trained."""

import math
from dataclasses import dataclass

from secure_fl.federation import broadcastable
from secure_fl.trainers.networks.augmentation import Shifts


@broadcastable
@dataclass(frozen=True)
class DPSGD:
    """A promise for a whole run; local steps then are DP-SGD (Abadi et al. 2016, algorithm 1).

    Attributes:
        epsilon: per record, of all rounds together, above 0.
        delta: in (0, 1).
        rounds: that a client may take part in, at least 1; fewer cost less.
        clip: L2 norm of one record's gradient, above 0.
        feature_norm: L2 norm of one record's features where their mean is released (FedAvgR's MMD),
            above 0. The default is what random Fourier features never exceed.
        feature_share: of epsilon that those means alone would cost, in (0, 1).
        beside: noise multiplier, above 0, of one Gaussian sum over all records that is in the
            promise too and in the books already; None without.
        shifts: copies of records that are images, at no cost in epsilon; None without.

    Raises:
        ValueError: an attribute out of its range.
    """

    epsilon: float
    delta: float
    rounds: int
    clip: float = 1.0
    feature_norm: float = math.sqrt(2)
    feature_share: float = 0.1
    beside: float | None = None
    shifts: Shifts | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "clip", "feature_norm", "beside"):
            value = getattr(self, name)
            if value is None and name == "beside":
                continue
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}: found {value}, expected a finite number above 0")
        for name in ("delta", "feature_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected it in (0, 1)")
        if self.rounds < 1:
            raise ValueError(f"rounds: found {self.rounds}, expected at least 1")
