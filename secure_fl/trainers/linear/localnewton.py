"""Local Newton steps, then averaging (LocalNewton, Gupta et al. 2021, algorithm 1).

Clients use their own gradient as well as their own Hessian, so that a round is one sum; the
fixed point is not the global minimiser where clients differ.
"""

from collections.abc import Iterator

import numpy as np

from secure_fl.federation import Client, Federation, Tree, client_step
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array
from secure_fl.trainers.linear._client import records
from secure_fl.trainers.linear._newton import NewtonState, after, point_of
from secure_fl.trainers.linear.safeguard import evaluate, guarded_move
from secure_fl.trainers.linear.solvers import Solver


@client_step
def local_newton_descent(
    client: Client, objective: Objective, weights: Array, solver: Solver, steps: int
) -> Tree:
    """What `steps` Newton steps on the client's own objective subtract from the weights.

    A step that would increase the client's objective is halved until it does not.
    """
    X, y = records(client)
    local = np.array(weights, dtype=np.float64)
    for _ in range(steps):
        value, gradient = objective.value_and_gradient(local, X, y)
        step = solver.solve(objective, local, X, y, gradient, client.cache)
        for _ in range(_HALVINGS):
            if objective.value(local - step, X, y) <= value:
                local = local - step
                break
            step = 0.5 * step
    return weights - local


_HALVINGS = 30


def localnewton(
    fed: Federation,
    objective: Objective,
    *,
    start: NewtonState,
    rounds: int,
    solver: Solver,
    local_steps: int = 1,
    safeguard: bool = True,
) -> Iterator[NewtonState]:
    """Runs LocalNewton and yields the state after every round.

    Args:
        fed: the participating clients; the server sees only means over them.
        objective: twice differentiable; with a ridge or a damped solver.
        start: `NewtonState(objective.zeros(d))`, or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        solver: how clients apply their inverse Hessian.
        local_steps: Newton steps of a client in one round, >= 1.
        safeguard: search the length of the mean step on the global objective, at one sum a
            trial (the paper's global line search); False always takes it whole.

    Raises:
        ValueError: local_steps below 1.
        InputError: a client's Hessian is singular or too large for the solver.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if local_steps < 1:
        raise ValueError(f"{local_steps} local steps; give at least 1")
    state = start
    while state.round < rounds:
        step = fed.mean(local_newton_descent, objective, state.weights, solver, local_steps)
        if safeguard:
            here = point_of(fed, objective, state)
            move = guarded_move(
                lambda weights: evaluate(fed, objective, weights),
                state.weights,
                here,
                step,
                quadratic=objective.quadratic,
            )
            state = after(state, here, move)
        else:
            state = NewtonState(state.weights - step, state.round + 1)
        yield state
