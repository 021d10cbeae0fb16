"""What the Newton-type trainers share: their state, the client's step, and the reused point."""

import math
from dataclasses import dataclass

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array
from secure_fl.trainers.linear._client import records
from secure_fl.trainers.linear.lbfgs import Pairs, remember, two_loops
from secure_fl.trainers.linear.safeguard import Move, Point, evaluate
from secure_fl.trainers.linear.solvers import Solver


@broadcastable
@dataclass(frozen=True, eq=False)
class NewtonState:
    """What the server carries from round to round.

    Attributes:
        weights: model, shape `objective.shape(d)`.
        round: rounds finished.
        step: length of the last round's step as a multiple of the direction: 1 undamped, 0 none.
        contraction: global gradient's norm after the undamped step over its norm before; 1 and
            more says that the method without the safeguard diverges here. nan before it is known.
        point: the objective at `weights`, where the last round found it out.
        pairs: changes of weights and gradient that the server remembers.
    """

    weights: Array
    round: int = 0
    step: float = 1.0
    contraction: float = math.nan
    point: Point | None = None
    pairs: Pairs = ()


@client_step
def local_newton_step(
    client: Client, objective: Objective, weights: Array, gradient: Array, solver: Solver
) -> Tree:
    """(Local Hessian)^-1 times the global gradient (fednewton.txt, algorithm 1, line 7)."""
    X, y = records(client)
    return solver.solve(objective, weights, X, y, gradient, client.cache)


def point_of(fed: Federation, objective: Objective, state: NewtonState) -> Point:
    """The objective at the state's weights: the last round's, where all clients took part in it.

    Otherwise this round's participants have another objective, and it takes one sum.
    """
    point = state.point
    if point is not None and point.complete and len(fed.participants) == len(fed):
        return point
    return evaluate(fed, objective, state.weights)


def newton_direction(
    fed: Federation, objective: Objective, state: NewtonState, here: Point, solver: Solver
) -> Array:
    """The clients' mean Newton step, corrected by what the server remembers; one sum.

    With memory, the mean of the clients' inverse Hessians takes the place of the multiple of the
    identity that L-BFGS starts from. On a quadratic with exact step lengths, that is the method
    of conjugate gradients, preconditioned by this mean (Nocedal and Wright, section 7.2).
    """
    return two_loops(
        here.gradient,
        state.pairs,
        lambda vector: fed.mean(local_newton_step, objective, state.weights, vector, solver),
    )


def after(state: NewtonState, here: Point, move: Move, memory: int = 0) -> NewtonState:
    """The state after a guarded round that began at `here`."""
    moved = move.weights - state.weights
    pairs = remember(state.pairs, moved, move.point.gradient - here.gradient, memory)
    return NewtonState(
        move.weights, state.round + 1, move.step, move.contraction, move.point, pairs
    )
