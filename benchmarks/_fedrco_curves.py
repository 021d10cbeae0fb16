"""What a run of a method of the FedRCO benchmarks found."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np

Triple: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class Curve:
    """What a run found: accuracies in percent.

    Attributes:
        shared: of the global model, after every round; shorter where the handle refused the
            updates of all clients, or the run was left off.
        seconds: spent until then in training, measuring left out.
        own: by round: of the personal models on all test records, of these on the client's mix of
            classes, and of the global model on it; means over the participants.
        counted: rollbacks, resets, inversions; a mean over seeds need not be whole.
        inverting: share of the clients' time spent in inversions, in percent.
        tuned: after the last round of FedAvg, what `own` is with models tuned at the clients.
        traffic: bytes to a participant and from it, a round.
        turns: clients that took part, summed over the rounds.
        refused: the handle refused the updates of all clients: the run goes no further.
        steps: of each client that kept its trajectory, see `trajectory`; None for what is not
            finite.
    """

    shared: list[float]
    seconds: list[float]
    own: dict[int, Triple]
    counted: Triple
    inverting: float
    tuned: Triple | None = None
    traffic: tuple[float, float] = (0.0, 0.0)
    turns: float = 0
    refused: bool = False
    steps: dict[str, list[list[float | None]]] = field(default_factory=dict)

    def reached(self, percent: float) -> int | None:
        """The first round after which the global model has that accuracy; None if it never has."""
        return next((n for n, a in enumerate(self.shared, 1) if a >= percent), None)

    def as_json(self) -> dict[str, Any]:
        """As JSON types, to the last bit."""
        return asdict(self) | {"own": {str(number): found for number, found in self.own.items()}}

    @staticmethod
    def of_json(content: dict[str, Any]) -> "Curve":
        """What `as_json` returned."""
        own = {int(number): triple(found) for number, found in content["own"].items()}
        down, up = content["traffic"]
        tuned = content["tuned"]
        changed = {
            "own": own,
            "counted": triple(content["counted"]),
            "tuned": None if tuned is None else triple(tuned),
            "traffic": (down, up),
        }
        return Curve(**{**content, **changed})


def averaged(curves: Sequence[Curve]) -> Curve:
    """The mean of one setting's runs, as far as all of them went; without trajectories."""

    def mean(rows: Iterable[Sequence[float]]) -> list[float]:
        return [float(value) for value in np.mean(list(zip(*rows, strict=False)), axis=1)]

    numbers = [n for n in curves[0].own if all(n in each.own for each in curves)]
    reached = all(each.shared for each in curves)
    personal, personal_mix, global_mix = (
        {n: float(np.mean([each.own[n][i] for each in curves])) for n in numbers} for i in range(3)
    )
    tuned = [each.tuned for each in curves if each.tuned is not None]
    down, up = mean(each.traffic for each in curves)
    return Curve(
        mean(each.shared for each in curves) if reached else [],
        mean(each.seconds for each in curves) if reached else [],
        {n: (personal[n], personal_mix[n], global_mix[n]) for n in numbers},
        triple(mean(each.counted for each in curves)),
        float(np.mean([each.inverting for each in curves])),
        triple(mean(tuned)) if tuned else None,
        (down, up),
        float(np.mean([each.turns for each in curves])),
        any(each.refused for each in curves),
    )


def finite(rows: Iterable[Sequence[float]]) -> list[list[float | None]]:
    """Rows of numbers with None for what is not finite: JSON has neither NaN nor infinity."""
    return [[value if math.isfinite(value) else None for value in row] for row in rows]


def triple(values: Sequence[float]) -> Triple:
    """Three numbers as a tuple."""
    first, second, third = values
    return first, second, third
