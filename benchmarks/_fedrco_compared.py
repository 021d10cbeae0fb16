"""FedRCO's models beside others', seed by seed: the cases that judge the paper's claims."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks._fedrco import TUNED
from benchmarks._fedrco_curves import Curve, averaged
from benchmarks._harness import Table, paired
from benchmarks._verdicts import gain

TABLE = "what is compared for the papers' claims"
COLUMNS = ("claim", "setting", "rounds", "seeds", "FedRCO", "the other", "p", "better")


@dataclass(frozen=True)
class Gain:
    """What one method has more than another.

    Attributes:
        seeds: pairs of runs.
        mean: difference, in the unit of the values.
        t: of the paired t-test over the seeds; None for one seed or equal differences.
        p: two-sided; None as t.
    """

    seeds: int
    mean: float
    t: float | None
    p: float | None

    @property
    def better(self) -> bool:
        """Whether the mean is above 0, and with several seeds by p below 0.05."""
        return self.mean > 0 if self.seeds == 1 else gain(self.mean, self.p)


def gained(ours: Sequence[float], theirs: Sequence[float]) -> Gain:
    """The gain of values over others, one of each a seed and in the order of the seeds."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    return Gain(len(differences), float(np.mean(differences)), *paired(differences))


def gained_globally(ours: Sequence[Curve], theirs: Sequence[Curve]) -> Gain | None:
    """The gain of a method's global model, in points; None where a run has no round."""
    runs = [*ours, *theirs]
    if not all(each.shared for each in runs):
        return None
    last = min(len(each.shared) for each in runs) - 1
    return gained([each.shared[last] for each in ours], [each.shared[last] for each in theirs])


def own_mix(curves: Sequence[Curve], method: str) -> list[float] | None:
    """Accuracies on the clients' own mixes of classes, in percent.

    Args:
        curves: of one setting, a seed each; FedAvg's for FedAvg tuned at every client.
        method: FedAvg's are of its global model, all others' of the clients' own models.

    Returns:
        One a seed, after the last round that was measured in all of them; None where there is
        none.
    """
    if method == TUNED:
        tuned = [each.tuned[1] for each in curves if each.tuned is not None]
        return tuned if len(tuned) == len(curves) else None
    measured = averaged(curves).own
    if not measured:
        return None
    place = 2 if method == "FedAvg" else 1
    return [each.own[max(measured)][place] for each in curves]


def add_case(
    cases: Table,
    claim: str,
    setting: str,
    ours: Sequence[Curve],
    rival: str,
    theirs: Sequence[Curve],
) -> None:
    """Adds FedRCO's own models beside a rival's on the own mixes, where both were measured.

    Args:
        cases: with `COLUMNS`.
        claim: its number.
        setting: of the runs.
        ours: FedRCO's runs, a seed each.
        rival: see `own_mix`.
        theirs: of the same seeds.
    """
    mine, other = own_mix(ours, "FedRCO"), own_mix(theirs, rival)
    if mine is None or other is None:
        return
    found = gained(mine, other)
    means = float(np.mean(mine)), float(np.mean(other))
    rounds = min(len(each.shared) for each in (*ours, *theirs))
    cases.add(claim, setting, rounds, found.seeds, *means, found.p, found.better)
