"""Federated averaging (McMahan et al. 2017), with server momentum or Adam (FedAvgM, FedAdam)."""

from collections.abc import Iterator
from dataclasses import dataclass

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array
from secure_fl.trainers.linear._local import LocalTraining, train_locally
from secure_fl.trainers.linear.server import Averaging, Moments, ServerOptimizer


@broadcastable
@dataclass(frozen=True, eq=False)
class AveragingState:
    """What the server carries from round to round.

    Attributes:
        weights: model, shape `objective.shape(d)`.
        round: rounds finished.
        moments: of the server's optimiser.
    """

    weights: Array
    round: int = 0
    moments: Moments = ()


@client_step
def local_change(
    client: Client, objective: Objective, weights: Array, training: LocalTraining
) -> Tree:
    """What local training adds to the weights."""
    return train_locally(client, objective, weights, training)


def fedavg(
    fed: Federation,
    objective: Objective,
    *,
    start: AveragingState,
    rounds: int,
    training: LocalTraining,
    server: ServerOptimizer | None = None,
) -> Iterator[AveragingState]:
    """Runs federated averaging and yields the state after every round; one sum a round.

    Args:
        fed: the participating clients; the server sees only means over them.
        objective: what every client descends on its own records.
        start: initial model, `AveragingState(weights)`, or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        training: the client's part of a round.
        server: what the server does with the mean change; None adds it (FedAvg). `Momentum()`
            gives FedAvgM, `Adam()` FedAdam.

    Raises:
        QuorumError: fewer clients survived a round than the threshold.
    """
    optimizer = server or Averaging()
    state = start
    while state.round < rounds:
        change = fed.mean(local_change, objective, state.weights, training)
        step, moments = optimizer.step(change, state.moments)
        state = AveragingState(state.weights + step, state.round + 1, moments)
        yield state
