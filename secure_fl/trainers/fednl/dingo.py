"""DINGO (Algorithm 1): Newton-type steps that decrease the norm of the gradient.

"DINGO: distributed Newton-type method for gradient-norm optimization", Crane and Roosta,
NeurIPS 2019. A second-order peer of FedNL. Everything the server needs of the clients is a mean,
so it runs on sums alone; the Hessians never leave the clients.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.trainers.fednl.learning import mean_slope
from secure_fl.trainers.fednl.problem import LogisticRidge, local_problem, seen_by
from secure_fl.trainers.fednl.states import Array, origin
from secure_fl.trainers.fednl.triangles import unpack

MOST_HALVINGS = 10
"""The line search takes the largest of 1, 1/2, ..., 2^-10 (FedNL, section 5.1)."""


@broadcastable
@dataclass(frozen=True)
class DingoState:
    """What the server carries.

    Attributes:
        weights: the model, shape (d,).
        gradient: of f there, shape (d,).
        round: rounds finished.
        bits: sent by a client so far.
        case: of the latest direction, 1, 2 or 3; 0 before the first.
        size: of the latest step.
    """

    weights: Array
    gradient: Array
    round: int = 0
    bits: float = 0.0
    case: int = 0
    size: float = 1.0


def _eigen(client: Client, objective: LogisticRidge, x: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of the client's Hessian at x."""
    from scipy.linalg import eigh

    local = local_problem(seen_by(objective, client))
    local.evaluate(x, objective.penalty)
    H = unpack(local.support.dense(local.hessian(objective.penalty)), local.d)
    found: Any = eigh(H, driver="evd", check_finite=False)
    return found


@client_step
def directions(
    client: Client, objective: LogisticRidge, x: Array, gradient: Array, phi: float
) -> Tree:
    """H_i g, H_i^+ g, and the least-squares solution of [H_i; phi I] v = [g; 0]."""
    values, vectors = _eigen(client, objective, x)
    g = vectors.T @ gradient
    # The pseudo-inverse leaves out what is 0 up to rounding.
    kept = np.abs(values) > np.abs(values).max() * len(values) * np.finfo(float).eps
    inverse = np.where(kept, g / np.where(kept, values, 1.0), 0.0)
    return {
        "curved": vectors @ (values * g),
        "inverse": vectors @ inverse,
        "damped": vectors @ (values * g / (values**2 + phi**2)),
    }


@client_step
def corrected(
    client: Client,
    objective: LogisticRidge,
    x: Array,
    gradient: Array,
    curved: Array,
    phi: float,
    theta: float,
) -> Tree:
    """-p_i of case 3: the damped solution, moved until <p_i, H g> <= -theta |g|^2."""
    values, vectors = _eigen(client, objective, x)
    g, h = vectors.T @ gradient, vectors.T @ curved
    squared = values**2 + phi**2
    damped = values * g / squared
    missing = theta * float(gradient @ gradient) - float(damped @ h)
    if missing > 0:
        damped = damped + missing / float(h @ (h / squared)) * (h / squared)
    return vectors @ damped


def dingo(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    theta: float = 1e-4,
    phi: float = 1e-6,
    rho: float = 1e-4,
    x0: Array | None = None,
    start: DingoState | None = None,
) -> Iterator[DingoState]:
    """Runs DINGO and yields the state after every round.

    Args:
        fed: the clients, targets -1 and 1; every client counts alike.
        objective: of every client.
        d: number of features.
        rounds: at least 0.
        theta: least decrease of a direction, above 0.
        phi: damping of cases 2 and 3, above 0.
        rho: sufficient decrease of the line search, in (0, 1).
        x0: the first model; zeros by default.
        start: a state to go on from.

    Raises:
        ValueError: an option out of range.
        QuorumError: fewer clients survived a sum than the threshold.
    """
    if not (theta > 0 and phi > 0 and 0 < rho < 1):
        raise ValueError(
            f"found theta {theta}, phi {phi}, rho {rho}; expected both above 0 and rho in (0, 1)"
        )
    if start is None:
        x = origin(d, x0)
        state = DingoState(x, mean_slope(fed, objective, x)[1], bits=64.0 * d)
        yield state
    else:
        state = start
    while state.round < rounds:
        x, g = state.weights, state.gradient
        total = fed.sum(directions, objective, x, g, phi)
        n = len(fed.survivors)
        h, bits, enough = total["curved"] / n, 3 * 64.0 * d, theta * float(g @ g)
        if float(total["inverse"] @ h) / n >= enough:
            p, case = -total["inverse"] / n, 1
        elif float(total["damped"] @ h) / n >= enough:
            p, case = -total["damped"] / n, 2
        else:
            found = fed.sum(corrected, objective, x, g, h, phi, theta)
            p, case, bits = -found / len(fed.survivors), 3, bits + 64.0 * d
        size, new, tried = _search(fed, objective, state, p, 2 * rho * float(p @ h))
        bits += tried * 64.0 * d
        state = DingoState(x + size * p, new, state.round + 1, state.bits + bits, case, size)
        yield state


def _search(
    fed: Federation, objective: LogisticRidge, state: DingoState, p: Array, slope: float
) -> tuple[float, Array, int]:
    """Step size, the gradient after it, and the gradients asked for; the smallest where none do."""
    size, squared = 1.0, float(state.gradient @ state.gradient)
    for tried in range(1, MOST_HALVINGS + 2):
        _, new = mean_slope(fed, objective, state.weights + size * p)
        if float(new @ new) <= squared + size * slope:
            break
        if tried <= MOST_HALVINGS:
            size /= 2
    return size, new, tried
