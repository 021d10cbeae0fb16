"""FedNew (Elgabli et al. 2022, algorithm 1): Newton directions by one step of ADMM a round.

"FedNew: a communication-efficient and privacy-preserving Newton-type method for federated
learning". The Newton direction is the consensus y of the clients' problems y_i' (H_i + alpha I) y_i
/ 2 - y_i' g_i. Every round makes one step of ADMM on it and moves the model by it:

    y_i = (H_i + (alpha + rho) I)^-1 (g_i - lambda_i + rho y),  y = mean of y_i,
    lambda_i = lambda_i + rho (y_i - y),  x = x - y.

Neither gradient nor Hessian leaves a client; a round is one sum of the model's size.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array
from secure_fl.trainers.linear._client import records
from secure_fl.trainers.linear.solvers import Exact


@broadcastable
@dataclass(frozen=True, eq=False)
class FedNewState:
    """What the server carries from round to round.

    Attributes:
        weights: model, shape `objective.shape(d)`.
        direction: y of the last round, of that shape.
        round: rounds finished.
    """

    weights: Array
    direction: Array
    round: int = 0


@client_step
def consensus_step(
    client: Client,
    objective: Objective,
    weights: Array,
    direction: Array,
    alpha: float,
    rho: float,
    draw: int,
) -> Tree:
    """y_i, from the multiplier as the last round's mean direction left it."""
    X, y = records(client)
    if draw == 0:
        client.state["multiplier"] = np.zeros(weights.shape)
    else:
        moved = rho * (client.state["direction"] - direction)
        client.state["multiplier"] = client.state["multiplier"] + moved
    right = objective.gradient(weights, X, y) - client.state["multiplier"] + rho * direction
    solver = Exact(alpha + rho)
    client.state["direction"] = solver.solve(objective, weights, X, y, right, client.cache)
    return client.state["direction"]


def fednew(
    fed: Federation,
    objective: Objective,
    *,
    start: FedNewState,
    rounds: int,
    alpha: float = 0.0,
    rho: float = 0.1,
) -> Iterator[FedNewState]:
    """Runs FedNew and yields the state after every round.

    Multipliers stay with the clients, so all take part in every round. The Hessian is that of the
    current model (the paper's r = 1).

    Args:
        fed: the clients; the server sees only means over them, weighted by their records.
        objective: twice differentiable.
        start: `FedNewState(x, zeros like x)`, or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        alpha: damping of the Newton direction, >= 0.
        rho: penalty of ADMM, > 0: small ones let clients part, large ones slow the direction down.

    Raises:
        ValueError: alpha or rho out of its range.
        InputError: a client's Hessian is too large to form.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if not (0 <= alpha < math.inf and 0 < rho < math.inf):
        raise ValueError(f"fednew: found alpha {alpha} and rho {rho}, expected >= 0 and > 0")
    state = start
    while state.round < rounds:
        x, y = state.weights, state.direction
        y = fed.mean(consensus_step, objective, x, y, alpha, rho, state.round)
        state = FedNewState(x - y, y, state.round + 1)
        yield state
