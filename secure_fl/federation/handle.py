"""The `Federation`: the one verb by which a trainer hears from clients is a sum over them."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dp import Composition
from secure_fl.federation import checkpoint as checkpoints
from secure_fl.federation import wire
from secure_fl.federation.assembly import (
    Stages,
    checked_clients,
    checked_seed,
    checked_threshold,
    make_runtime,
    pipeline,
)
from secure_fl.federation.client import Client
from secure_fl.federation.errors import FederationError, PrivacyError, QuorumError
from secure_fl.federation.metering import Meter
from secure_fl.federation.metrics import RoundLog
from secure_fl.federation.participation import (
    AllClients,
    DropOuts,
    NoDropOuts,
    Participation,
    Stage,
)
from secure_fl.federation.plain import Contribution, PlainSum, PlainTotal
from secure_fl.federation.privacy import ClientPrivacy, statement
from secure_fl.federation.runtime import Call
from secure_fl.federation.secagg.parameters import SESSION, default_threshold
from secure_fl.federation.secure import SecureAggregation
from secure_fl.federation.steps import client_step, step_name
from secure_fl.federation.trees import (
    Array,
    Leaf,
    Structure,
    Tree,
    flatten,
    is_finite,
    leaf_shapes,
    unflatten,
)
from secure_fl.federation.vector import Asked, VectorTotal

log = logging.getLogger(__name__)
S = TypeVar("S")

_PARTICIPATION, _DROP_OUTS = 1, 2
"""What experiment randomness is drawn for."""


@client_step
def record_weight(client: Client) -> Array:
    """The client's weight, shape ()."""
    return np.asarray(client.weight)


class Federation:
    """Clients that compute, and a server that sees sums.

    Args:
        clients: at least 1, with unique names; their order is that of every sum.
        seed: of the experiment randomness: participation, drop-outs, every client's `rng`.
        participation: who takes part in a round; everybody by default.
        threshold: clients that must be left in a sum; below it QuorumError. By default 1, and
            under secure aggregation two thirds of those asked. There it must be above half.
        aggregation: how sums are made; None for a server that sees every update.
        privacy: client-level differential privacy of every sum.
        drop_outs: injected for tests and simulations.
        workers: 1 runs the clients in this process, one after the other; N > 1 in N worker
            processes; "threads:N" in N threads, for steps that release the interpreter's lock.

    Raises:
        FederationError: no client, a name used twice, or an option out of range.
        BudgetError: the planned private sums would exceed the ledger's budget.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        *,
        seed: int = 0,
        participation: Participation | None = None,
        threshold: int | None = None,
        aggregation: SecureAggregation | None = None,
        privacy: ClientPrivacy | None = None,
        drop_outs: DropOuts | None = None,
        workers: int | str = 1,
    ) -> None:
        self._clients = checked_clients(clients)
        self._places = {client.name: i for i, client in enumerate(clients)}
        self._weights = {client.name: client.weight for client in clients}
        self._seed = checked_seed(seed)
        self._participation = participation or AllClients()
        self._expected = self._participation.expected(len(clients))
        self._drop_outs = drop_outs or NoDropOuts()
        self._aggregation = aggregation
        self._privacy = privacy
        self._threshold = checked_threshold(
            threshold, len(clients), self._expected, secure=aggregation is not None
        )
        self._stages = self._make_stages(os.urandom(SESSION), {})
        self._runtime = make_runtime(self._clients, workers)
        self._plain = PlainSum()
        self._round = 0
        self._calls = 0
        self._participants: tuple[str, ...] | None = None
        self._survivors: tuple[str, ...] = ()
        self._refused: list[str] = []
        self._outside: dict[str, int] = {}
        self._setting: dict[str, Any] = {}
        self._resumed: Any = None
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
    def outside(self) -> dict[str, int]:
        """What was moved to the clip in this round, by client.

        Under privacy whole updates are counted, otherwise the entries of secure aggregation.
        """
        return dict(self._outside)

    @property
    def round(self) -> int:
        """Rounds that were closed."""
        return self._round

    @property
    def pipeline(self) -> tuple[str, ...]:
        """What happens to an update on its way into a sum, in order, for a run's manifest."""
        return pipeline(secure=self._aggregation is not None, private=self._privacy is not None)

    @property
    def spent(self) -> Composition | None:
        """What the sums so far cost in privacy, with all else in the ledger; None without noise."""
        return None if self._stages.accountant is None else self._stages.accountant.spent()

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
            PrivacyError: a sparse array where sums are secure or private, or more private sums
                than planned.
            FederationError: an unregistered step, a value that cannot be sent, trees of different
                structure, a name that does not take part, or values outside the clip where that
                is an error.
        """
        structure, leaves, _ = self._total(step, broadcast, over, weighted=False)
        kinds = [kind for kind, _ in leaf_shapes(structure)]
        return unflatten(structure, list(map(_as_type, leaves, kinds)))

    def mean(
        self, step: Callable[..., Tree], *broadcast: Any, over: Sequence[str] | None = None
    ) -> Tree:
        """The mean of what the participants return, each weighted by its number of records.

        Arguments and errors as `sum`. int64 leaves become float64. Under privacy every client
        weighs 1, and the divisor is how many take part on average, which is public.
        """
        structure, leaves, weight = self._total(step, broadcast, over, weighted=True)
        means = [np.asarray(leaf / weight) for leaf in leaves]
        single = np.dtype(np.float32)
        kinds = [k if k == single else np.dtype("f8") for k, _ in leaf_shapes(structure)]
        return unflatten(structure, list(map(_as_type, means, kinds)))

    def gather(
        self, step: Callable[..., Tree], *broadcast: Any, over: Sequence[str] | None = None
    ) -> list[Tree]:
        """What each participant returns, in the fixed order; `survivors` names them.

        For baselines that need it, and for figures a client agreed to publish (its accuracy).
        Arguments and errors as `sum`.

        Raises:
            PrivacyError: secure aggregation or client-level privacy is on.
        """
        if self._stages.vector is not None:
            kind = "client-level privacy" if self._aggregation is None else "secure aggregation"
            raise PrivacyError(
                f"gather: {getattr(step, '__name__', step)} would show the server single clients'"
                f" values, and {kind} is on; use sum or mean"
            )
        call, asked = self._request(step, broadcast, over, weighted=False)
        found = list(self._contributions(call, asked))
        self._close_call([each.name for each in found], asked)
        return [unflatten(each.structure, each.leaves) for each in found]

    def weight(self) -> float:
        """The participants' records in all, by a sum."""
        return float(self.sum(record_weight))

    # --------------------------------------------------------------------------------- rounds

    def rounds(
        self,
        states: Iterator[S],
        *,
        checkpoint: Path | None = None,
        metrics: Path | None = None,
        progress: Callable[[str], None] | None = None,
        measure: Callable[[S], Mapping[str, float]] | None = None,
    ) -> Iterator[S]:
        """Drives a trainer: closes the round after every state that it yields.

        Args:
            states: a trainer's generator over this handle.
            checkpoint: a file that is replaced after every round; its folder must exist. The
                states must then be registered by `broadcastable`.
            metrics: a file of JSON lines, one a round.
            progress: receives one line a round, and what the run cost in privacy at its end.
            measure: figures of a state for the metrics and the progress, e.g. its accuracy.

        Yields:
            The states.
        """
        lines = None if metrics is None else RoundLog(metrics, self._round)
        started = time.perf_counter()
        for state in states:
            # A trainer that was resumed may yield once more what it started from.
            if state is not self._resumed:
                figures = dict(measure(state)) if measure is not None else {}
                line = self._line(time.perf_counter() - started, figures)
                self.close_round()
                if checkpoint is not None:
                    checkpoints.save(checkpoint, self._snapshot(state))
                if lines is not None:
                    lines.write(line)
                if progress is not None:
                    progress(_text(line))
            yield state
            started = time.perf_counter()
        if progress is not None and self._privacy is not None:
            progress(self.privacy_statement())

    def close_round(self) -> None:
        """Ends the round: the next one draws its participants and counts its calls anew."""
        self.meter.close_round()
        self._round += 1
        self._calls = 0
        self._participants = None
        self._refused = []
        self._outside = {}

    def resume(self, checkpoint: Path) -> Any:
        """Goes on from a checkpoint: to the same bits, and without spending anything twice.

        The handle must be made of the same clients, seed, aggregation and privacy.

        Returns:
            The state that the trainer yielded then, to be passed to it as its start; None where
            there is no such file, so that a run starts anew.

        Raises:
            FederationError: a checkpoint of another setting, or damaged.
        """
        if not checkpoint.exists():
            return None
        found = checkpoints.load(checkpoint)
        for key, value in self._fixed().items():
            if found.setting.get(key) != value:
                raise FederationError(
                    f"{checkpoint}: was written with other {key}; resume with the same, or choose"
                    " another checkpoint file"
                )
        self._stages = self._make_stages(found.session, found.secrets)
        self._runtime.restore(found.clients)
        self.close_round()
        self.meter.restore(found.meter)
        self._round = found.round
        self._resumed = found.state
        return found.state

    def privacy_statement(self) -> str:
        """One line: epsilon, delta, unit and rule of everything in the ledger's books.

        Raises:
            PrivacyError: the handle has no privacy option.
        """
        if self._stages.accountant is None:
            raise PrivacyError("privacy: the federation has no ClientPrivacy; nothing is accounted")
        return statement(self._stages.accountant)

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
    ) -> tuple[Structure, list[Array], float]:
        call, asked = self._request(step, broadcast, over, weighted=weighted)
        contributions = self._contributions(call, asked)
        total: PlainTotal | VectorTotal
        if self._stages.vector is None:
            total = self._plain.sum(contributions, weighted=weighted)
        else:
            total = self._stages.vector.sum(asked, contributions)
            self._count(total)
        self._close_call(total.names, asked)
        assert total.structure is not None
        return total.structure, total.leaves, total.weight

    def _request(
        self,
        step: Callable[..., Tree],
        broadcast: tuple[Any, ...],
        over: Sequence[str] | None,
        *,
        weighted: bool,
    ) -> tuple[Call, Asked]:
        """Announces a step to those it is asked of."""
        names = self._asked(over)
        name = step_name(step)
        call = Call(step, broadcast, self._seed, self._round, self._calls)
        size = wire.measure({"step": name, "broadcast": broadcast})
        self._calls += 1
        self.meter.down([self._places[each] for each in names], *size)
        rng = self._generator(_DROP_OUTS, self._round, call.number)
        asked = Asked(
            names=names,
            round=call.round,
            call=call.number,
            step=name,
            lost=self._drop_outs.draw(names, self._round, call.number, rng),
            threshold=self._needed(len(names)),
            expected=self._expected if over is None else float(len(names)),
            weighted=weighted,
        )
        return call, asked

    def _contributions(self, call: Call, asked: Asked) -> Iterator[Contribution]:
        """Runs the step and passes on what is finite; meters the uploads of the plain path."""
        # Who falls silent before MASK was not there to compute; at MASK the update is lost.
        running = [n for n in asked.names if asked.lost.get(n, Stage.UNMASK) >= Stage.MASK]
        sizes: list[tuple[int, int, int]] = []
        for name, tree in self._runtime.run(call, running):
            if asked.lost.get(name) == Stage.MASK:
                continue
            structure, leaves = self._checked_tree(name, call, tree)
            sizes.append((self._places[name], *wire.measure_tree(structure, leaves)))
            if all(map(is_finite, leaves)):
                yield Contribution(name, structure, leaves, self._weights[name])
            else:
                self._refuse(name, call)
        if sizes and self._stages.vector is None:
            self.meter.up(*map(list, zip(*sizes, strict=True)))

    def _count(self, total: VectorTotal) -> None:
        for name, traffic in total.traffic.items():
            self.meter.add(self._places[name], traffic)
        for name, count in total.outside.items():
            self._outside[name] = self._outside.get(name, 0) + count
            log.info('client "%s": moved to the clip %d times', name, count)

    def _checked_tree(self, name: str, call: Call, tree: Tree) -> tuple[Structure, list[Leaf]]:
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

    def _needed(self, n: int) -> int:
        if self._threshold is not None:
            return self._threshold
        return 1 if self._aggregation is None else default_threshold(n)

    def _close_call(self, survivors: Sequence[str], asked: Asked) -> None:
        self._survivors = tuple(survivors)
        if len(survivors) < asked.threshold:
            raise QuorumError(
                f"round {self._round}: {len(survivors)} clients left of {len(asked.names)} that"
                f" were asked, the threshold is {asked.threshold}; run the round again when more"
                " are there"
            )

    def _line(self, seconds: float, figures: Mapping[str, float]) -> dict[str, Any]:
        traffic = self.meter.of_round()
        line: dict[str, Any] = {
            "round": self._round,
            "seconds": round(seconds, 4),
            "participants": len(self.participants),
            "survivors": len(self.survivors),
            "sums": self._calls,
            "bytes_down": traffic.bytes_down,
            "bytes_up": traffic.bytes_up,
            "floats_down": traffic.floats_down,
            "floats_up": traffic.floats_up,
            "clients": self.meter.rows(self.participants),
            "refused": list(self._refused),
            "outside": dict(self._outside),
            # JSON has no infinity and no NaN.
            **{key: float(v) if math.isfinite(v) else str(v) for key, v in figures.items()},
        }
        if self.spent is not None:
            line["epsilon"] = self.spent.epsilon
        return line

    def _fixed(self) -> dict[str, Any]:
        """What a resumed run must have in common with the killed one."""
        if not self._setting:
            self._setting = {
                "seed": self._seed,
                "clients": list(self.names),
                "records": checkpoints.records_digest(self._clients),
                "stages": list(self.pipeline),
            }
        return self._setting

    def _snapshot(self, state: Any) -> checkpoints.Snapshot:
        return checkpoints.Snapshot(
            self._fixed(),
            self._round,
            self._stages.session,
            {name: source.secret for name, source in self._stages.sources.items()},
            self.meter.snapshot(),
            self._runtime.states(),
            state,
        )

    def _make_stages(self, session: bytes, secrets: Mapping[str, bytes]) -> Stages:
        return Stages(self._weights, self._aggregation, self._privacy, session, secrets)

    def _generator(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *purpose])


def _as_type(leaf: Array, dtype: "np.dtype[Any]") -> Array:
    if dtype.kind == "i" and leaf.dtype.kind == "f":
        leaf = np.rint(leaf)
    return leaf.astype(dtype, copy=False)


def _text(line: Mapping[str, Any]) -> str:
    known = f"round {line['round']}: {line['survivors']} of {line['participants']} clients"
    traffic = f"{line['bytes_up'] / 1e6:.3g} MB up, {line['bytes_down'] / 1e6:.3g} MB down"
    figures = list(line.items())
    after = [f"{key} {value:.5g}" for key, value in figures[12:] if isinstance(value, float)]
    return ", ".join([known, traffic, *after, f"{line['seconds']:.3g} s"])
