"""The Newton triangle (FedNL, section 3.5): Newton, Newton star and Newton zero."""

from collections.abc import Iterator

import numpy as np

from secure_fl.federation import Federation
from secure_fl.trainers.fednl.fednl_ls import backtrack, check_search
from secure_fl.trainers.fednl.learning import mean_curve, mean_slope, mean_value
from secure_fl.trainers.fednl.problem import LogisticRidge
from secure_fl.trainers.fednl.server_steps import projected_step
from secure_fl.trainers.fednl.states import Array, NewtonState, origin
from secure_fl.trainers.fednl.triangles import packed_size

NEWTON_ROUNDS = 20
"""Steps that give the papers' reference optimum (section 5.1)."""


def newton(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    x0: Array | None = None,
    start: NewtonState | None = None,
) -> Iterator[NewtonState]:
    """Classical Newton: a gradient and a triangle from every client in every round."""
    state = start or NewtonState(origin(d, x0), np.zeros(packed_size(d)))
    if start is None:
        yield state
    while state.round < rounds:
        loss, g, H = mean_curve(fed, objective, state.weights)
        x = state.weights - projected_step(H, objective.penalty, g)
        bits = state.bits + 64.0 * (d + packed_size(d))
        state = NewtonState(x, H, state.round + 1, bits, loss, float(np.linalg.norm(g)))
        yield state


def newton_zero(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    line_search: bool = False,
    c: float = 0.49,
    gamma: float = 0.5,
    x0: Array | None = None,
    start: NewtonState | None = None,
) -> Iterator[NewtonState]:
    """N0 (eq. 10): the Hessian at x^0 for ever; N0-LS with a backtracking line search."""
    check_search(c, gamma)
    if start is None:
        x = origin(d, x0)
        _, _, H = mean_curve(fed, objective, x)
        state = NewtonState(x, H, bits=64.0 * packed_size(d))
        yield state
    else:
        state = start
    yield from _fixed(fed, objective, state, rounds, (c, gamma) if line_search else None)


def newton_star(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    optimum: Array,
    x0: Array | None = None,
    start: NewtonState | None = None,
) -> Iterator[NewtonState]:
    """NS (eq. 58): the Hessian at the optimum, which nobody has; a reference for plots."""
    if start is None:
        _, _, H = mean_curve(fed, objective, optimum)
        state = NewtonState(origin(d, x0), H)
        yield state
    else:
        state = start
    yield from _fixed(fed, objective, state, rounds, None)


def _fixed(
    fed: Federation,
    objective: LogisticRidge,
    state: NewtonState,
    rounds: int,
    search: tuple[float, float] | None,
) -> Iterator[NewtonState]:
    while state.round < rounds:
        x, H = state.weights, state.hessian
        loss, g = mean_slope(fed, objective, x)
        step, tried = -projected_step(H, objective.penalty, g), 0
        if search is not None:
            step, tried = backtrack(
                lambda y: mean_value(fed, objective, y), x, loss, step, float(g @ step), *search
            )
        bits = state.bits + 64.0 * (len(g) + 1 + tried)
        state = NewtonState(x + step, H, state.round + 1, bits, loss, float(np.linalg.norm(g)))
        yield state


def optimum(
    fed: Federation, objective: LogisticRidge, *, d: int, x0: Array | None = None
) -> tuple[Array, float]:
    """x* and f(x*) after 20 Newton steps with line search, the papers' reference."""
    x = origin(d, x0)
    for _ in range(NEWTON_ROUNDS):
        loss, g, H = mean_curve(fed, objective, x)
        direction = -projected_step(H, objective.penalty, g)
        step, _ = backtrack(
            lambda y: mean_value(fed, objective, y),
            x,
            loss,
            direction,
            float(g @ direction),
            0.25,
            0.5,
        )
        x = x + step
    return x, mean_value(fed, objective, x)
