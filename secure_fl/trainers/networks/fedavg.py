"""FedAvg, FedProx, FedAvgM, FedAdam and OneShot for networks: one mean of changes a round."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.trainers.linear.server import Averaging, Moments, ServerOptimizer
from secure_fl.trainers.networks.dpsgd import check_handle, train_privately
from secure_fl.trainers.networks.local import LocalTraining, train
from secure_fl.trainers.networks.models import Array, Model, load, scores


@broadcastable
@dataclass(frozen=True, eq=False)
class NetworkState:
    """What the server carries from round to round.

    Attributes:
        parameters: flat float32 vector.
        round: rounds finished.
        moments: of the server's optimiser.
        average: of the rounds' parameters, float64; None where none is kept.
    """

    parameters: Array
    round: int = 0
    moments: Moments = ()
    average: Array | None = None

    @property
    def delivered(self) -> Array:
        """The parameters to predict with: the average where one is kept, float32."""
        if self.average is None:
            return self.parameters
        return self.average.astype(self.parameters.dtype)

    def following(
        self, parameters: Array, moments: Moments = (), averaging: float | None = None
    ) -> "NetworkState":
        """The state after one round more.

        Args:
            parameters: after it.
            moments: after it.
            averaging: see `fedavg`.
        """
        number = self.round + 1
        if averaging is None:
            return NetworkState(parameters, number, moments)
        before = parameters if self.average is None else self.average
        weight = (averaging + 1) / (number + averaging)
        average = before + weight * (parameters.astype(np.float64) - before)
        return NetworkState(parameters, number, moments, average)


def check_averaging(averaging: float | None) -> None:
    """Raises ValueError for an exponent that is no number of at least 0."""
    if averaging is not None and not 0 <= averaging < math.inf:
        raise ValueError(f"averaging: found {averaging}, expected a number of at least 0, or None")


@client_step
def local_change(client: Client, model: Model, parameters: Array, training: LocalTraining) -> Tree:
    """What local training adds to the parameters."""
    run = train if training.privacy is None else train_privately
    return run(client, model, parameters, training)


@client_step
def local_loss(client: Client, model: Model, parameters: Array) -> Tree:
    """Mean cross-entropy of the client's records, shape ()."""
    network = model.build()
    load(network, parameters)
    logarithms = log_softmax(scores(network, client.features).astype(np.float64), axis=1)
    return np.array(-logarithms[np.arange(len(client)), client.targets].mean())


def fedavg(
    fed: Federation,
    model: Model,
    *,
    start: NetworkState,
    rounds: int,
    training: LocalTraining,
    server: ServerOptimizer | None = None,
    averaging: float | None = None,
) -> Iterator[NetworkState]:
    """Runs federated averaging of networks and yields the state after every round.

    OneShot is one round with epochs enough that local training converges.

    Args:
        fed: the participating clients; the server sees only means over them.
        model: the network.
        start: initial parameters, `NetworkState(model.initial(rng))`, or a state to resume from.
        rounds: rounds in all, those of `start` included, >= 0.
        training: the client's part; `proximal` above 0 gives FedProx, `privacy` DP-SGD.
        server: None adds the mean change (FedAvg); `Momentum()` gives FedAvgM, `Adam()` FedAdam.
        averaging: eta of polynomial-decay averaging (Shamir and Zhang 2013, section 4): round t's
            parameters count about as t^eta in `NetworkState.delivered`; they are public as the last
            ones are, so it costs no privacy. 0 is the plain mean, None keeps no average. Training
            itself goes on from the last parameters.

    Raises:
        PrivacyError, StepError: the promise of `training.privacy` cannot be kept to the last round.
        QuorumError: fewer clients survived a round than the threshold.
    """
    check_averaging(averaging)
    optimizer = server or Averaging()
    state = start
    if training.privacy is not None and state.round == 0:
        check_handle(fed, model, training, rounds, features=False)
    while state.round < rounds:
        change = fed.mean(local_change, model, state.parameters, training)
        step, moments = optimizer.step(change, state.moments)
        parameters = (state.parameters + step).astype(state.parameters.dtype)
        state = state.following(parameters, moments, averaging)
        yield state
