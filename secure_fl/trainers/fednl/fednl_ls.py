"""FedNL-LS (Algorithm 3): FedNL's direction with a backtracking line search, from anywhere."""

from collections.abc import Callable, Iterator

import numpy as np

from secure_fl.federation import Federation
from secure_fl.trainers.fednl.compressors import Compressor
from secure_fl.trainers.fednl.fednl import begin_state, next_state, resume
from secure_fl.trainers.fednl.learning import LOCAL, Server, learning_for, mean_value
from secure_fl.trainers.fednl.problem import LogisticRidge
from secure_fl.trainers.fednl.server_steps import projected_step
from secure_fl.trainers.fednl.states import Array, NewtonState

MOST_HALVINGS = 60
"""Beyond 2^-60 a step no longer changes a float64."""


def fednl_ls(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    compressor: Compressor | None = None,
    rate: str | float = "auto",
    initial: str = LOCAL,
    c: float = 0.49,
    gamma: float = 0.5,
    x0: Array | None = None,
    start: NewtonState | None = None,
) -> Iterator[NewtonState]:
    """Runs FedNL-LS; a round costs one sum and one number a client for every step size tried.

    Args:
        fed: as for `fednl`, with `objective`, `d`, `rounds`, `compressor`, `rate`, `initial`, `x0`
            and `start`.
        objective: with a penalty above 0.
        d: number of features.
        rounds: at least 0.
        compressor: of the Hessians.
        rate: alpha.
        initial: H_i^0.
        c: sufficient decrease, in (0, 1/2].
        gamma: factor between two step sizes, in (0, 1).
        x0: the first model.
        start: a state to go on from.

    Raises:
        ValueError: an option out of range.
        QuorumError: fewer clients survived a round than the threshold.
    """
    check_search(c, gamma)
    server = Server(fed, objective, learning_for(fed, d, compressor, rate, "frobenius"), d)
    state = start or begin_state(server, x0, initial)
    resume(server, state)
    if start is None:
        yield state
    while state.round < rounds:
        x, H = state.weights, state.hessian
        found = server.learn(x, H, state.round)
        direction = -projected_step(H, objective.penalty, found.gradient)
        slope = float(found.gradient @ direction)
        step, tried = backtrack(
            lambda y: mean_value(fed, objective, y), x, found.loss, direction, slope, c, gamma
        )
        server.bits += 64.0 * tried
        state = next_state(server, state, x + step, found)
        yield state


def check_search(c: float, gamma: float) -> None:
    """Raises ValueError unless c is in (0, 1/2] and gamma in (0, 1)."""
    if not (0 < c <= 0.5 and 0 < gamma < 1):
        raise ValueError(f"line search: found c {c} and gamma {gamma}, expected (0, 1/2], (0, 1)")


def backtrack(
    value: Callable[[Array], float],
    x: Array,
    loss: float,
    direction: Array,
    slope: float,
    c: float,
    gamma: float,
    size: float = 1.0,
) -> tuple[Array, int]:
    """The largest step size * gamma^s * direction with f(x + step) <= f(x) + c <gradient, step>.

    Below the rounding of f no decrease can be seen; a step whose promise is that small is taken
    whole, as the local theory has it.

    Returns:
        The step and how many values of f were asked for; a zero step where none decreases f.
    """
    rounding = 8 * float(np.finfo(float).eps) * abs(loss)
    if -size * slope <= rounding:
        return size * direction, 0
    for tried in range(1, MOST_HALVINGS + 1):
        if value(x + size * direction) <= loss + c * size * slope + rounding:
            return size * direction, tried
        size *= gamma
    return np.zeros_like(x), MOST_HALVINGS
