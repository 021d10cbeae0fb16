"""Federated Newton with local Hessians, for squared loss (FedNewton, algorithm 1).

"Statistical optimality of Newton-type federated learning with heterogeneous data"
(fednewton.txt). Every round costs two sums: the global gradient, then the clients' Newton steps
on it.

The mean P of the clients' inverse Hessians is at least the inverse of their mean H, so every
eigenvalue of P H is at least 1: the printed step never falls short and overshoots where clients
differ. Where an eigenvalue passes 2 its error grows from round to round; the best length of the
step is always in (0, 1]. The safeguard takes that length.
"""

from collections.abc import Iterator

from secure_fl.errors import InputError
from secure_fl.federation import Federation
from secure_fl.objectives import Objective
from secure_fl.trainers.linear._client import local_gradient
from secure_fl.trainers.linear._newton import (
    NewtonState,
    after,
    local_newton_step,
    newton_direction,
    point_of,
)
from secure_fl.trainers.linear.dkrr import dkrr
from secure_fl.trainers.linear.safeguard import evaluate, guarded_move
from secure_fl.trainers.linear.solvers import Exact, Solver


def fednewton(
    fed: Federation,
    objective: Objective,
    *,
    rounds: int,
    solver: Solver | None = None,
    safeguard: bool = True,
    memory: int = 0,
    start: NewtonState | None = None,
) -> Iterator[NewtonState]:
    """Runs FedNewton and yields the state after every round; the first is DKRR, at round 0.

    Args:
        fed: the participating clients; the server sees only means over them.
        objective: quadratic (squared loss) with a ridge above 0.
        rounds: rounds in all, those of `start` included, >= 0; 0 gives DKRR.
        solver: how clients apply their inverse Hessian; None is `Exact()`, factored once.
        safeguard: take each round's step at the length that decreases the global objective most,
            instead of always whole. The trial that tells it is the next round's gradient, so all
            rounds together cost one sum more. No round increases the objective.
        memory: changes of earlier rounds by which the server corrects each direction, at the
            same sums, >= 0; needs the safeguard. 1 or more gives conjugate directions, which
            reach the pooled solution in a few rounds however much the clients differ.
        start: a state to resume from, or `NewtonState(weights)` to begin elsewhere than at
            DKRR; not yielded.

    Raises:
        InputError: the objective is not quadratic or has no ridge.
        ValueError: `memory` below 0, or above it without `safeguard`.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if not objective.quadratic:
        raise InputError("fednewton: needs the squared loss; fednewton_head takes any other")
    if memory < 0 or (memory and not safeguard):
        raise ValueError(f"memory is {memory}; give at least 0, and 0 without the safeguard")
    solver = solver or Exact()
    if start is None:
        (first,) = dkrr(fed, objective)
        state = NewtonState(first.weights)
        yield state
    else:
        state = start
    while state.round < rounds:
        if safeguard:
            state = _guarded_round(fed, objective, state, solver, memory)
        else:
            gradient = fed.mean(local_gradient, objective, state.weights)
            step = fed.mean(local_newton_step, objective, state.weights, gradient, solver)
            state = NewtonState(state.weights - step, state.round + 1)
        yield state


def _guarded_round(
    fed: Federation, objective: Objective, state: NewtonState, solver: Solver, memory: int
) -> NewtonState:
    here = point_of(fed, objective, state)
    direction = newton_direction(fed, objective, state, here, solver)
    move = guarded_move(
        lambda weights: evaluate(fed, objective, weights),
        state.weights,
        here,
        direction,
        quadratic=True,
    )
    return after(state, here, move, memory)
