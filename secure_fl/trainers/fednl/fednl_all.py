"""FedNL with all of it: partial participation, a line search, compression both ways, masked sums.

The paper (FedNL, ICML 2022) has each of them alone and leaves their combination open. This one
stands on Algorithm 2, whose server holds means over all clients of what each knew when it last took
part, at w_i: H of H_i, l of l_i = |H_i - Hessian of f_i(w_i)|, g of (H_i + l_i I) w_i - gradient of
f_i(w_i). At the model z they give an estimate of the gradient,

    q = (H + l I) z - g,    the mean of gradient f_i(w_i) + (H_i + l_i I) (z - w_i),

and a Newton direction - H^{-1} q: with H + l I (option 2; z + direction is then Algorithm 2's next
model) or with H projected onto H >= mu I (option 1, as Algorithms 1 and 3 have it). The direction
goes down compressed (Algorithm 5's eta C(.)), and all clients move by it, or by the part of it that
a line search over all of them finds (Algorithm 3; one number a client and trial). A compressed
direction that no longer points down in the estimate is sent whole.

The coin of Algorithm 5, by which a round sends no gradients, has no place here: a client's part of
g changes with its H_i, so its d numbers go up whenever it takes part.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from attrs import frozen

from secure_fl.federation import Federation, Tree, broadcastable
from secure_fl.trainers.fednl.compressors import Compressor, Identity
from secure_fl.trainers.fednl.fednl_ls import backtrack, check_search
from secure_fl.trainers.fednl.fednl_pp import (
    begin_partial,
    drawn,
    everything,
    means_of_all,
    take_part,
)
from secure_fl.trainers.fednl.learning import Learning, learning_for, mean_value
from secure_fl.trainers.fednl.problem import LogisticRidge
from secure_fl.trainers.fednl.server_steps import projected_step, shifted_step
from secure_fl.trainers.fednl.states import Array, origin
from secure_fl.trainers.fednl.triangles import packed_size, unpack


@broadcastable
@dataclass(frozen=True)
class AllState:
    """What the server carries.

    Attributes:
        weights: z^k, the model that the next participants start from, shape (d,).
        hessian: H^k, packed.
        corrected: g^k, shape (d,).
        error: l^k.
        behind: bits that each client has not been sent of the changes of z, shape (n,).
        round: rounds finished.
        bits: sent so far by a client of the federation, on average.
        bits_down: sent so far to a client of the federation, on average.
        step: share of the last direction that was taken, in [0, 1].
    """

    weights: Array
    hessian: Array
    corrected: Array
    error: float
    behind: Array
    round: int = 0
    bits: float = 0.0
    bits_down: float = 0.0
    step: float = 1.0


@frozen
class _Settings:
    """What does not change from round to round."""

    learning: Learning
    model: Compressor
    model_rate: float
    option: int
    tau: int
    seed: int
    search: bool
    c: float
    gamma: float


def fednl_all(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    tau: int | None = None,
    option: int = 2,
    search: bool = True,
    compressor: Compressor | None = None,
    rate: str | float = "auto",
    model_compressor: Compressor | None = None,
    model_rate: float = 1.0,
    seed: int = 0,
    c: float = 0.49,
    gamma: float = 0.5,
    x0: Array | None = None,
    start: AllState | None = None,
) -> Iterator[AllState]:
    """Runs it and yields the state after every round.

    Without search and model compressor, option 2, it is `fednl_pp`. With the search no round
    increases the mean of all clients' functions. A round costs one sum over tau clients and, with
    the search, one of numbers over all of them for every step size tried and for where it starts.

    Should a client drop out after it has moved, the server asks everybody for H_i, l_i and g_i
    anew, as `fednl_pp`.

    Args:
        fed: all clients participating; a threshold of at most tau. Sums may be masked.
        objective: with a penalty above 0.
        d: number of features.
        rounds: at least 0.
        tau: clients a round, in [1, n]; None takes all.
        option: 1, H projected; 2, H + l I.
        search: whether the step is searched for; otherwise it is whole.
        compressor: of the Hessians.
        rate: alpha.
        model_compressor: of the direction; identity by default.
        model_rate: eta, above 0; with the search, where it begins.
        seed: of the draw of clients and of the model's compressor.
        c: sufficient decrease, in (0, 1/2].
        gamma: factor between two step sizes, in (0, 1).
        x0: the first model.
        start: a state to go on from.

    Raises:
        ValueError: an option out of range.
        QuorumError: fewer clients survived a sum than the threshold.
    """
    n = len(fed)
    tau = n if tau is None else tau
    if not 1 <= tau <= n or option not in (1, 2) or not model_rate > 0:
        raise ValueError(
            f"found tau {tau}, option {option}, model_rate {model_rate}; expected tau from 1 to"
            f" {n}, option 1 or 2, a rate above 0"
        )
    check_search(c, gamma)
    settings = _Settings(
        learning_for(fed, d, compressor, rate, "frobenius"),
        model_compressor or Identity(),
        model_rate,
        option,
        tau,
        seed,
        search,
        c,
        gamma,
    )
    if start is None:
        z = origin(d, x0)
        total = fed.sum(begin_partial, objective, settings.learning, z)
        state = _with_means(AllState(z, z, z, 0.0, np.zeros(n)), fed, total)
        yield state
    else:
        state = start
    while state.round < rounds:
        state = _round(fed, objective, state, settings)
        yield state


def _round(
    fed: Federation, objective: LogisticRidge, state: AllState, settings: _Settings
) -> AllState:
    moved = _moved(fed, objective, state, settings)
    d, n, k = len(moved.weights), len(fed), state.round
    chosen, names = drawn(fed, settings.tau, settings.seed, k)
    moved = _told(moved, chosen, d)
    total = fed.sum(take_part, objective, settings.learning, moved.weights, k, over=names)
    sent = 64.0 * (d + 1) + settings.learning.compressor.matrix_bits(d)
    bits = moved.bits + sent * settings.tau / n
    if fed.survivors != names:
        total = fed.sum(everything, objective, settings.learning)
        return _with_means(replace(moved, round=k + 1, bits=bits), fed, total)
    change = settings.learning.compressor.expand(total["difference"], d, k)
    return replace(
        moved,
        hessian=moved.hessian + (settings.learning.rate / n) * change,
        error=moved.error + float(total["error"]) / n,
        corrected=moved.corrected + total["corrected"] / n,
        round=k + 1,
        bits=bits,
    )


def _moved(
    fed: Federation, objective: LogisticRidge, state: AllState, settings: _Settings
) -> AllState:
    """The next model, and what it costs that clients can make it too."""
    z, d = state.weights, len(state.weights)
    q = _shifted(state.hessian, state.error, z) - state.corrected
    mu = objective.penalty
    direction = (
        -projected_step(state.hessian, mu, q)
        if settings.option == 1
        else -shifted_step(state.hessian, state.error, q)
    )
    rng = np.random.default_rng([settings.seed, state.round, 1])
    told = settings.model.vector(direction, rng, state.round)
    message = settings.model.vector_bits(d)
    if float(q @ told) >= 0 and direction.any():
        told, message = direction, 64.0 * d
    if not settings.search:
        behind = state.behind + message
        return replace(state, weights=z + settings.model_rate * told, behind=behind)
    loss = mean_value(fed, objective, z)
    step, tried = backtrack(
        lambda y: mean_value(fed, objective, y),
        z,
        loss,
        told,
        float(q @ told),
        settings.c,
        settings.gamma,
        settings.model_rate,
    )
    longest = float(np.linalg.norm(told))
    share = float(np.linalg.norm(step)) / longest if longest else 0.0
    # Everybody is told the direction, and the size that was found.
    return replace(
        state,
        weights=z + step,
        step=share,
        bits=state.bits + 64.0 * (1 + tried),
        bits_down=state.bits_down + message + 64.0,
    )


def _told(state: AllState, chosen: Array, d: int) -> AllState:
    """Participants are sent what they missed, or the whole model where that is less."""
    owed = np.minimum(state.behind[chosen], 64.0 * d)
    behind = state.behind.copy()
    behind[chosen] = 0.0
    down = state.bits_down + float(owed.sum()) / len(behind)
    return replace(state, behind=behind, bits_down=down)


def _shifted(hessian: Array, shift: float, z: Array) -> Array:
    product: Array = unpack(hessian, len(z)) @ z + shift * z
    return product


def _with_means(state: AllState, fed: Federation, total: Tree) -> AllState:
    """H, l and g of everybody who is there."""
    H, g, error = means_of_all(fed, total)
    d = len(state.weights)
    return replace(
        state,
        hessian=np.asarray(H),
        error=error,
        corrected=g,
        bits=state.bits + 64.0 * (packed_size(d) + d + 1),
    )
