"""One-shot averaging: every client solves its own problem, the server averages the models.

For the squared loss this is divide-and-conquer (kernel) ridge regression (DKRR; Zhang et al.
2015; fednewton.txt, section 2), which `fednewton` starts from.
"""

from collections.abc import Iterator

import numpy as np

from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, Tree, client_step
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array, Codes, Features
from secure_fl.trainers.linear._client import records
from secure_fl.trainers.linear.fedavg import AveragingState
from secure_fl.trainers.linear.solvers import Exact

ITERATIONS = 1000
TOLERANCE = 1e-6
"""Largest entry of a client's gradient at which its model counts as solved."""


@client_step
def local_solution(client: Client, objective: Objective) -> Tree:
    """The minimiser of the client's own objective: exact if quadratic, else by L-BFGS."""
    X, y = records(client)
    start = objective.zeros(X.shape[1])
    if objective.quadratic:
        # One Newton step from anywhere ends at the minimiser of a quadratic.
        gradient = objective.gradient(start, X, y)
        return -Exact().solve(objective, start, X, y, gradient, client.cache)
    return _minimise(objective, start, X, y)


def oneshot(fed: Federation, objective: Objective) -> Iterator[AveragingState]:
    """Yields one state: the mean of the clients' own models, weighted by records; one sum.

    Args:
        fed: the participating clients; the server sees only the mean.
        objective: what every client minimises on its own records; with a ridge above 0, so that
            a client of one class has a finite minimiser.

    Raises:
        InputError: the ridge is 0.
        QuorumError: fewer clients survived than the threshold.
    """
    if not objective.ridge > 0:
        raise InputError("one-shot averaging: ridge is 0; give the objective one above 0")
    yield AveragingState(fed.mean(local_solution, objective), 1)


def _minimise(objective: Objective, start: Array, X: Features, y: Codes) -> Array:
    from scipy.optimize import minimize

    def value_and_gradient(flat: Array) -> tuple[float, Array]:
        value, gradient = objective.value_and_gradient(flat.reshape(start.shape), X, y)
        return value, gradient.ravel()

    found = minimize(
        value_and_gradient,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "gtol": TOLERANCE, "ftol": 0.0},
    )
    solution: Array = np.asarray(found.x).reshape(start.shape)
    return solution
