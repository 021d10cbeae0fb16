"""FedNL-PP (Algorithm 2): FedNL with tau of n clients a round."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from secure_fl.federation import Client, Federation, SparseArray, Tree, broadcastable, client_step
from secure_fl.trainers.fednl import triangles
from secure_fl.trainers.fednl.compressors import Compressor
from secure_fl.trainers.fednl.learning import Learning, improve, learning_for
from secure_fl.trainers.fednl.problem import LocalProblem, LogisticRidge, local_problem, seen_by
from secure_fl.trainers.fednl.server_steps import shifted_step
from secure_fl.trainers.fednl.states import Array, origin


@broadcastable
@dataclass(frozen=True)
class PartialState:
    """What the server carries.

    Attributes:
        weights: x^k, what the next participants receive, shape (d,).
        hessian: H^k, packed.
        corrected: g^k, mean of (H_i + l_i I) w_i - gradient of f_i(w_i), shape (d,).
        error: l^k.
        round: rounds finished.
        bits: sent so far per client of the federation, on average.
    """

    weights: Array
    hessian: Array
    corrected: Array
    error: float
    round: int = 0
    bits: float = 0.0


@client_step
def begin_partial(client: Client, objective: LogisticRidge, learning: Learning, x: Array) -> Tree:
    """Line 2 with H_i^0 the local Hessian, so that l_i^0 = 0."""
    client = seen_by(objective, client)
    local = local_problem(client, learning.compressor.entrywise)
    local.evaluate(x, objective.penalty)
    client.state["hessian"] = local.hessian(objective.penalty)
    _keep(client, local, objective, x)
    return _everything(client, local, learning)


@client_step
def everything(client: Client, objective: LogisticRidge, learning: Learning) -> Tree:
    """What the client contributes to H, l and g."""
    client = seen_by(objective, client)
    return _everything(client, local_problem(client, learning.compressor.entrywise), learning)


@client_step
def take_part(
    client: Client, objective: LogisticRidge, learning: Learning, x: Array, draw: int
) -> Tree:
    """Lines 8 to 13: the changes of H_i, l_i and g_i."""
    client = seen_by(objective, client)
    local = local_problem(client, learning.compressor.entrywise)
    error, corrected = float(client.state["error"][0]), client.state["corrected"]
    local.evaluate(x, objective.penalty)
    _, message = improve(client, local, objective, learning, draw)
    _keep(client, local, objective, x)
    return {
        "difference": message,
        "error": float(client.state["error"][0]) - error,
        "corrected": client.state["corrected"] - corrected,
    }


def _keep(client: Client, local: LocalProblem, objective: LogisticRidge, x: Array) -> None:
    # Lines 11 and 12: the error and the corrected gradient of the estimate after its update.
    _, gradient = local.evaluate(x, objective.penalty)
    held = client.state["hessian"]
    away = local.hessian(objective.penalty) - held
    error = float(np.sqrt(local.support.weights @ away**2))
    client.state["error"] = np.array([error])
    client.state["corrected"] = _times(local, held, x) + error * x - gradient


def _times(local: LocalProblem, held: Array, x: Array) -> Array:
    rows, columns = triangles.entries_of(local.support.index)
    off = rows != columns
    product = np.bincount(rows, held * x[columns], local.d)
    return product + np.bincount(columns[off], (held * x[rows])[off], local.d)


def _everything(client: Client, local: LocalProblem, learning: Learning) -> Tree:
    held = client.state["hessian"]
    size = triangles.packed_size(local.d)
    whole: Any = SparseArray(local.support.index, held, size)
    return {
        "hessian": whole if learning.sparse else local.support.dense(held),
        "error": float(client.state["error"][0]),
        "corrected": client.state["corrected"],
    }


def drawn(fed: Federation, tau: int, seed: int, number: int) -> tuple[Array, tuple[str, ...]]:
    """Places and names of the clients of a round, ascending, the same whenever it is asked."""
    rng = np.random.default_rng([seed, number])
    places = np.sort(rng.choice(len(fed.participants), tau, replace=False))
    return places, tuple(fed.participants[int(i)] for i in places)


def means_of_all(fed: Federation, total: Tree) -> tuple[Array, Array, float]:
    """H, g and l of everybody who is there."""
    n = len(fed.survivors)
    return total["hessian"] / n, total["corrected"] / n, float(total["error"]) / n


def fednl_pp(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    tau: int,
    seed: int = 0,
    compressor: Compressor | None = None,
    rate: str | float = "auto",
    l_norm: str = "frobenius",
    x0: Array | None = None,
    start: PartialState | None = None,
) -> Iterator[PartialState]:
    """Runs FedNL-PP and yields the state after every round.

    The trainer draws the tau clients itself, because Algorithm 2 starts with everybody; so all
    clients of the federation must take part in its rounds. Should one drop out after it has moved,
    the server asks everybody for H_i, l_i and g_i anew.

    Args:
        fed: all clients participating; a threshold of at most tau.
        objective: with a penalty above 0.
        d: number of features.
        rounds: at least 0.
        tau: clients a round, in [1, n].
        seed: of the draw of clients.
        compressor: of the Hessians.
        rate: alpha.
        l_norm: only "frobenius", the norm of the theory.
        x0: the first model.
        start: a state to go on from.

    Raises:
        ValueError: an option out of range.
        QuorumError: fewer clients survived a sum than the threshold.
    """
    n = len(fed)
    if not 1 <= tau <= n:
        raise ValueError(f"tau {tau}: expected 1 to {n} clients")
    if l_norm != "frobenius":
        raise ValueError(f'l_norm {l_norm!r}: FedNL-PP takes "frobenius"')
    learning = learning_for(fed, d, compressor, rate, l_norm)
    if start is None:
        x = origin(d, x0)
        state = _state_of(fed, fed.sum(begin_partial, objective, learning, x), 0, 0.0, d)
        yield state
    else:
        state = start
    message = 64.0 * (d + 1) + learning.compressor.matrix_bits(d)
    while state.round < rounds:
        _, names = drawn(fed, tau, seed, state.round)
        x = state.weights
        total = fed.sum(take_part, objective, learning, x, state.round, over=names)
        done, bits = state.round + 1, state.bits + message * tau / n
        if fed.survivors == names:
            change = learning.compressor.expand(total["difference"], d, state.round)
            H = state.hessian + (learning.rate / n) * change
            error = state.error + float(total["error"]) / n
            g = state.corrected + total["corrected"] / n
            state = PartialState(shifted_step(H, error, g), H, g, error, done, bits)
        else:
            state = _state_of(fed, fed.sum(everything, objective, learning), done, bits, d)
        yield state


def _state_of(fed: Federation, total: Tree, done: int, bits: float, d: int) -> PartialState:
    H, g, error = means_of_all(fed, total)
    bits += 64.0 * (triangles.packed_size(d) + d + 1)
    # Line 4 of the next round is part of the state, so that the yielded weights are the newest.
    return PartialState(shifted_step(H, error, g), H, g, error, done, bits)
