"""The search for a method's learning rate in the FedRCO benchmarks."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks._fedrco import ALONE, INTERVAL, PARTITIONS, STEPS, Task, measured
from benchmarks._fedrco_kept import Keep

START = {
    "FedAvg": 0.1,
    "FedAvgM": 0.05,
    "FedAdam": 0.01,
    "FedProx": 0.1,
    ALONE: 0.1,
    **dict.fromkeys(("LocalNewton", "FedPM", "FedRCO-ori", "FedRCO"), 0.025),
}
"""Learning rates that a search begins at: the server's of FedAdam, whose clients take 0.1."""
FACTOR, MOST = 2.0, 7
"""Between neighbouring rates; the most that a search tries."""
TRIED = {"intervals": 25 * INTERVAL // (10 * STEPS), "warm-up": 8}
"""Rounds of a trial: 2.5 T_inv, or enough where the factors are inverted at steps 1, 10 and 50 too.
Before its second inversion a method shows what the first batch at random weights is worth."""
LAST = 3
"""Rounds at the end of a trial that count for its accuracy."""


@dataclass(frozen=True)
class Search:
    """What a search for a learning rate found.

    Attributes:
        scores: training accuracy in percent by rate, mean of a trial's last rounds; 0 where the
            handle refused all updates.
        seconds: a round takes, measuring left out; mean over the trials.
    """

    scores: dict[float, float]
    seconds: float

    @property
    def best(self) -> float:
        """The rate of the highest score; of equal ones the smallest."""
        return max(self.scores, key=lambda rate: (self.scores[rate], -rate))

    @property
    def inside(self) -> bool:
        """Whether a smaller and a larger rate than the best were tried."""
        return min(self.scores) < self.best < max(self.scores)


def climbed(score: Callable[[float], float], start: float) -> dict[float, float]:
    """Scores of a rate and its neighbours, and of more where the best is the last in the row.

    Args:
        score: of a rate; larger is better.
        start: the first rate; its neighbours are `FACTOR` away.

    Returns:
        Scores by rate, at most `MOST`.
    """
    rates = (start / FACTOR, start, start * FACTOR)
    found = {rate: score(rate) for rate in rates}
    while len(found) < MOST:
        best = max(found, key=lambda rate: (found[rate], -rate))
        if best == max(found):
            more = best * FACTOR
        elif best == min(found):
            more = best / FACTOR
        else:
            break
        found[more] = score(more)
    return found


def searched(
    method: str,
    clients: int,
    device: str,
    kind: str,
    data: str = "mnist",
    keep: Keep | None = None,
    start: float | None = None,
) -> Search:
    """Searches a method's rate by trials on the first partition with that many clients.

    Training alone is judged by the own models on the clients' mixes of classes, all others by the
    global model.

    Args:
        method: of `START`.
        clients: number of clients.
        device: where to train.
        kind: of `TRIED`.
        data: of `DATA`.
        keep: where trials are kept; None for nowhere.
        start: the first rate; None for that of `START`.
    """
    spent = []
    rounds = TRIED[kind]

    def score(rate: float) -> float:
        task = Task(
            PARTITIONS[0], clients, method, rounds, device, rate, trial=True,
            warm_up=kind == "warm-up", data=data,
        )  # fmt: skip
        curve = measured(task, keep)
        spent.extend(np.diff(curve.seconds, prepend=0.0).tolist())
        if len(curve.shared) < rounds:
            return 0.0
        if method == ALONE:
            return curve.own[rounds][1]
        return float(np.mean(curve.shared[-LAST:]))

    scores = climbed(score, START[method] if start is None else start)
    return Search(scores, float(np.mean(spent or [0.0])))
