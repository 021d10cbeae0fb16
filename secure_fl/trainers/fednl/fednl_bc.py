"""FedNL-BC (Algorithm 5): compressed models downwards, gradients only now and then upwards."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.trainers.fednl.compressors import Compressor, Identity
from secure_fl.trainers.fednl.fednl import begin_state
from secure_fl.trainers.fednl.learning import (
    LOCAL,
    Learning,
    Server,
    improve,
    learning_for,
    mean_slope,
)
from secure_fl.trainers.fednl.problem import LogisticRidge, local_problem, seen_by
from secure_fl.trainers.fednl.server_steps import projected_step, shifted_step
from secure_fl.trainers.fednl.states import Array
from secure_fl.trainers.fednl.triangles import unpack


@broadcastable
@dataclass(frozen=True)
class BidirectionalState:
    """What the server carries.

    Attributes:
        weights: z^k, the model that all clients know, shape (d,).
        hessian: H^k, packed.
        anchor: w^k, where gradients were sent last, shape (d,).
        anchor_gradient: the mean gradient there, shape (d,).
        round: rounds finished.
        bits: sent by a client so far.
        bits_down: sent to a client so far.
        members: whose estimates `hessian` is the mean of, one name a line.
    """

    weights: Array
    hessian: Array
    anchor: Array
    anchor_gradient: Array
    round: int = 0
    bits: float = 0.0
    bits_down: float = 0.0
    members: str = ""


@client_step
def learn_only(
    client: Client, objective: LogisticRidge, learning: Learning, z: Array, draw: int
) -> Tree:
    """Lines 10 to 12: l_i and S_i at z; moves H_i."""
    client = seen_by(objective, client)
    local = local_problem(client, learning.compressor.entrywise)
    local.evaluate(z, objective.penalty)
    error, message = improve(client, local, objective, learning, draw)
    return {"error": error, "difference": message}


def fednl_bc(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    p: float,
    option: int = 1,
    seed: int = 0,
    compressor: Compressor | None = None,
    rate: str | float = "auto",
    model_compressor: Compressor | None = None,
    model_rate: float = 1.0,
    initial: str = LOCAL,
    x0: Array | None = None,
    start: BidirectionalState | None = None,
) -> Iterator[BidirectionalState]:
    """Runs FedNL-BC and yields the state after every round.

    The server makes the Hessian-corrected gradient H^k (z^k - w^k) + gradient(w^k) of line 9 from
    the means that it holds: a mean of such vectors needs no message.

    Args:
        fed: as for `fednl`, with `objective`, `d`, `rounds`, `compressor`, `rate`, `initial`, `x0`.
        objective: with a penalty above 0.
        d: number of features.
        rounds: at least 0.
        p: probability that a round sends gradients, in (0, 1]; the first always does.
        option: 1 or 2, as for `fednl`.
        seed: of these draws and the model's compressor.
        compressor: of the Hessians.
        rate: alpha.
        model_compressor: of the change of the model; identity by default.
        model_rate: eta, at least 0.
        initial: H_i^0.
        x0: the first model.
        start: a state to go on from.

    Raises:
        ValueError: an option out of range.
        QuorumError: fewer clients survived a sum than the threshold.
    """
    if not 0 < p <= 1 or option not in (1, 2) or not model_rate >= 0:
        raise ValueError(
            f"found p {p}, option {option}, model_rate {model_rate}; expected p in (0, 1], option 1"
            " or 2, a rate of at least 0"
        )
    server = Server(fed, objective, learning_for(fed, d, compressor, rate, "frobenius"), d)
    model = model_compressor or Identity()
    if start is None:
        first = begin_state(server, x0, initial)
        x = first.weights
        state = BidirectionalState(
            x, first.hessian, x, np.zeros(d), bits=first.bits, members=first.members
        )
        yield state
    else:
        state = start
    while state.round < rounds:
        state = _round(server, state, model, p, option, model_rate, seed)
        yield state


def _round(
    server: Server,
    state: BidirectionalState,
    model: Compressor,
    p: float,
    option: int,
    model_rate: float,
    seed: int,
) -> BidirectionalState:
    rng = np.random.default_rng([seed, state.round])
    z, H, k, mu = state.weights, state.hessian, state.round, server.objective.penalty
    w, at_w = state.anchor, state.anchor_gradient
    server.bits, server.members = state.bits, tuple(state.members.split("\n"))
    if rng.random() < p or k == 0:
        w, (_, at_w) = z, mean_slope(server.fed, server.objective, z)
        server.bits += 64.0 * server.d
    g = unpack(H, server.d) @ (z - w) + at_w
    total = server.fed.sum(learn_only, server.objective, server.learning, z, k)
    server.bits += 64.0 + server.learning.compressor.matrix_bits(server.d)
    error = float(total["error"]) / len(server.fed.survivors)
    step = projected_step(H, mu, g) if option == 1 else shifted_step(H, error, g)
    sent = model.vector(-step, rng, k)
    return BidirectionalState(
        z + model_rate * sent,
        server.next(H, total["difference"], k),
        w,
        at_w,
        k + 1,
        server.bits,
        state.bits_down + model.vector_bits(server.d) + 1.0,
        "\n".join(server.members),
    )
