"""FedNL (Algorithm 1): Newton's method with Hessians learned from compressed differences.

"FedNL: making Newton-type methods applicable to federated learning", Safaryan et al., ICML 2022.
"""

from collections.abc import Iterator

import numpy as np

from secure_fl.federation import Federation
from secure_fl.trainers.fednl.compressors import Compressor
from secure_fl.trainers.fednl.learning import LOCAL, Learned, Server, learning_for
from secure_fl.trainers.fednl.problem import LogisticRidge
from secure_fl.trainers.fednl.server_steps import projected_step, shifted_step
from secure_fl.trainers.fednl.states import Array, NewtonState, origin


def fednl(
    fed: Federation,
    objective: LogisticRidge,
    *,
    d: int,
    rounds: int,
    option: int = 1,
    compressor: Compressor | None = None,
    rate: str | float = "auto",
    initial: str = LOCAL,
    l_norm: str = "frobenius",
    x0: Array | None = None,
    start: NewtonState | None = None,
) -> Iterator[NewtonState]:
    """Runs FedNL and yields the state after every round; one sum a round.

    Args:
        fed: the clients, targets -1 and 1; every client counts alike (eq. 1).
        objective: with a penalty above 0, which is mu of Option 1.
        d: number of features.
        rounds: at least 0.
        option: 1, H^k projected onto H >= mu I; 2, H^k + l^k I.
        compressor: of the Hessians; by default k = 8 d entries: Top-K for plain sums, Rand-K
            from a shared seed where sums are secure or private.
        rate: alpha; see `learning_rate`.
        initial: H_i^0, "local" (the Hessian at x^0) or "zero".
        l_norm: "frobenius", or "spectral" for l_i as in the authors' code.
        x0: the first model; zeros by default.
        start: a state to go on from, on clients that carry their own.

    Raises:
        ValueError: an option out of range.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if option not in (1, 2):
        raise ValueError(f"option {option}: FedNL has options 1 and 2")
    server = Server(fed, objective, learning_for(fed, d, compressor, rate, l_norm), d)
    state = start or begin_state(server, x0, initial)
    resume(server, state)
    if start is None:
        yield state
    while state.round < rounds:
        x, H = state.weights, state.hessian
        found = server.learn(x, H, state.round)
        if option == 1:
            step = projected_step(H, objective.penalty, found.gradient)
        else:
            step = shifted_step(H, found.error, found.gradient)
        state = next_state(server, state, x - step, found)
        yield state


def begin_state(server: Server, x0: Array | None, initial: str) -> NewtonState:
    """The state before the first round; the clients set H_i^0."""
    x = origin(server.d, x0)
    H = server.begin(x, initial)
    return NewtonState(x, H, bits=server.bits, members="\n".join(server.members))


def resume(server: Server, state: NewtonState) -> None:
    """Gives a server what a state remembers of it."""
    server.bits = state.bits
    server.members = tuple(state.members.split("\n"))


def next_state(server: Server, state: NewtonState, x: Array, found: Learned) -> NewtonState:
    """The state one round on."""
    return NewtonState(
        x,
        found.hessian,
        state.round + 1,
        server.bits,
        found.loss,
        float(np.linalg.norm(found.gradient)),
        found.error,
        "\n".join(server.members),
    )
