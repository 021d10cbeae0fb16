"""First-order peers of FedNL: GD, GD with line search, DIANA, ADIANA and shifted local GD.

Step sizes follow from the data (`smoothness`), as in the FedNL paper's experiments (B.2).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.trainers.fednl.compressors import Compressor
from secure_fl.trainers.fednl.fednl_ls import backtrack, check_search
from secure_fl.trainers.fednl.learning import mean_slope, mean_value, packed, takes_sparse
from secure_fl.trainers.fednl.problem import LogisticRidge, local_problem, seen_by
from secure_fl.trainers.fednl.quantisers import Dithering
from secure_fl.trainers.fednl.states import Array, origin
from secure_fl.trainers.fednl.triangles import unpack


@broadcastable
@dataclass(frozen=True)
class Smoothness:
    """Constants of the problem.

    Attributes:
        mean: L of f.
        largest: the largest L_i of an f_i.
    """

    mean: float
    largest: float


@broadcastable
@dataclass(frozen=True)
class FirstOrderState:
    """What the server of a first-order method carries; the vectors that a method lacks are 0.

    Attributes:
        weights: the model, shape (d,).
        shift: mean of the clients' gradient shifts, shape (d,).
        slow: y (ADIANA), or the point of the shift (shifted local GD), shape (d,).
        fast: z (ADIANA), shape (d,).
        anchor: w (ADIANA), shape (d,).
        size: step size of the latest line search.
        round: rounds finished.
        bits: sent by a client so far.
    """

    weights: Array
    shift: Array
    slow: Array
    fast: Array
    anchor: Array
    size: float = 1.0
    round: int = 0
    bits: float = 0.0


@client_step
def gram(client: Client, objective: LogisticRidge, sparse: bool) -> Tree:
    """The mean outer product of the client's rows, packed."""
    local = local_problem(seen_by(objective, client))
    values = local.weighted_gram(np.full(local.m, 1.0 / local.m), 0.0)
    return packed(local, values, sparse)


@client_step
def local_smoothness(client: Client, objective: LogisticRidge) -> Tree:
    """The largest eigenvalue of the client's mean outer product."""
    local = local_problem(seen_by(objective, client))
    values = local.weighted_gram(np.full(local.m, 1.0 / local.m), 0.0)
    H = unpack(local.support.dense(values), local.d)
    return float(np.linalg.eigvalsh(H)[-1])


def smoothness(fed: Federation, objective: LogisticRidge, *, d: int) -> Smoothness:
    """L of f, and the largest L_i: a quarter of the largest eigenvalue, plus the ridge.

    The largest of the clients' constants is not a sum: this gathers one number a client, and so
    refuses to run under secure aggregation or client-level privacy; pass constants there.

    Raises:
        PrivacyError: sums are secure or private.
    """
    constants = [float(each) for each in fed.gather(local_smoothness, objective)]
    total = fed.sum(gram, objective, takes_sparse(fed)) / len(fed.survivors)
    mean = float(np.linalg.eigvalsh(unpack(total, d))[-1])
    return Smoothness(mean / 4 + objective.penalty, max(constants) / 4 + objective.penalty)


def _first(d: int, x0: Array | None) -> FirstOrderState:
    x, zero = origin(d, x0), np.zeros(d)
    return FirstOrderState(x, zero, x, x, x)


def gradient_descent(
    fed: Federation,
    objective: LogisticRidge,
    constants: Smoothness,
    *,
    d: int,
    rounds: int,
    x0: Array | None = None,
) -> Iterator[FirstOrderState]:
    """GD with step size 1/L."""
    state = _first(d, x0)
    yield state
    while state.round < rounds:
        _, g = mean_slope(fed, objective, state.weights)
        x = state.weights - g / constants.mean
        state = FirstOrderState(x, g, x, x, x, round=state.round + 1, bits=state.bits + 64.0 * d)
        yield state


def gradient_descent_ls(
    fed: Federation,
    objective: LogisticRidge,
    constants: Smoothness,
    *,
    d: int,
    rounds: int,
    c: float = 0.49,
    gamma: float = 0.5,
    x0: Array | None = None,
) -> Iterator[FirstOrderState]:
    """GD with backtracking; each search starts one step above the size that was taken last."""
    check_search(c, gamma)
    state = _first(d, x0)
    state = replace(state, size=1 / constants.mean)
    yield state
    while state.round < rounds:
        x = state.weights
        loss, g = mean_slope(fed, objective, x)
        first = state.size / gamma
        step, tried = backtrack(
            lambda y: mean_value(fed, objective, y), x, loss, -g, -float(g @ g), c, gamma, first
        )
        size = first * gamma ** max(tried - 1, 0)
        x = x + step
        bits = state.bits + 64.0 * (d + 1 + tried)
        state = FirstOrderState(x, g, x, x, x, size, state.round + 1, bits)
        yield state


@client_step
def compressed_gradient(
    client: Client,
    objective: LogisticRidge,
    compressor: Compressor,
    alpha: float,
    points: tuple[Array, ...],
    draw: int,
    sparse: bool,
) -> Tree:
    """C(gradient - h_i) at each point; the last one moves the shift h_i by alpha C."""
    client = seen_by(objective, client)
    local = local_problem(client)
    if draw == 0:
        client.state["shift"] = np.zeros(local.d)
    shift, sent = client.state["shift"], []
    for x in points:
        _, gradient = local.evaluate(x, objective.penalty)
        sent.append(compressor.compress_vector(gradient - shift, client.rng, draw, sparse))
    client.state["shift"] = shift + alpha * sent[-1].values
    return tuple(each.message for each in sent)


def diana(
    fed: Federation,
    objective: LogisticRidge,
    constants: Smoothness,
    *,
    d: int,
    rounds: int,
    compressor: Compressor | None = None,
    x0: Array | None = None,
) -> Iterator[FirstOrderState]:
    """DIANA (Mishchenko et al. 2019): compressed differences of gradients.

    alpha = 1/(omega + 1) and step size min(alpha/(2 mu), 2/((L + mu)(1 + 6 omega/n))), its theorem
    for strongly convex functions, with L the largest of the clients'. Dithering with sqrt(d) levels
    by default.
    """
    compressor, omega = unbiased(compressor, d)
    alpha, n, mu = 1 / (omega + 1), len(fed), objective.penalty
    gamma = 2 / ((constants.largest + mu) * (1 + 6 * omega / n))
    if mu > 0:
        gamma = min(gamma, alpha / (2 * mu))
    state = _first(d, x0)
    yield state
    while state.round < rounds:
        x, k = state.weights, state.round
        sparse = takes_sparse(fed)
        (total,) = fed.sum(compressed_gradient, objective, compressor, alpha, (x,), k, sparse)
        mean = total / len(fed.survivors)
        new = x - gamma * (state.shift + mean)
        bits = state.bits + compressor.vector_bits(d)
        state = FirstOrderState(new, state.shift + alpha * mean, new, new, new, 1.0, k + 1, bits)
        yield state


def adiana(
    fed: Federation,
    objective: LogisticRidge,
    constants: Smoothness,
    *,
    d: int,
    rounds: int,
    compressor: Compressor | None = None,
    seed: int = 0,
    x0: Array | None = None,
) -> Iterator[FirstOrderState]:
    """ADIANA (Li et al. 2020b): accelerated DIANA, with the step sizes of its theorem."""
    compressor, omega = unbiased(compressor, d)
    alpha, n, mu, L = 1 / (omega + 1), len(fed), objective.penalty, constants.largest
    p = 1.0
    if omega > 0:
        p = min(1.0, max(1.0, (n / (32 * omega)) ** 0.5 - 1) / (2 * (1 + omega)))
    eta = 1 / (2 * L)
    if omega > 0:
        eta = min(eta, n / (64 * omega * (2 * p * (omega + 1) + 1) ** 2 * L))
    theta1, theta2 = min(0.25, (eta * mu / p) ** 0.5), 0.5
    gamma = eta / (2 * (theta1 + eta * mu))
    beta = 1 - gamma * mu
    state = _first(d, x0)
    yield state
    while state.round < rounds:
        k, y, z, w = state.round, state.slow, state.fast, state.anchor
        x = theta1 * z + theta2 * w + (1 - theta1 - theta2) * y
        at_x, at_w = fed.sum(
            compressed_gradient, objective, compressor, alpha, (x, w), k, takes_sparse(fed)
        )
        count = len(fed.survivors)
        new = x - eta * (state.shift + at_x / count)
        z = beta * z + (1 - beta) * x + (gamma / eta) * (new - x)
        if np.random.default_rng([seed, k]).random() < p:
            w = y
        shift = state.shift + alpha * at_w / count
        bits = state.bits + 2 * compressor.vector_bits(d)
        state = FirstOrderState(new, shift, new, z, w, 1.0, k + 1, bits)
        yield state


def unbiased(compressor: Compressor | None, d: int) -> tuple[Compressor, float]:
    """The compressor, by default dithering with sqrt(d) levels, and its omega on vectors.

    Raises:
        ValueError: a biased one.
    """
    compressor = compressor or Dithering(max(1, round(d**0.5)))
    omega = compressor.on_vectors(d).omega
    if omega is None:
        raise ValueError(f"{compressor}: these methods need an unbiased compressor")
    return compressor, omega


@client_step
def local_run(
    client: Client,
    objective: LogisticRidge,
    x: Array,
    anchor: Array,
    at_anchor: Array,
    gamma: float,
    steps: int,
) -> Tree:
    """Local steps with the gradient shifted by the difference of the means at the anchor."""
    local = local_problem(seen_by(objective, client))
    _, mine = local.evaluate(anchor, objective.penalty)
    x = x.copy()
    for _ in range(steps):
        _, gradient = local.evaluate(x, objective.penalty)
        x -= gamma * (gradient - mine + at_anchor)
    return x


def shifted_local_gd(
    fed: Federation,
    objective: LogisticRidge,
    constants: Smoothness,
    *,
    d: int,
    rounds: int,
    p: float | None = None,
    seed: int = 0,
    x0: Array | None = None,
) -> Iterator[FirstOrderState]:
    """S-Local-GD (Gorbunov et al. 2021b), one yield for each exchange.

    An exchange follows after a number of local steps that is geometric with p (1/n by default);
    then the anchor of the shifts moves with probability q = p, which costs a gradient more. Step
    size p/(6 L_max): p/L is the order of its theorem, the constant 1/6 is ours.
    """
    p = 1 / len(fed) if p is None else p
    if not 0 < p <= 1:
        raise ValueError(f"p {p}: expected it in (0, 1]")
    gamma = p / (6 * constants.largest)
    state = _first(d, x0)
    _, g = mean_slope(fed, objective, state.weights)
    state = replace(state, shift=g, bits=64.0 * d)
    yield state
    while state.round < rounds:
        rng = np.random.default_rng([seed, state.round])
        steps, anchor, g = int(rng.geometric(p)), state.slow, state.shift
        total = fed.sum(local_run, objective, state.weights, anchor, g, gamma, steps)
        x, bits = total / len(fed.survivors), state.bits + 64.0 * d
        # The chance that the anchor moved in any of these steps.
        if rng.random() < 1 - (1 - p) ** steps:
            anchor, (_, g), bits = x, mean_slope(fed, objective, x), bits + 64.0 * d
        state = FirstOrderState(x, g, anchor, x, x, 1.0, state.round + 1, bits)
        yield state
