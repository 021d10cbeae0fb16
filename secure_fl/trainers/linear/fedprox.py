"""Federated averaging with a proximal term (FedProx, Li et al. 2020, algorithm 2)."""

import math
from collections.abc import Iterator

from secure_fl.federation import Client, Federation, Tree, client_step
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array
from secure_fl.trainers.linear._client import records
from secure_fl.trainers.linear._local import LocalTraining, train_locally
from secure_fl.trainers.linear.fedavg import AveragingState
from secure_fl.trainers.linear.solvers import Exact


@client_step
def local_proximal_change(
    client: Client, objective: Objective, weights: Array, training: LocalTraining, proximal: float
) -> Tree:
    """What local training with the proximal term adds to the weights."""
    return train_locally(client, objective, weights, training, proximal)


@client_step
def local_proximal_solution(
    client: Client, objective: Objective, weights: Array, proximal: float
) -> Tree:
    """Change to the minimiser of a quadratic objective with the proximal term, in one solve."""
    X, y = records(client)
    gradient = objective.gradient(weights, X, y)
    return -Exact(proximal).solve(objective, weights, X, y, gradient, client.cache)


def fedprox(
    fed: Federation,
    objective: Objective,
    *,
    start: AveragingState,
    rounds: int,
    proximal: float,
    training: LocalTraining | None = None,
) -> Iterator[AveragingState]:
    """Runs FedProx and yields the state after every round; one sum a round.

    Args:
        fed: the participating clients; the server sees only means over them.
        objective: what every client descends on its own records.
        start: initial model, `AveragingState(weights)`, or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        proximal: mu, >= 0: a client's objective gains mu / 2 |w - global weights|^2.
        training: the client's part of a round. None solves the client's problem exactly, for
            quadratic objectives.

    Raises:
        ValueError: mu out of its range, or no `training` for an objective that is not quadratic.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if not (math.isfinite(proximal) and proximal >= 0):
        raise ValueError(f"proximal weight is {proximal}; give a finite number, at least 0")
    if training is None and not objective.quadratic:
        raise ValueError("FedProx solves only quadratic objectives exactly; say how to train")
    state = start
    while state.round < rounds:
        if training is None:
            change = fed.mean(local_proximal_solution, objective, state.weights, proximal)
        else:
            change = fed.mean(local_proximal_change, objective, state.weights, training, proximal)
        state = AveragingState(state.weights + change, state.round + 1)
        yield state
