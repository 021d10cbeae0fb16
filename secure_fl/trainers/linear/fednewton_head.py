"""Federated Newton for a linear head on frozen features (FedNewton, algorithm 2).

"Statistical optimality of Newton-type federated learning with heterogeneous data"
(fednewton.txt, section 3.1). A round is two sums: the global gradient, then the clients' Newton
steps on it; one sum with L-BFGS, whose curvature comes from the gradients the server has.
"""

import math
from collections.abc import Iterator

from secure_fl.federation import Federation
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array
from secure_fl.trainers.linear._client import local_gradient
from secure_fl.trainers.linear._newton import (
    NewtonState,
    after,
    local_newton_step,
    newton_direction,
    point_of,
)
from secure_fl.trainers.linear.lbfgs import LBFGS
from secure_fl.trainers.linear.safeguard import Move, Point, evaluate, guarded_move
from secure_fl.trainers.linear.solvers import ConjugateGradient, Solver


def fednewton_head(
    fed: Federation,
    objective: Objective,
    *,
    start: NewtonState,
    rounds: int,
    solver: Solver | LBFGS | None = None,
    step_size: float = 1.0,
    safeguard: bool = True,
    memory: int = 0,
) -> Iterator[NewtonState]:
    """Runs algorithm 2 and yields the state after every round.

    Args:
        fed: the participating clients; the server sees only means over them.
        objective: twice differentiable; with a ridge or a damped solver.
        start: `NewtonState(objective.zeros(d))`, or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        solver: how clients apply their inverse Hessian, with the damping lambda of section 3.1;
            or `LBFGS()`, on the server. None takes `ConjugateGradient()`, which forms no Hessian.
        step_size: eta of eq. (8), > 0; with the safeguard, the longest step. (The paper uses
            0.1, which without a line search is safe and with it wasteful.)
        safeguard: shorten the step until the global objective decreases; each trial is one sum,
            of which the last is the next round's gradient if all clients take part. A shortened
            round begins the next one at twice its length, so most rounds need one trial.
        memory: changes of earlier rounds by which the server corrects each direction, at the
            same sums, >= 0; needs the safeguard. `LBFGS` has its own.

    Raises:
        ValueError: step size or memory out of its range, or memory without the safeguard.
        InputError: a client's Hessian is singular or too large for the solver.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if not (math.isfinite(step_size) and step_size > 0):
        raise ValueError(f"step size is {step_size}; give a finite number above 0")
    if memory < 0 or (memory and not safeguard):
        raise ValueError(f"memory is {memory}; give at least 0, and 0 without the safeguard")
    solver = solver or ConjugateGradient()
    state = start
    while state.round < rounds:
        if isinstance(solver, LBFGS):
            state = _lbfgs_round(fed, objective, state, solver, step_size, safeguard)
        elif safeguard:
            here = point_of(fed, objective, state)
            step = newton_direction(fed, objective, state, here, solver)
            move = _search(fed, objective, state, here, step, step_size)
            state = after(state, here, move, memory)
        else:
            gradient = fed.mean(local_gradient, objective, state.weights)
            step = fed.mean(local_newton_step, objective, state.weights, gradient, solver)
            weights = state.weights - step_size * step
            state = NewtonState(weights, state.round + 1, step_size)
        yield state


def _lbfgs_round(
    fed: Federation,
    objective: Objective,
    state: NewtonState,
    solver: LBFGS,
    step_size: float,
    safeguard: bool,
) -> NewtonState:
    here = point_of(fed, objective, state)
    direction = solver.direction(here.gradient, state.pairs)
    if safeguard:
        move = _search(fed, objective, state, here, direction, step_size)
    else:
        weights = state.weights - step_size * direction
        move = Move(weights, evaluate(fed, objective, weights), step_size, math.nan)
    return after(state, here, move, solver.memory)


def _search(
    fed: Federation,
    objective: Objective,
    state: NewtonState,
    here: Point,
    direction: Array,
    longest: float,
) -> Move:
    # Where the last round found no decrease at all, the whole length is worth another try.
    first = min(longest, 2.0 * state.step) if state.step > 0 else longest
    return guarded_move(
        lambda weights: evaluate(fed, objective, weights),
        state.weights,
        here,
        direction,
        quadratic=objective.quadratic,
        first=first,
    )
