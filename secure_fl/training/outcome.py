"""What a run of a method by rounds leaves, whatever it trains."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secure_fl.training.linear_model import LinearModel
    from secure_fl.training.network_model import TrainedNetwork


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run leaves.

    Attributes:
        model: the global model.
        rounds: that were run in all, before a resumption too.
        figures: of the last round: test accuracy, contraction factor and step, where there are.
        traffic: bytes that each client sent and received, by name.
        privacy: one line with epsilon, delta and unit; None without noise.
        personal: clients' own models, by name; each is its client's and goes to nobody else.
    """

    model: "LinearModel | TrainedNetwork"
    rounds: int
    figures: Mapping[str, float]
    traffic: Mapping[str, tuple[int, int]]
    privacy: str | None
    personal: Mapping[str, "TrainedNetwork"] = field(default_factory=dict)
