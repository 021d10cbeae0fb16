"""FedSophia (Elbakary et al. 2024, algorithm 1): clipped steps by a running diagonal Hessian.

"Fed-Sophia: a communication-efficient second-order federated learning algorithm". A client keeps
running means m of its gradients and h of its diagonal Hessians, and steps by

    w = w - rate * clip(m / max(h, floor), bound),

where h takes in a new estimate every `interval` steps. The server averages the models. The ridge of
the objective stands in the place of the paper's weight decay.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.objectives import Objective, SoftmaxLoss
from secure_fl.objectives.base import Array, Codes, Features
from secure_fl.trainers.linear._client import records
from secure_fl.trainers.linear._local import LocalTraining, batches
from secure_fl.trainers.linear.fedavg import AveragingState


@broadcastable
@dataclass(frozen=True)
class Sophia:
    """What a client does with its gradients.

    Attributes:
        gradients: weight of the older mean gradient, beta_1, in [0, 1).
        curvatures: weight of the older mean curvature, beta_2, in [0, 1).
        interval: steps between two estimates of the diagonal, tau, >= 1.
        floor: of a curvature, epsilon, > 0.
        bound: of a coordinate's step before the rate, > 0.
        estimator: "gnb" samples labels from the model and squares the gradient (Gauss-Newton-
            Bartlett), which needs the softmax loss; "exact" takes the diagonal itself.
    """

    gradients: float = 0.9
    curvatures: float = 0.95
    interval: int = 10
    floor: float = 1e-12
    bound: float = 1.0
    estimator: Literal["gnb", "exact"] = "gnb"

    def __post_init__(self) -> None:
        fine = 0 <= self.gradients < 1 and 0 <= self.curvatures < 1 and self.interval >= 1
        finite = 0 < self.floor < math.inf and 0 < self.bound < math.inf
        if not (fine and finite and self.estimator in ("gnb", "exact")):
            raise ValueError(f"fedsophia: found {self}, a setting is out of its range")


def sampled_diagonal(
    objective: Objective, weights: Array, X: Features, rng: np.random.Generator
) -> Array:
    """B g^2 of the mean gradient g with labels that the model draws for the B records.

    Its mean over the labels is the diagonal of the softmax loss's Hessian; the ridge is added.
    """
    from scipy.special import softmax

    chances = np.cumsum(softmax(X @ weights, axis=1), axis=1)
    labels = (chances < rng.random((len(chances), 1))).sum(axis=1)
    # Rounding may leave the last sum below 1.
    labels = np.minimum(labels, objective.classes - 1)
    of_loss = objective.gradient(weights, X, labels) - objective.ridge * weights
    found: Array = X.shape[0] * np.square(of_loss) + objective.ridge
    return found


def _diagonal(
    client: Client, objective: Objective, weights: Array, X: Features, y: Codes, sophia: Sophia
) -> Array:
    if sophia.estimator == "exact":
        return objective.hessian_diagonal(weights, X, y)
    return sampled_diagonal(objective, weights, X, client.rng)


@client_step
def sophia_change(
    client: Client, objective: Objective, weights: Array, training: LocalTraining, sophia: Sophia
) -> Tree:
    """What clipped steps on the client's batches add to the weights; m and h stay with it."""
    X, y = records(client)
    zeros = np.zeros(weights.shape)
    m, h = (client.state.get(f"sophia.{name}", zeros) for name in ("gradient", "curvature"))
    done = int(client.state.get("sophia.steps", np.zeros(1))[0])
    local = np.array(weights, dtype=np.float64)
    for rows in batches(client, len(y), training):
        gradient = objective.gradient(local, X[rows], y[rows])
        m = sophia.gradients * m + (1.0 - sophia.gradients) * gradient
        if done % sophia.interval == 0:
            found = _diagonal(client, objective, local, X[rows], y[rows], sophia)
            h = sophia.curvatures * h + (1.0 - sophia.curvatures) * found
        done += 1
        step = np.clip(m / np.maximum(h, sophia.floor), -sophia.bound, sophia.bound)
        local -= training.learning_rate * step
    client.state["sophia.gradient"], client.state["sophia.curvature"] = m, h
    client.state["sophia.steps"] = np.array([float(done)])
    change: Array = local - weights
    return change


def fedsophia(
    fed: Federation,
    objective: Objective,
    *,
    start: AveragingState,
    rounds: int,
    training: LocalTraining,
    sophia: Sophia | None = None,
) -> Iterator[AveragingState]:
    """Runs FedSophia and yields the state after every round; one sum a round.

    Args:
        fed: the participating clients; the server sees only means over them.
        objective: softmax loss, or any with the exact diagonal.
        start: initial model, or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        training: rate, epochs and batches of a round; its momentum is 0, Sophia has its own.
        sophia: means, floor and bound; None takes the defaults.

    Raises:
        InputError: "gnb" with another loss than softmax, which gives no chances to draw from.
        ValueError: training with momentum.
        QuorumError: fewer clients survived a round than the threshold.
    """
    sophia = sophia or Sophia()
    if training.momentum:
        raise ValueError("fedsophia: momentum of local steps must be 0; it has its own mean")
    if sophia.estimator == "gnb" and not isinstance(objective, SoftmaxLoss):
        raise InputError('fedsophia: "gnb" needs the softmax loss; take estimator "exact"')
    state = start
    while state.round < rounds:
        change = fed.mean(sophia_change, objective, state.weights, training, sophia)
        state = AveragingState(state.weights + change, state.round + 1)
        yield state
