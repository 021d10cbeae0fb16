"""SHED (Dal Fabbro, Dey, Rossi and Schenato 2024): Hessians sent one eigenvector after the other.

"SHED: a Newton-type algorithm for federated learning based on incremental Hessian eigenvector
sharing". Between two renewals a client's Hessian stands still, and every round it sends the next of
its eigenpairs. With q of them and the next eigenvalue rho_i the server approximates it by

    sum over j <= q of (lambda_j - rho_i) v_j v_j' + rho_i I,

and steps by the mean of these and the gradient, with a line search. The server must tell whose the
pairs are, since rho_i changes every round: this runs on plain sums alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.trainers.fednl.fednl_ls import backtrack, check_search
from secure_fl.trainers.fednl.learning import mean_slope, mean_value
from secure_fl.trainers.fednl.problem import LogisticRidge, local_problem, seen_by
from secure_fl.trainers.fednl.states import Array, origin
from secure_fl.trainers.fednl.triangles import unpack


@broadcastable
@dataclass(frozen=True)
class ShedState:
    """What the server carries.

    Attributes:
        weights: the model, shape (d,).
        centre: where the Hessians were taken last, shape (d,).
        values: eigenvalues so far, descending, shape (n, q).
        vectors: their eigenvectors, shape (n, q, d).
        rest: the next eigenvalue of each client, shape (n,).
        members: whose they are, one name a line.
        round: rounds finished.
        renewed: the round of the last renewal.
        bits: sent by a client so far.
        loss: f at the last round's start; NaN before the first.
        gradient_norm: of f there; NaN before the first.
    """

    weights: Array
    centre: Array
    values: Array
    vectors: Array
    rest: Array
    members: str = ""
    round: int = 0
    renewed: int = 0
    bits: float = 0.0
    loss: float = float("nan")
    gradient_norm: float = float("nan")


@client_step
def eigenpairs(
    client: Client, objective: LogisticRidge, centre: Array, first: int, count: int
) -> Tree:
    """Eigenpairs number `first` to `first + count` of the Hessian at `centre`, largest first.

    Returns "values" (count,), "vectors" (count, d), and "rest", the eigenvalue after them (of the
    last pair itself where there is none).
    """
    client = seen_by(objective, client)
    found = client.cache.get("shed")
    if found is None or not np.array_equal(found[0], centre):
        local = local_problem(client)
        local.evaluate(centre, objective.penalty)
        H = unpack(local.support.dense(local.hessian(objective.penalty)), local.d)
        values, vectors = np.linalg.eigh(H)
        found = client.cache["shed"] = (centre.copy(), values[::-1], vectors.T[::-1])
    _, values, vectors = found
    last = min(first + count, len(values) - 1)
    return {
        "values": values[first : first + count].copy(),
        "vectors": vectors[first : first + count].copy(),
        "rest": float(values[last]),
    }


def renewals(rounds: int) -> frozenset[int]:
    """Rounds before which Hessians are taken anew: 0 and the sums of Fibonacci's numbers.

    The gaps between them are 1, 1, 2, 3, 5, ...: often at first, when the model moves far.
    """
    found, at, gap, following = {0}, 0, 1, 1
    while at < rounds:
        at, gap, following = at + gap, following, gap + following
        found.add(at)
    return frozenset(found)


def mean_hessian(state: ShedState) -> Array:
    """The mean of the clients' approximations, shape (d, d)."""
    n, _, d = state.vectors.shape
    above = state.values - state.rest[:, None]
    flat = state.vectors.reshape(-1, d)
    H: Array = (flat.T * above.ravel()) @ flat / n
    H[np.diag_indices(d)] += float(state.rest.mean())
    return H


def shed(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    pairs: int = 1,
    period: int | None = None,
    c: float = 0.49,
    gamma: float = 0.5,
    x0: Array | None = None,
    start: ShedState | None = None,
) -> Iterator[ShedState]:
    """Runs SHED and yields the state after every round.

    A round costs one gathering of eigenpairs, one sum of gradients, and one number a client for
    every step size tried. Should another set of clients answer, Hessians are taken anew.

    Args:
        fed: the clients under plain sums, targets -1 and 1; every client counts alike.
        objective: with a penalty above 0.
        d: number of features.
        rounds: at least 0.
        pairs: eigenpairs that a client sends in a round, at least 1.
        period: rounds between renewals, at least 1; None takes those of `renewals`.
        c: sufficient decrease of the line search, in (0, 1/2].
        gamma: factor between two step sizes, in (0, 1).
        x0: the first model.
        start: a state to go on from.

    Raises:
        ValueError: an option out of range, or a penalty of 0.
        PrivacyError: secure aggregation or client-level privacy.
        QuorumError: fewer clients survived a round than the threshold.
    """
    check_search(c, gamma)
    if pairs < 1 or (period is not None and period < 1):
        raise ValueError(f"shed: found {pairs} pairs and period {period}, expected at least 1")
    if not objective.penalty > 0:
        raise ValueError("shed: needs a penalty above 0")
    from scipy.linalg import solve

    x = origin(d, x0)
    state = start or ShedState(x, x, np.zeros((0, 0)), np.zeros((0, 0, d)), np.zeros(0))
    if start is None:
        yield state
    anew = renewals(rounds)
    while state.round < rounds:
        k = state.round
        due = k in anew if period is None else k % period == 0
        state = _more(fed, objective, state, pairs, renew=due)
        loss, gradient = mean_slope(fed, objective, state.weights)
        direction = -solve(mean_hessian(state), gradient, assume_a="pos")
        step, tried = backtrack(
            lambda y: mean_value(fed, objective, y),
            state.weights,
            loss,
            direction,
            float(gradient @ direction),
            c,
            gamma,
        )
        state = ShedState(
            state.weights + step,
            state.centre,
            state.values,
            state.vectors,
            state.rest,
            state.members,
            k + 1,
            state.renewed,
            state.bits + 64.0 * (d + 1 + tried),
            loss,
            float(np.linalg.norm(gradient)),
        )
        yield state


def _more(
    fed: Federation, objective: LogisticRidge, state: ShedState, pairs: int, *, renew: bool
) -> ShedState:
    """The state with the next eigenpairs, or with the first ones of Hessians taken anew."""
    first = 0 if renew else state.values.shape[1]
    if not renew and first >= len(state.weights):
        return state
    centre = state.weights if renew else state.centre
    found = fed.gather(eigenpairs, objective, centre, first, pairs)
    members = "\n".join(fed.survivors)
    if not renew and members != state.members:
        return _more(fed, objective, state, pairs, renew=True)
    values = np.stack([each["values"] for each in found])
    vectors = np.stack([each["vectors"] for each in found])
    if not renew:
        values = np.concatenate([state.values, values], axis=1)
        vectors = np.concatenate([state.vectors, vectors], axis=1)
    sent = found[0]["vectors"].shape[0]
    return ShedState(
        state.weights,
        centre,
        values,
        vectors,
        np.array([float(each["rest"]) for each in found]),
        members,
        state.round,
        state.round if renew else state.renewed,
        state.bits + 64.0 * (sent * (len(centre) + 1) + 1),
        state.loss,
        state.gradient_norm,
    )
