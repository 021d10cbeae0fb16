"""What happens between a call of the handle and its sum: ask, run, refuse, add up, meter."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from kahm.threads import one_thread
from secure_fl.crypto.keys import digest
from secure_fl.errors import FederationError
from secure_fl.federation import checkpoint as checkpoints
from secure_fl.federation import wire
from secure_fl.federation.agreement import describe_call
from secure_fl.federation.assembly import (
    Stages,
    make_runtime,
    pipeline,
)
from secure_fl.federation.checkpoint import Snapshot
from secure_fl.federation.client import Client
from secure_fl.federation.executor import Call, InProcess
from secure_fl.federation.metering import Meter
from secure_fl.federation.options import Options
from secure_fl.federation.participation import (
    AllClients,
    NoDropOuts,
    Stage,
)
from secure_fl.federation.plain import Contribution, PlainSum, PlainTotal
from secure_fl.federation.secagg.parameters import NOISE_PROTOCOL, SESSION, default_threshold
from secure_fl.federation.steps import step_name
from secure_fl.federation.trees import Array, Leaf, Structure, Tree, flatten, is_finite
from secure_fl.federation.vector import Asked, VectorTotal

log = logging.getLogger(__name__)

S = TypeVar("S")

_PARTICIPATION, _DROP_OUTS = 1, 2
"""What experiment randomness is drawn for."""


class Engine:
    """The working part of a `Federation`.

    Args:
        clients: checked.
        options: checked.
        workers: as the handle's.

    Attributes:
        meter: what crossed between clients and server.
        stages: protocol, noise and books of this run.
        round: rounds that were closed.
        calls: of this round.
        survivors: whose values are in the latest result.
        refused: clients of this round whose update was not finite, once per refusal.
        outside: what was moved to the clip in this round, by client.
    """

    _repeats = True
    """Whether a resumed run may make an interrupted sum again, to the same bits."""

    def __init__(self, clients: tuple[Client, ...], options: Options, workers: int | str) -> None:
        self._clients = clients
        self._options = options
        self._places = {client.name: i for i, client in enumerate(clients)}
        self._weights = {client.name: client.weight for client in clients}
        self._expected = options.participation.expected(len(clients))
        self._plain = PlainSum()
        self._participants: tuple[str, ...] | None = None
        self._setting: dict[str, Any] = {}
        self.stages = self.make_stages(os.urandom(SESSION), {})
        self._runtime = make_runtime(clients, workers)
        self.meter = Meter(tuple(self._places))
        self.round = 0
        self.calls = 0
        self.survivors: tuple[str, ...] = ()
        self.refused: list[str] = []
        self.outside: dict[str, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All clients, in their fixed order."""
        return tuple(self._places)

    @property
    def participants(self) -> tuple[str, ...]:
        """Of the current round, in the fixed order; drawn when first asked for."""
        if self._participants is None:
            takes_part = self._options.participation
            if isinstance(takes_part, AllClients):  # needs no generator, which takes time to make
                self._participants = self.names
            else:
                rng = self._generator(_PARTICIPATION, self.round)
                self._participants = takes_part.draw(self.names, rng)
        return self._participants

    @property
    def pipeline(self) -> tuple[str, ...]:
        """What happens to an update on its way into a sum, in order."""
        return pipeline(
            secure=self._options.aggregation is not None, private=self._options.privacy is not None
        )

    def next_of(self, states: Iterator[S]) -> S | None:
        """The trainer's next state, None at its end; one thread for its linear algebra where
        clients have threads of their own.
        """
        if not getattr(self._runtime, "parallel", False):
            return next(states, None)
        with one_thread():
            return next(states, None)

    def close(self) -> None:
        """Ends worker processes and threads."""
        self._runtime.close()

    def close_round(self) -> None:
        """Ends the round: the next one draws its participants and counts its calls anew."""
        self.meter.close_round()
        self.round += 1
        self.calls = 0
        self.refused = []
        self.outside = {}
        self._participants = None

    def total(
        self,
        step: Callable[..., Tree],
        broadcast: tuple[Any, ...],
        over: Sequence[str] | None,
        *,
        weighted: bool,
    ) -> tuple[Structure, list[Array], float]:
        """Structure, leaves and weight of a sum over the participants; see `Federation.sum`."""
        call, asked = self.open_call(step, broadcast, over, weighted=weighted)
        total: PlainTotal | VectorTotal | None = None
        if self.stages.vector is not None:
            total = self.stages.vector.sum(asked, self._contributions(call, asked))
            self._count(total)
        elif not weighted and not asked.lost and isinstance(self._runtime, InProcess):
            total = self._summed_together(call, asked)
        if total is None:
            total = self._plain.sum(self._contributions(call, asked), weighted=weighted)
        self.close_call(total.names, asked)
        assert total.structure is not None
        return total.structure, total.leaves, total.weight

    def gather(
        self, step: Callable[..., Tree], broadcast: tuple[Any, ...], over: Sequence[str] | None
    ) -> list[Contribution]:
        """Every participant's contribution by itself; see `Federation.gather`."""
        call, asked = self.open_call(step, broadcast, over, weighted=False)
        found = list(self._contributions(call, asked))
        self.close_call([each.name for each in found], asked)
        return found

    def restore(self, found: Snapshot, source: Path) -> None:
        """Becomes what it was when the snapshot was taken.

        Args:
            found: of a handle of the same setting.
            source: where it came from, for messages.

        Raises:
            FederationError: the snapshot is of another setting.
        """
        if "protocol" in self._fixed() and found.setting.get("protocol", 1) != NOISE_PROTOCOL:
            raise FederationError(
                f"{source}: written with version {found.setting.get('protocol', 1)} of secure sums,"
                f" expected {NOISE_PROTOCOL}, whose clients add noise of another size; finish the"
                " run with the version that began it, or start it anew"
            )
        for key, value in self._fixed().items():
            if found.setting.get(key) != value:
                # Clients see features after scaling, whose default has changed as well.
                also = ", or records scaled otherwise" if key == "records" else ""
                raise FederationError(
                    f"{source}: was written with other {key}{also}; resume with the same, or choose"
                    " another checkpoint file"
                )
        self.stages = self.make_stages(found.session, found.secrets)
        self._runtime.restore(found.clients)
        self.close_round()
        self.meter.restore(found.meter)
        self.round = found.round

    def snapshot(self, state: Any) -> Snapshot:
        """Everything that a run needs to go on after this state, between two rounds."""
        accountant = self.stages.accountant
        return Snapshot(
            self._fixed(),
            self.round,
            self.stages.session,
            {name: source.secret for name, source in self.stages.sources.items()},
            self.meter.snapshot(),
            self._runtime.states(),
            state,
            0 if accountant is None else accountant.booked,
        )

    def open_call(
        self,
        step: Callable[..., Tree],
        broadcast: tuple[Any, ...],
        over: Sequence[str] | None,
        *,
        weighted: bool,
    ) -> tuple[Call, Asked]:
        """Announces a step to those it is asked of: the first thing of every sum."""
        if self.stages.accountant is not None:
            self.stages.accountant.check_plan()
        names = self._asked(over)
        name = step_name(step)
        call = Call(step, broadcast, self._options.seed, self.round, self.calls)
        request = {"step": name, "broadcast": broadcast}
        size = wire.measure(request)
        self.calls += 1
        self.meter.down([self._places[each] for each in names], *size)
        asked = Asked(
            names=names,
            round=call.round,
            call=call.number,
            step=name,
            told=self._told(call),
            request=b"" if self._options.privacy is None else digest(wire.encode(request)),
            lost=self._lost(names, call),
            threshold=self.needed(len(names)),
            expected=self._expected if over is None else float(len(names)),
            weighted=weighted,
        )
        return call, asked

    def _told(self, call: Call) -> Mapping[str, Any]:
        """What every client is told of a step."""
        return describe_call(call)

    def _lost(self, names: tuple[str, ...], call: Call) -> Mapping[str, Stage]:
        drop_outs = self._options.drop_outs
        if isinstance(drop_outs, NoDropOuts):  # needs no generator
            return {}
        rng = self._generator(_DROP_OUTS, self.round, call.number)
        return drop_outs.draw(names, self.round, call.number, rng)

    def _summed_together(self, call: Call, asked: Asked) -> PlainTotal | None:
        """The sum where the step is done for all clients at once; None where it is not."""
        assert isinstance(self._runtime, InProcess)
        stacks = self._runtime.batched(call, asked.names) if asked.names else None
        if not stacks:
            return None
        if not all(stack.is_finite() for stack in stacks):
            trees = (tree for stack in stacks for tree in stack.trees())
            found = zip(asked.names, trees, strict=True)
            return self._plain.sum(self._contributions(call, asked, found), weighted=False)
        structure, _ = flatten(next(stacks[0].trees()))
        counts = [each for stack in stacks for each in stack.counts()]
        size = wire.compact_sizes(structure)
        n_bytes, n_floats = zip(*(size[kept] for kept in counts), strict=True)
        self.meter.up([self._places[name] for name in asked.names], n_bytes, n_floats)
        weight = sum(self._weights[name] for name in asked.names)
        return self._plain.sum_stacks(structure, stacks, asked.names, weight)

    def _contributions(
        self, call: Call, asked: Asked, found: Iterator[tuple[str, Tree]] | None = None
    ) -> Iterator[Contribution]:
        """Runs the step and passes on what is finite; meters the uploads of the plain path.

        Args:
            call: the step.
            asked: of whom.
            found: what the step returned, where it was run already.
        """
        # Who falls silent before MASK was not there to compute; at MASK the update is lost.
        running = [n for n in asked.names if asked.lost.get(n, Stage.UNMASK) >= Stage.MASK]
        sizes: list[tuple[int, int, int]] = []
        for name, tree in self._runtime.run(call, running) if found is None else found:
            if asked.lost.get(name) == Stage.MASK:
                continue
            structure, leaves = self._checked_tree(name, call, tree)
            sizes.append((self._places[name], *wire.measure_tree(structure, leaves)))
            if all(map(is_finite, leaves)):
                yield Contribution(name, structure, leaves, self._weights[name])
            else:
                self.refuse(name, call)
        if sizes and self.stages.vector is None:
            self.meter.up(*map(list, zip(*sizes, strict=True)))

    def _count(self, total: VectorTotal) -> None:
        for name, traffic in total.traffic.items():
            self.meter.add(self._places[name], traffic)
        for name, count in total.outside.items():
            self.outside[name] = self.outside.get(name, 0) + count
            log.info('client "%s": moved to the clip %d times', name, count)

    def _checked_tree(self, name: str, call: Call, tree: Tree) -> tuple[Structure, list[Leaf]]:
        try:
            return flatten(tree)
        except FederationError as error:
            raise FederationError(
                f'client "{name}": {call.step.__name__} returned a {error}'
            ) from None

    def refuse(self, name: str, call: Call) -> None:
        """Leaves a client out of the sum whose update is not finite."""
        self.refused.append(name)
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
                f'over: client "{absent[0]}" does not take part in round {self.round}; choose'
                " among `participants`"
            )
        return tuple(name for name in self.participants if name in wanted)

    def needed(self, n: int) -> int:
        """Clients that must be left in a sum of n that are asked."""
        if self._options.threshold is not None:
            return self._options.threshold
        return 1 if self._options.aggregation is None else default_threshold(n)

    def close_call(self, survivors: Sequence[str], asked: Asked) -> None:
        """Ends a call with those who are left; raises QuorumError if they are too few."""
        self.survivors = tuple(survivors)
        asked.check_quorum(len(survivors))

    def _fixed(self) -> dict[str, Any]:
        """What a resumed run must have in common with the killed one."""
        if not self._setting:
            privacy, secure = self._options.privacy, self._options.aggregation is not None
            parts = secure and privacy is not None and self._repeats
            self._setting = {
                "seed": self._options.seed,
                "clients": list(self._places),
                "records": checkpoints.records_digest(self._clients),
                "stages": list(self.pipeline),
                # A repeated sum under other noise would be a second release of it.
                "privacy": None if privacy is None else privacy.of_a_sum,
                # Parts of the noise are sized by it.
                **({"threshold": self._options.threshold} if parts else {}),
                **({"protocol": NOISE_PROTOCOL} if parts else {}),
            }
        return self._setting

    def make_stages(self, session: bytes, secrets: Mapping[str, bytes], earlier: int = 0) -> Stages:
        """Protocol, noise and books of a session; `earlier` private sums were in others."""
        options = self._options
        return Stages(
            self._weights,
            options.aggregation,
            options.privacy,
            session,
            secrets,
            earlier,
            options.description,
        )

    def _generator(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._options.seed, *purpose])
