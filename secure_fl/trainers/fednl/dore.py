"""DORE (Liu, Li, Tang and Yan 2020, algorithm 1): residuals compressed in both directions.

"A double residual compression algorithm for efficient distributed learning". Clients send
compressed differences of their gradients from shifts that follow them, as DIANA does; the server
sends the compressed change of the model, with what compression left out of the last one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secure_fl.federation import Federation, broadcastable
from secure_fl.trainers.fednl.compressors import Compressor
from secure_fl.trainers.fednl.first_order import (
    Smoothness,
    compressed_gradient,
    smoothness,
    unbiased,
)
from secure_fl.trainers.fednl.learning import takes_sparse
from secure_fl.trainers.fednl.problem import LogisticRidge
from secure_fl.trainers.fednl.states import Array, origin


@broadcastable
@dataclass(frozen=True)
class DoreState:
    """What the server carries.

    Attributes:
        weights: the model that clients have too, shape (d,).
        shift: mean of the clients' gradient shifts, shape (d,).
        left_out: e, what the last compression of the model's change left out, shape (d,).
        round: rounds finished.
        largest: L of the clients' functions, from which step sizes follow.
        bits: sent by a client so far.
        bits_down: sent to a client so far.
    """

    weights: Array
    shift: Array
    left_out: Array
    round: int = 0
    largest: float = 0.0
    bits: float = 0.0
    bits_down: float = 0.0


@dataclass(frozen=True)
class DoreSizes:
    """Step sizes of its theorem 1 for strongly convex functions.

    Attributes:
        alpha: of the shifts.
        beta: of the model's compressed change.
        eta: share of what was left out that is sent again.
        gamma: of the gradient.
    """

    alpha: float
    beta: float
    eta: float
    gamma: float


def dore_sizes(up: float, down: float, clients: int, largest: float, mu: float) -> DoreSizes:
    """alpha and gamma at the middle of their range; beta and eta at half of theirs.

    Args:
        up: omega of the clients' compressor.
        down: omega of the server's.
        clients: n.
        largest: L of the clients' functions.
        mu: strong convexity.
    """
    alpha = 1.0 / (2.0 * (up + 1.0))
    gamma = 2.0 / ((mu + largest) * (1.0 + 2.0 * up / clients))
    if down == 0:
        return DoreSizes(alpha, 1.0, 0.0, gamma)
    beta = 1.0 / (2.0 * (down + 1.0))
    eta = 0.5 * (-down + (down**2 + 4.0 * (1.0 - (down + 1.0) * beta)) ** 0.5) / (2.0 * down)
    return DoreSizes(alpha, beta, eta, gamma)


def dore(
    fed: Federation,
    objective: LogisticRidge,
    constants: Smoothness | None = None,
    *,
    d: int,
    rounds: int,
    compressor: Compressor | None = None,
    down: Compressor | None = None,
    seed: int = 0,
    x0: Array | None = None,
    start: DoreState | None = None,
) -> Iterator[DoreState]:
    """Runs DORE and yields the state after every round; one sum a round.

    Args:
        fed: the clients, targets -1 and 1; every client counts alike.
        objective: of every client.
        constants: see `smoothness`; None asks the clients for them.
        d: number of features.
        rounds: at least 0.
        compressor: of the clients' differences, unbiased; dithering with sqrt(d) levels by default.
        down: of the model's change, unbiased; the same by default.
        seed: of the server's compression.
        x0: the first model.
        start: a state to go on from.

    Raises:
        ValueError: a biased compressor.
        PrivacyError: `constants` is None, and sums are secure or private.
        QuorumError: fewer clients survived a round than the threshold.
    """
    compressor, omega = unbiased(compressor, d)
    down, omega_down = unbiased(down, d)
    state = start
    if state is None:
        found = constants or smoothness(fed, objective, d=d)
        state = DoreState(origin(d, x0), np.zeros(d), np.zeros(d), largest=found.largest)
        yield state
    sizes = dore_sizes(omega, omega_down, len(fed), state.largest, objective.penalty)
    while state.round < rounds:
        k, x = state.round, state.weights
        arguments = (objective, compressor, sizes.alpha, (x,), k, takes_sparse(fed))
        (total,) = fed.sum(compressed_gradient, *arguments)
        mean = total / len(fed.survivors)
        change = -sizes.gamma * (state.shift + mean) + sizes.eta * state.left_out
        sent = down.vector(change, np.random.default_rng([seed, k]), k)
        state = DoreState(
            x + sizes.beta * sent,
            state.shift + sizes.alpha * mean,
            change - sent,
            k + 1,
            state.largest,
            state.bits + compressor.vector_bits(d),
            state.bits_down + down.vector_bits(d),
        )
        yield state
