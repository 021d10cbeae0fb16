"""FedNL-CR (Algorithm 4): FedNL with a cubic term, which bounds the loss from anywhere."""

from collections.abc import Iterator

import numpy as np

from secure_fl.federation import Client, Federation, Tree, client_step
from secure_fl.trainers.fednl.compressors import Compressor
from secure_fl.trainers.fednl.fednl import begin_state, next_state, resume
from secure_fl.trainers.fednl.learning import ZERO, Server, learning_for
from secure_fl.trainers.fednl.problem import LogisticRidge, local_problem, seen_by
from secure_fl.trainers.fednl.server_steps import cubic_step
from secure_fl.trainers.fednl.states import Array, NewtonState

THIRD_DERIVATIVE = 1 / (6 * np.sqrt(3))
"""Largest magnitude of the third derivative of log(1 + exp(t))."""


@client_step
def cubed_lengths(client: Client, objective: LogisticRidge) -> Tree:
    """Mean of |a|^3 over the records, a bound of the Hessian's Lipschitz constant."""
    local = local_problem(seen_by(objective, client))
    rows = np.repeat(np.arange(local.m), np.diff(local.indptr))
    squared = np.bincount(rows, local.data**2, local.m)
    return float(np.mean(squared**1.5))


def hessian_lipschitz(fed: Federation, objective: LogisticRidge) -> float:
    """L_* of f in the spectral norm: mean of |a|^3 / (6 sqrt 3), from one sum.

    Noise may bring the sum below 0, where no bound is; 0 is then the nearest that can be.
    """
    mean = float(fed.sum(cubed_lengths, objective)) / len(fed.survivors)
    return THIRD_DERIVATIVE * max(mean, 0.0)


def fednl_cr(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    lipschitz: float | None = None,
    compressor: Compressor | None = None,
    rate: str | float = "auto",
    initial: str = ZERO,
    x0: Array | None = None,
    start: NewtonState | None = None,
) -> Iterator[NewtonState]:
    """Runs FedNL-CR and yields the state after every round.

    Args:
        fed: as for `fednl`, with `d`, `rounds`, `compressor`, `rate`, `x0` and `start`.
        objective: any penalty; convex is enough.
        d: number of features.
        rounds: at least 0.
        lipschitz: L_*, at least 0; None asks the clients for a bound (one number each).
        compressor: of the Hessians.
        rate: alpha.
        initial: H_i^0; zero, as in the paper's experiments.
        x0: the first model.
        start: a state to go on from.

    Raises:
        ValueError: an option out of range.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if lipschitz is not None and not (np.isfinite(lipschitz) and lipschitz >= 0):
        raise ValueError(f"lipschitz {lipschitz}: expected a finite number of at least 0")
    server = Server(fed, objective, learning_for(fed, d, compressor, rate, "frobenius"), d)
    state = start or begin_state(server, x0, initial)
    resume(server, state)
    bound = hessian_lipschitz(fed, objective) if lipschitz is None else lipschitz
    if start is None:
        yield state
    while state.round < rounds:
        x, H = state.weights, state.hessian
        found = server.learn(x, H, state.round)
        step = cubic_step(H, found.error, found.gradient, bound)
        state = next_state(server, state, x + step, found)
        yield state
