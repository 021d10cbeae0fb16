"""Divide-and-conquer kernel ridge regression (DKRR), the start of FedNewton: a reference."""

from collections.abc import Iterator

from secure_fl.errors import InputError
from secure_fl.federation import Federation
from secure_fl.objectives import Objective
from secure_fl.trainers.linear.fedavg import AveragingState
from secure_fl.trainers.linear.oneshot import oneshot


def dkrr(fed: Federation, objective: Objective) -> Iterator[AveragingState]:
    """Yields one state: the mean of the clients' ridge regressions (fednewton.txt, section 2).

    Args:
        fed: the participating clients; the server sees only the mean.
        objective: a quadratic one with a ridge above 0; on random features it is kernel ridge
            regression.

    Raises:
        InputError: another objective, or a ridge of 0.
        QuorumError: fewer clients survived than the threshold.
    """
    if not objective.quadratic:
        raise InputError("dkrr: needs the squared loss; oneshot averages models of any other")
    yield from oneshot(fed, objective)
