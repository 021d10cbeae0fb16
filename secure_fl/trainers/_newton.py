"""What the Newton-type trainers share: their state, the client's step, and the reused point."""

import math
from dataclasses import dataclass

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array
from secure_fl.trainers._client import records
from secure_fl.trainers.lbfgs import Pairs
from secure_fl.trainers.safeguard import Move, Point, evaluate
from secure_fl.trainers.solvers import Solver


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
        direction: of the last round, for conjugate directions.
        change: gradient at the end of the last round less that at its start, for the same.
        pairs: history of L-BFGS.
    """

    weights: Array
    round: int = 0
    step: float = 1.0
    contraction: float = math.nan
    point: Point | None = None
    direction: Array | None = None
    change: Array | None = None
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


def after(state: NewtonState, move: Move, pairs: Pairs = ()) -> NewtonState:
    """The state after a guarded round."""
    return NewtonState(
        move.weights, state.round + 1, move.step, move.contraction, move.point, pairs=pairs
    )
