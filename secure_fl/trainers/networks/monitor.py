"""FedRCO's look-ahead gradient monitor (fedrco.txt, section 4.2)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from secure_fl.federation import broadcastable

Verdict: TypeAlias = Literal["step", "rollback", "reset"]


@broadcastable
@dataclass(frozen=True)
class Thresholds:
    """When a step is anomalous.

    Attributes:
        window: K, norms of which the mean is the baseline, at least 1.
        low: tau_low, scores above it are rolled back.
        high: tau_high, scores above it reset the client.
        stable: norm of a rolled-back step (E.3), and the baseline while there is no history.
        patience: rollbacks in a row after which the client is reset, over the ends of rounds.
        joint: the norm of all layers' steps together; otherwise the sum of the layers' norms (9).
    """

    window: int = 10
    low: float = 10.0
    high: float = 1000.0
    stable: float = 10.0
    patience: int = 3
    joint: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.low <= self.high and self.stable > 0):
            raise ValueError(f"monitor: found {self}, expected 0 < low <= high and stable > 0")
        if self.window < 1 or self.patience < 1:
            raise ValueError(f"monitor: found {self}, expected window and patience >= 1")


@dataclass
class Monitor:
    """Judges the norm of each preconditioned gradient before it is applied.

    Attributes:
        thresholds: when a step is anomalous.
        history: the last norms that were applied, oldest first.
        rollbacks: steps bounded so far.
        resets: hard resets so far.
        in_a_row: rollbacks since the last step that was applied whole.
    """

    thresholds: Thresholds
    history: list[float] = field(default_factory=list)
    rollbacks: int = 0
    resets: int = 0
    in_a_row: int = 0

    def norm(self, layers: Iterable[float]) -> float:
        """Of a step, of the norms of its layers (9)."""
        return math.hypot(*layers) if self.thresholds.joint else math.fsum(layers)

    def judge(self, norm: float) -> Verdict:
        """What to do with a step of that norm (10, 11); counts it, and remembers what is applied.

        The norm of a bounded step enters the history as `stable`, never as it was found, else one
        explosion would raise the baseline that must detect the next.
        """
        t = self.thresholds
        baseline = sum(self.history) / len(self.history) if self.history else t.stable
        score = norm / (baseline + 1e-12) if math.isfinite(norm) else math.inf
        if score <= t.low:
            self.in_a_row = 0
            self._remember(norm)
            return "step"
        self.in_a_row += 1
        if score > t.high or self.in_a_row > t.patience:
            self.reset()
            return "reset"
        self.rollbacks += 1
        self._remember(min(norm, t.stable))
        return "rollback"

    def reset(self) -> None:
        """Counts a hard reset and forgets the history."""
        self.resets += 1
        self.history = []
        self.in_a_row = 0

    def _remember(self, norm: float) -> None:
        self.history = [*self.history, norm][-self.thresholds.window :]
