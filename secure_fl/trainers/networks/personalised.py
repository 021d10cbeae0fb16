"""What personal models are compared with: training alone, and the global model tuned at home.

A client that never hears from the others, and one that goes on from the final global model for one
round's steps, both keep what they get; nothing of it leaves them. Their accuracies are read by
`fedrco.personal_accuracy`.
"""

from collections.abc import Iterator

import numpy as np

from secure_fl.federation import Client, Federation, Tree, client_step
from secure_fl.trainers.networks.fedavg import NetworkState
from secure_fl.trainers.networks.fedrco import OWN_MODEL, personal_model
from secure_fl.trainers.networks.local import LocalTraining, train
from secure_fl.trainers.networks.models import Array, Model


@client_step
def train_alone(client: Client, model: Model, parameters: Array, training: LocalTraining) -> Tree:
    """A round's steps from the client's own model, at first from `parameters`; returns a 0."""
    own = personal_model(client)
    start = parameters if own is None else own
    client.state[OWN_MODEL] = start + train(client, model, start, training)
    return np.zeros(1)


@client_step
def tune(client: Client, model: Model, parameters: Array, training: LocalTraining) -> Tree:
    """A round's steps from `parameters`, which the client keeps for itself; returns a 0."""
    client.state[OWN_MODEL] = parameters + train(client, model, parameters, training)
    return np.zeros(1)


def local_only(
    fed: Federation, model: Model, *, start: NetworkState, rounds: int, training: LocalTraining
) -> Iterator[NetworkState]:
    """Lets every participant train by itself and yields after every round; nothing is averaged.

    Args:
        fed: the participating clients.
        model: the network.
        start: initial parameters, which are those of all clients and of every state.
        rounds: rounds in all, those of `start` included, >= 0.
        training: the client's part of a round.

    Raises:
        QuorumError: fewer clients survived a round than the threshold.
    """
    state = start
    while state.round < rounds:
        fed.sum(train_alone, model, state.parameters, training)
        state = NetworkState(state.parameters, state.round + 1)
        yield state


def fine_tuned(fed: Federation, model: Model, parameters: Array, training: LocalTraining) -> None:
    """Every participant tunes the parameters on its own records and keeps what it gets."""
    fed.sum(tune, model, parameters, training)
