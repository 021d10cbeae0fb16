"""NL1 (Newton-Learn, Algorithm 1): Hessians learned coefficient by coefficient.

"Distributed second order methods with fast rates and compressed communication", Islamov, Qian and
Richtarik, ICML 2021: the method that FedNL set out from, and its peer in Figure 1. The Hessian of a
generalised linear model is a sum of outer products of the records, whose coefficients a client
learns K at a time. The message of a change is the record itself: NL1 reveals training data where
sums are not masked.
"""

from collections.abc import Iterator

import numpy as np

from secure_fl.federation import Client, Federation, Tree, client_step
from secure_fl.trainers.fednl.learning import packed, takes_sparse
from secure_fl.trainers.fednl.problem import LogisticRidge, local_problem, seen_by
from secure_fl.trainers.fednl.server_steps import shifted_step
from secure_fl.trainers.fednl.states import Array, NewtonState, origin
from secure_fl.trainers.fednl.triangles import packed_size


@client_step
def begin_coefficients(client: Client, objective: LogisticRidge, x: Array, sparse: bool) -> Tree:
    """h_i^0, the curvatures of the records at x, and the Hessian of them, without the ridge."""
    client = seen_by(objective, client)
    local = local_problem(client)
    local.evaluate(x, 0.0)
    client.state["coefficients"] = local.curvature.copy()
    return packed(local, local.hessian(0.0), sparse)


@client_step
def learn_coefficients(
    client: Client, objective: LogisticRidge, k: int, x: Array, sparse: bool
) -> Tree:
    """Loss and gradient at x, and the change of the Hessian by K random coefficients.

    h^{k+1} = [h^k + eta C(h(x) - h^k)]_+ with Rand-K and eta = K/m: the factor m/K of the
    compressor cancels, so the drawn coefficients become those of x.
    """
    client = seen_by(objective, client)
    local = local_problem(client)
    loss, gradient = local.evaluate(x, objective.penalty)
    held = client.state["coefficients"]
    drawn = client.rng.choice(local.m, min(k, local.m), replace=False)
    change = np.zeros(local.m)
    change[drawn] = np.maximum(local.curvature[drawn], 0.0) - held[drawn]
    client.state["coefficients"] = held + change
    values = local.weighted_gram(change, 0.0)
    return {"loss": loss, "gradient": gradient, "change": packed(local, values, sparse)}


def newton_learn(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    k: int = 1,
    x0: Array | None = None,
    start: NewtonState | None = None,
) -> Iterator[NewtonState]:
    """Runs NL1 and yields the state after every round; one sum a round.

    Args:
        fed: the clients, targets -1 and 1; every client counts alike. None may drop out after it
            has moved its coefficients: the server could not follow.
        objective: with a penalty above 0.
        d: number of features.
        rounds: at least 0.
        k: coefficients that a client learns a round, at least 1.
        x0: the first model; zeros by default.
        start: a state to go on from, on clients that carry their own.

    Raises:
        ValueError: k below 1, no penalty, or a client dropped out.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if k < 1 or not objective.penalty > 0:
        raise ValueError(
            f"found k {k} and penalty {objective.penalty}; expected 1 or more, above 0"
        )
    sparse = takes_sparse(fed)
    if start is None:
        x = origin(d, x0)
        total = fed.sum(begin_coefficients, objective, x, sparse)
        members = "\n".join(fed.survivors)
        bits = 64.0 * packed_size(d)
        state = NewtonState(x, total / len(fed.survivors), bits=bits, members=members)
        yield state
    else:
        state = start
    while state.round < rounds:
        x, H = state.weights, state.hessian
        total = fed.sum(learn_coefficients, objective, k, x, sparse)
        if "\n".join(fed.survivors) != state.members:
            raise ValueError("NL1: a client dropped out after it moved its coefficients; use fednl")
        n = len(fed.survivors)
        gradient = total["gradient"] / n
        state = NewtonState(
            x - shifted_step(H, objective.penalty, gradient),
            H + total["change"] / n,
            state.round + 1,
            # A coefficient travels with its record.
            state.bits + 64.0 * (d + k * (d + 1)),
            float(total["loss"]) / n,
            float(np.linalg.norm(gradient)),
            members=state.members,
        )
        yield state
