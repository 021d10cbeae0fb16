"""Artemis (Philippenko and Dieuleveut 2021): compression in both directions, some clients a round.

"Bidirectional compression in heterogeneous settings for distributed or federated learning with
partial participation". Clients send compressed differences of their gradients from memories; the
server keeps the mean of all memories, so that with few participants it has a gradient of everybody
(their variant PP2), and sends the compressed gradient back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.trainers.fednl.compressors import Compressor, Identity
from secure_fl.trainers.fednl.first_order import Smoothness, smoothness, unbiased
from secure_fl.trainers.fednl.learning import takes_sparse
from secure_fl.trainers.fednl.problem import LogisticRidge, local_problem, seen_by
from secure_fl.trainers.fednl.states import Array, origin


@broadcastable
@dataclass(frozen=True)
class ArtemisState:
    """What the server carries.

    Attributes:
        weights: the model, shape (d,).
        memory: mean of all clients' memories, shape (d,).
        round: rounds finished.
        largest: L of the clients' functions, from which step sizes follow.
        bits: sent so far per client of the federation, on average.
        bits_down: sent to a client so far.
    """

    weights: Array
    memory: Array
    round: int = 0
    largest: float = 0.0
    bits: float = 0.0
    bits_down: float = 0.0


@client_step
def forget(client: Client, objective: LogisticRidge) -> Tree:
    """Empties the memory; returns a 0."""
    client = seen_by(objective, client)
    client.state["memory"] = np.zeros(local_problem(client).d)
    return np.zeros(1)


@client_step
def remembered(
    client: Client,
    objective: LogisticRidge,
    compressor: Compressor,
    alpha: float,
    x: Array,
    draw: int,
    sparse: bool,
) -> Tree:
    """C(gradient - memory); moves the memory by alpha of it."""
    client = seen_by(objective, client)
    _, gradient = local_problem(client).evaluate(x, objective.penalty)
    memory = client.state["memory"]
    sent = compressor.compress_vector(gradient - memory, client.rng, draw, sparse)
    client.state["memory"] = memory + alpha * sent.values
    return sent.message


def artemis(
    fed: Federation,
    objective: LogisticRidge,
    constants: Smoothness | None = None,
    *,
    d: int,
    rounds: int,
    tau: int | None = None,
    compressor: Compressor | None = None,
    down: Compressor | None = None,
    seed: int = 0,
    x0: Array | None = None,
    start: ArtemisState | None = None,
) -> Iterator[ArtemisState]:
    """Runs Artemis and yields the state after every round.

    alpha = 1 / (2 (omega + 1)); the step is 1 / (L (omega_down + 1) (1 + 8 omega / tau)), with L
    the largest of the clients': its order is that of their theorem, the constant 8 is ours.

    Args:
        fed: all clients participating, targets -1 and 1; every client counts alike.
        objective: of every client.
        constants: see `smoothness`; None asks the clients for them.
        d: number of features.
        rounds: at least 0.
        tau: clients of a round, drawn by the trainer; None takes all.
        compressor: of the clients' differences, unbiased; dithering with sqrt(d) levels by default.
        down: of the server's gradient, unbiased; None sends it whole, as in the FedNL paper.
        seed: of the draws and of the server's compression.
        x0: the first model.
        start: a state to go on from.

    Raises:
        ValueError: a biased compressor, or tau outside 1..n.
        PrivacyError: `constants` is None, and sums are secure or private.
        QuorumError: fewer clients survived a round than the threshold.
    """
    compressor, omega = unbiased(compressor, d)
    down, omega_down = unbiased(Identity() if down is None else down, d)
    n = len(fed)
    tau = n if tau is None else tau
    if not 1 <= tau <= n:
        raise ValueError(f"tau {tau}: expected it in 1..{n}")
    alpha = 1.0 / (2.0 * (omega + 1.0))
    state = start
    if state is None:
        found = constants or smoothness(fed, objective, d=d)
        fed.sum(forget, objective)
        state = ArtemisState(origin(d, x0), np.zeros(d), largest=found.largest)
        yield state
    gamma = 1.0 / (state.largest * (omega_down + 1.0) * (1.0 + 8.0 * omega / tau))
    while state.round < rounds:
        k, x = state.round, state.weights
        rng = np.random.default_rng([seed, k])
        chosen = [fed.participants[i] for i in np.sort(rng.permutation(n)[:tau])]
        arguments = (objective, compressor, alpha, x, k, takes_sparse(fed))
        total = fed.sum(remembered, *arguments, over=chosen)
        gradient = down.vector(state.memory + total / len(fed.survivors), rng, k)
        state = ArtemisState(
            x - gamma * gradient,
            state.memory + alpha * total / n,
            k + 1,
            state.largest,
            state.bits + compressor.vector_bits(d) * tau / n,
            state.bits_down + down.vector_bits(d),
        )
        yield state
