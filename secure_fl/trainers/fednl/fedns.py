"""FedNS (Li, Liu and Wang 2024, algorithm 1): Newton steps by sketched square roots of Hessians.

"FedNS: a fast sketching Newton-type algorithm for federated learning". A client's Hessian is
B' B + lambda I with a row of B for each record. It sends its gradient and S B, of k rows instead of
one a record; the server's Hessian is the mean of (S B)' (S B), plus lambda I.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from secure_fl.federation import Client, Federation, LowRank, Tree, broadcastable, client_step
from secure_fl.trainers.fednl.learning import takes_sparse
from secure_fl.trainers.fednl.problem import LocalProblem, LogisticRidge, local_problem, seen_by
from secure_fl.trainers.fednl.states import Array, origin
from secure_fl.trainers.fednl.triangles import pack, packed_size, unpack

KINDS = ("srht", "gaussian")


@broadcastable
@dataclass(frozen=True)
class SketchState:
    """What the server carries.

    Attributes:
        weights: the model, shape (d,).
        round: rounds finished.
        bits: sent by a client so far.
        loss: f at the last round's start; NaN before the first.
        gradient_norm: of f there; NaN before the first.
    """

    weights: Array
    round: int = 0
    bits: float = 0.0
    loss: float = float("nan")
    gradient_norm: float = float("nan")


def hadamard(matrix: Array) -> Array:
    """The orthonormal Walsh-Hadamard transform of the columns; rows are a power of 2."""
    found = np.array(matrix, dtype=np.float64)
    n, half = len(found), 1
    while half < n:
        pairs = found.reshape(n // (2 * half), 2, half, -1)
        found = np.concatenate(
            [pairs[:, :1] + pairs[:, 1:], pairs[:, :1] - pairs[:, 1:]], axis=1
        ).reshape(found.shape)
        half *= 2
    return found / math.sqrt(n)


def sketched(rows: Array, k: int, kind: str, rng: np.random.Generator) -> Array:
    """S B, shape (k, d), with E S' S = I; B itself where it has no more than k rows.

    Args:
        rows: B, shape (m, d).
        k: rows of the sketch, at least 1.
        kind: "srht", k rows drawn without replacement of a Hadamard transform of randomly signed
            records, padded to a power of 2; or "gaussian", entries of variance 1 / k.
        rng: the client's.
    """
    m = len(rows)
    if m <= k:
        return rows
    if kind == "gaussian":
        return rng.standard_normal((k, m)) @ rows / math.sqrt(k)
    size = 1 << (m - 1).bit_length()
    signed = np.zeros((size, rows.shape[1]))
    signed[:m] = rng.choice([-1.0, 1.0], (m, 1)) * rows
    mixed: Array = hadamard(signed)[rng.permutation(size)[:k]]
    return mixed * math.sqrt(size / k)


def square_root(local: LocalProblem) -> Array:
    """B of shape (m, d), where the problem was evaluated last; the Hessian is B' B + lambda I."""
    shape = (local.m, local.d)
    rows = csr_array((local.data, local.indices, local.indptr), shape=shape).toarray()
    found: Array = np.sqrt(local.curvature)[:, None] * rows
    return found


@client_step
def sketch(
    client: Client, objective: LogisticRidge, x: Array, k: int, kind: str, sparse: bool
) -> Tree:
    """Loss and gradient at x, and (S B)' (S B): its k rows where sums take them."""
    local = local_problem(seen_by(objective, client))
    slope = np.empty(local.d + 1)
    slope[0], slope[1:] = local.evaluate(x, objective.penalty)
    rows = sketched(square_root(local), k, kind, client.rng)
    if sparse and k * (local.d + 1) < packed_size(local.d):
        padded = np.zeros((k, local.d))
        padded[: len(rows)] = rows
        return {"slope": slope, "hessian": LowRank(np.ones(k), padded)}
    return {"slope": slope, "hessian": pack(rows.T @ rows)}


def fedns(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    k: int | None = None,
    kind: str = "srht",
    size: float = 1.0,
    x0: Array | None = None,
    start: SketchState | None = None,
) -> Iterator[SketchState]:
    """Runs FedNS and yields the state after every round; one sum a round.

    Args:
        fed: the clients, targets -1 and 1; every client counts alike.
        objective: with a penalty above 0, which keeps the sketched Hessian positive.
        d: number of features.
        rounds: at least 0.
        k: rows of a sketch, at least 1; None takes 2 d.
        kind: of the sketch; see `sketched`.
        size: of a step, mu in the paper, in (0, 1].
        x0: the first model.
        start: a state to go on from.

    Raises:
        ValueError: an option out of range, or a penalty of 0.
        QuorumError: fewer clients survived a round than the threshold.
    """
    k = 2 * d if k is None else k
    if k < 1 or kind not in KINDS or not 0 < size <= 1:
        raise ValueError(f"fedns: found k {k}, kind {kind!r}, size {size}; see its docstring")
    if not objective.penalty > 0:
        raise ValueError("fedns: needs a penalty above 0")
    from scipy.linalg import solve

    state = start or SketchState(origin(d, x0))
    if start is None:
        yield state
    # A sketch as long as the triangle is sent as the triangle.
    bits = 64.0 * (d + 1 + min(k * d, packed_size(d)))
    while state.round < rounds:
        x = state.weights
        total = fed.sum(sketch, objective, x, k, kind, takes_sparse(fed))
        n = len(fed.survivors)
        H = unpack(total["hessian"] / n, d)
        H[np.diag_indices(d)] += objective.penalty
        gradient = total["slope"][1:] / n
        step = solve(H, gradient, assume_a="pos")
        norm = float(np.linalg.norm(gradient))
        loss = float(total["slope"][0]) / n
        state = SketchState(x - size * step, state.round + 1, state.bits + bits, loss, norm)
        yield state
