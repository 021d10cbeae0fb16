"""The `Federation`: the one verb by which a trainer hears from clients is a sum over them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from secure_fl.federation import wire
from secure_fl.federation.client import Client
from secure_fl.federation.errors import FederationError, QuorumError
from secure_fl.federation.metering import Meter
from secure_fl.federation.participation import (
    AllClients,
    DropOuts,
    NoDropOuts,
    Participation,
    Stage,
)
from secure_fl.federation.plain import Contribution, PlainSum, PlainTotal
from secure_fl.federation.runtime import Call, InProcess, Runtime, Threads
from secure_fl.federation.steps import client_step, step_name
from secure_fl.federation.trees import (
    Array,
    Leaf,
    Tree,
    flatten,
    is_finite,
    leaf_dtypes,
    unflatten,
)

log = logging.getLogger(__name__)
S = TypeVar("S")

_PARTICIPATION, _DROP_OUTS = 1, 2


@client_step
def record_weight(client: Client) -> Array:
    """The client's weight, shape ()."""
    return np.asarray(client.weight)


class Federation:
    """Clients that compute, and a server that sees sums.

    Args:
        clients: at least 1, with unique names; their order is that of every sum.
        seed: of the experiment randomness: participation, drop-outs, every client's `rng`.
        participation: who takes part in a round.
        threshold: clients that must be left in a sum, at least 1; below it QuorumError.
        drop_outs: injected for tests and simulations.
        workers: 1 runs the clients in this process, one after the other; N > 1 in N worker
            processes; "threads:N" in N threads, for steps that release the interpreter's lock.

    Raises:
        FederationError: no client, a name used twice, or an option out of range.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        *,
        seed: int = 0,
        participation: Participation | None = None,
        threshold: int = 1,
        drop_outs: DropOuts | None = None,
        workers: int | str = 1,
    ) -> None:
        self._clients = _checked(clients)
        self._places = {client.name: i for i, client in enumerate(clients)}
        self._weights = {client.name: client.weight for client in clients}
        if not 1 <= threshold <= len(clients):
            raise FederationError(
                f"threshold: found {threshold}, expected 1 to {len(clients)} clients"
            )
        self._threshold = threshold
        self._seed = _checked_seed(seed)
        self._participation = participation or AllClients()
        self._drop_outs = drop_outs or NoDropOuts()
        self._runtime = _runtime(self._clients, workers)
        self._plain = PlainSum()
        self._round = 0
        self._calls = 0
        self._participants: tuple[str, ...] | None = None
        self._survivors: tuple[str, ...] = ()
        self._refused: list[str] = []
        self.meter = Meter(self.names)

    # ------------------------------------------------------------------------------------ who

    def __len__(self) -> int:
        return len(self._clients)

    def __enter__(self) -> "Federation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def names(self) -> tuple[str, ...]:
        """All clients, in their fixed order."""
        return tuple(self._places)

    @property
    def participants(self) -> tuple[str, ...]:
        """Of the current round, in the fixed order; drawn when first asked for."""
        if self._participants is None:
            rng = self._generator(_PARTICIPATION, self._round)
            self._participants = self._participation.draw(self.names, rng)
        return self._participants

    @property
    def survivors(self) -> tuple[str, ...]:
        """Whose values are in the latest sum, mean or gathering."""
        return self._survivors

    @property
    def refused(self) -> tuple[str, ...]:
        """Clients of this round whose update was not finite, once per refusal."""
        return tuple(self._refused)

    @property
    def round(self) -> int:
        """Rounds that were closed."""
        return self._round

    @property
    def pipeline(self) -> tuple[str, ...]:
        """What happens to an update on its way into a sum, in order, for a run's manifest."""
        return ("step", "refuse non-finite", "transport", "sum", "meter")

    # ---------------------------------------------------------------------------------- verbs

    def sum(
        self, step: Callable[..., Tree], *broadcast: Any, over: Sequence[str] | None = None
    ) -> Tree:
        """Runs a client step on the participants and returns the sum of what they return.

        Args:
            step: registered by `client_step`; called as step(client, *broadcast). It must not
                change what it is sent, and must return trees of one structure on all clients.
            broadcast: trees, numbers, strings, None, or frozen dataclasses registered by
                `broadcastable`.
            over: a subset of this round's participants; all of them by default.

        Returns:
            A tree of that structure; sparse arrays have become dense ones, numbers arrays of
            shape (). float32 stays float32 (added in float64), int64 stays int64.

        Raises:
            QuorumError: fewer clients than the threshold were left.
            StepError: a step raised an error.
            FederationError: an unregistered step, a value that cannot be sent, trees of different
                structure, or a name that does not take part.
        """
        total = self._total(step, broadcast, over, weighted=False)
        assert total.structure is not None
        kinds = leaf_dtypes(total.structure)
        return unflatten(
            total.structure,
            [leaf.astype(kind, copy=False) for leaf, kind in zip(total.leaves, kinds, strict=True)],
        )

    def mean(
        self, step: Callable[..., Tree], *broadcast: Any, over: Sequence[str] | None = None
    ) -> Tree:
        """The mean of what the participants return, each weighted by its number of records.

        Arguments and errors as `sum`. int64 leaves become float64.
        """
        total = self._total(step, broadcast, over, weighted=True)
        assert total.structure is not None
        found = leaf_dtypes(total.structure)
        kinds = [kind if kind == np.float32 else np.dtype(np.float64) for kind in found]
        leaves = [
            np.asarray(leaf / total.weight).astype(kind, copy=False)
            for leaf, kind in zip(total.leaves, kinds, strict=True)
        ]
        return unflatten(total.structure, leaves)

    def gather(
        self, step: Callable[..., Tree], *broadcast: Any, over: Sequence[str] | None = None
    ) -> list[Tree]:
        """What each participant returns, in the fixed order; `survivors` names them.

        For baselines that need it, and for figures a client agreed to publish (its accuracy).
        Arguments and errors as `sum`.

        Raises:
            PrivacyError: secure aggregation or client-level privacy is on.
        """
        found = list(self._contributions(step, broadcast, over))
        self._close_call([each.name for each in found])
        return [unflatten(each.structure, each.leaves) for each in found]

    def weight(self) -> float:
        """The participants' records in all, by a sum."""
        return float(self.sum(record_weight))

    # --------------------------------------------------------------------------------- rounds

    def close_round(self) -> None:
        """Ends the round: the next one draws its participants and counts its calls anew."""
        self.meter.close_round()
        self._round += 1
        self._calls = 0
        self._participants = None
        self._refused = []

    def rounds(self, states: Iterator[S]) -> Iterator[S]:
        """Drives a trainer: closes the round after every state that it yields.

        Args:
            states: a trainer's generator over this handle.
        """
        for state in states:
            self.close_round()
            yield state

    def close(self) -> None:
        """Ends worker processes and threads."""
        self._runtime.close()

    # ------------------------------------------------------------------------------- internals

    def _total(
        self,
        step: Callable[..., Tree],
        broadcast: tuple[Any, ...],
        over: Sequence[str] | None,
        *,
        weighted: bool,
    ) -> PlainTotal:
        total = self._plain.sum(self._contributions(step, broadcast, over), weighted=weighted)
        self._close_call(total.names)
        return total

    def _contributions(
        self, step: Callable[..., Tree], broadcast: tuple[Any, ...], over: Sequence[str] | None
    ) -> Iterator[Contribution]:
        names = self._asked(over)
        call = Call(step, broadcast, self._seed, self._round, self._calls)
        self._calls += 1
        places = [self._places[name] for name in names]
        n_bytes, n_floats = _request_size(call)
        self.meter.down(places, n_bytes, n_floats)
        rng = self._generator(_DROP_OUTS, self._round, call.number)
        lost = self._drop_outs.draw(names, self._round, call.number, rng)
        # Who falls silent before MASK was not there to compute; at MASK the update is lost.
        running = [name for name in names if lost.get(name, Stage.UNMASK) >= Stage.MASK]
        sizes: list[tuple[int, int, int]] = []
        for name, tree in self._runtime.run(call, running):
            if lost.get(name) == Stage.MASK:
                continue
            structure, leaves = self._checked_tree(name, call, tree)
            sizes.append((self._places[name], *wire.measure_tree(structure, leaves)))
            if all(map(is_finite, leaves)):
                yield Contribution(name, structure, leaves, self._weights[name])
            else:
                self._refuse(name, call)
        if sizes:
            self.meter.up(*map(list, zip(*sizes, strict=True)))

    def _checked_tree(self, name: str, call: Call, tree: Tree) -> tuple[Any, list[Leaf]]:
        try:
            return flatten(tree)
        except FederationError as error:
            raise FederationError(
                f'client "{name}": {call.step.__name__} returned a {error}'
            ) from None

    def _refuse(self, name: str, call: Call) -> None:
        self._refused.append(name)
        log.warning(
            'client "%s": %s returned NaN or infinity in round %d; left out of the sum',
            name,
            call.step.__name__,
            call.round,
        )

    def _asked(self, over: Sequence[str] | None) -> tuple[str, ...]:
        if over is None:
            return self.participants
        wanted = set(over)
        absent = sorted(wanted.difference(self.participants))
        if absent:
            raise FederationError(
                f'over: client "{absent[0]}" does not take part in round {self._round}; choose'
                " among `participants`"
            )
        return tuple(name for name in self.participants if name in wanted)

    def _close_call(self, survivors: Sequence[str]) -> None:
        self._survivors = tuple(survivors)
        if len(survivors) < self._threshold:
            raise QuorumError(
                f"round {self._round}: {len(survivors)} clients left of"
                f" {len(self.participants)} that took part, the threshold is {self._threshold};"
                " run the round again when more are there"
            )

    def _generator(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *purpose])


def _request_size(call: Call) -> tuple[int, int]:
    request = {"step": step_name(call.step), "broadcast": call.broadcast}
    return wire.measure(request)


def _checked(clients: Sequence[Client]) -> tuple[Client, ...]:
    if not clients:
        raise FederationError("federation: 0 clients, at least 1 is needed")
    names = [client.name for client in clients]
    for name in names:
        if names.count(name) > 1:
            raise FederationError(f'client "{name}": the name is used twice; rename one')
    return tuple(clients)


def _checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise FederationError(f"seed: found {seed!r}, expected a whole number of at least 0")
    return int(seed)


def _runtime(clients: tuple[Client, ...], workers: int | str) -> Runtime:
    if isinstance(workers, str) and workers.startswith("threads:") and workers[8:].isdigit():
        return Threads(clients, max(1, int(workers[8:])))
    if isinstance(workers, int) and workers == 1:
        return InProcess(clients)
    raise FederationError(
        f'workers: found {workers!r}, expected a whole number of at least 1 or "threads:N"'
    )
