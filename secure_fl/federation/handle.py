"""The `Federation`: the one verb by which a trainer hears from clients is a sum over them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from attrs import evolve

from dp import Composition
from secure_fl.errors import FederationError, PrivacyError
from secure_fl.federation import checkpoint as checkpoints
from secure_fl.federation.assembly import checked_clients
from secure_fl.federation.checkpoint import Snapshot, refuse_other_settings
from secure_fl.federation.client import Client
from secure_fl.federation.driver import drive
from secure_fl.federation.engine import Engine
from secure_fl.federation.metering import Meter
from secure_fl.federation.options import Options
from secure_fl.federation.participation import DropOuts, Participation
from secure_fl.federation.privacy import ClientPrivacy, statement
from secure_fl.federation.secure import SecureAggregation
from secure_fl.federation.steps import client_step
from secure_fl.federation.trees import Array, Tree, leaf_shapes, unflatten

S = TypeVar("S")


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
            under secure aggregation the least number above two thirds of those asked. There it must
            be above half: of n clients that are asked, fewer than 2 threshold - n may collude with
            the server.
        aggregation: how sums are made; None for a server that sees every update.
        privacy: client-level differential privacy of every sum.
        drop_outs: injected for tests and simulations.
        workers: 1 runs the clients in this process, one after the other; N > 1 in N worker
            processes; "threads:N" in N threads, for steps that release the interpreter's lock.

    Attributes:
        notes: numbers of whoever drives the run, by name; kept in its checkpoints.

    Raises:
        FederationError: no client, a name used twice, or an option out of range.
        PrivacyError: the ledger's budget is in another unit than clients' contributions.
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
        checked = checked_clients(clients)
        options = Options.checked(
            len(checked),
            seed=seed,
            participation=participation,
            threshold=threshold,
            aggregation=aggregation,
            privacy=privacy,
            drop_outs=drop_outs,
        )
        self._start(options, Engine(checked, options, workers))

    def _start(self, options: Options, engine: Engine) -> None:
        self._options = options
        self._engine = engine
        self._resumed: Any = None
        self._method = ""
        self._settings: Mapping[str, Any] | None = None
        self.notes: dict[str, float] = {}

    # ------------------------------------------------------------------------------------ who

    def __len__(self) -> int:
        return len(self._engine.names)

    def __enter__(self) -> "Federation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def names(self) -> tuple[str, ...]:
        """All clients, in their fixed order."""
        return self._engine.names

    @property
    def participants(self) -> tuple[str, ...]:
        """Of the current round, in the fixed order; drawn when first asked for."""
        return self._engine.participants

    @property
    def threshold(self) -> int:
        """Clients that must be left in a sum over all of this round's participants."""
        return self._engine.needed(len(self.participants))

    @property
    def meter(self) -> Meter:
        """What crossed between clients and server."""
        return self._engine.meter

    @property
    def survivors(self) -> tuple[str, ...]:
        """Whose values are in the latest sum, mean or gathering."""
        return self._engine.survivors

    @property
    def refused(self) -> tuple[str, ...]:
        """Clients of this round whose update was not finite, once per refusal."""
        return tuple(self._engine.refused)

    @property
    def calls(self) -> int:
        """Sums, means and gatherings asked for in this round."""
        return self._engine.calls

    @property
    def outside(self) -> dict[str, int]:
        """What was moved to the clip in this round, by client.

        Under privacy whole updates are counted, otherwise the entries of secure aggregation.
        """
        return dict(self._engine.outside)

    @property
    def round(self) -> int:
        """Rounds that were closed."""
        return self._engine.round

    @property
    def pipeline(self) -> tuple[str, ...]:
        """What happens to an update on its way into a sum, in order, for a run's manifest."""
        return self._engine.pipeline

    @property
    def clip(self) -> float | None:
        """L2 norm of a client's whole update under client-level privacy; None without it."""
        return None if self._options.privacy is None else self._options.privacy.clip

    @property
    def spent(self) -> Composition | None:
        """What the sums so far cost in privacy, with all else in the ledger; None without noise."""
        accountant = self._engine.stages.accountant
        return None if accountant is None else accountant.spent()

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
            BudgetError: the private sums that are planned and not booked yet would exceed the
                ledger's budget; raised by the first sum, before any client is asked.
            PrivacyError: a sparse array where sums are secure or private, or more private sums
                than planned.
            FederationError: an unregistered step, a value that cannot be sent, trees of different
                structure, a name that does not take part, or values outside the clip where that
                is an error.
        """
        structure, leaves, _ = self._engine.total(step, broadcast, over, weighted=False)
        kinds = [kind for kind, _ in leaf_shapes(structure)]
        return unflatten(structure, list(map(_as_type, leaves, kinds)))

    def mean(
        self, step: Callable[..., Tree], *broadcast: Any, over: Sequence[str] | None = None
    ) -> Tree:
        """The mean of what the participants return, each weighted by its number of records.

        Arguments and errors as `sum`. int64 leaves become float64. Under privacy every client
        weighs 1, and the divisor is how many take part on average, which is public.
        """
        structure, leaves, weight = self._engine.total(step, broadcast, over, weighted=True)
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
        if self._engine.stages.vector is not None:
            secure = self._options.aggregation is not None
            raise PrivacyError(
                f"gather: {getattr(step, '__name__', step)} would show the server single clients'"
                f" values, and {'secure aggregation' if secure else 'client-level privacy'} is on;"
                " use sum or mean"
            )
        found = self._engine.gather(step, broadcast, over)
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
        return drive(
            self._engine,
            states,
            resumed=self._resumed,
            snapshot=self.snapshot,
            checkpoint=checkpoint,
            metrics=metrics,
            progress=progress,
            measure=measure,
        )

    def close_round(self) -> None:
        """Ends the round: the next one draws its participants and counts its calls anew."""
        self._engine.close_round()

    def resume(
        self,
        checkpoint: Path,
        *,
        method: str = "",
        settings: Mapping[str, Any] | None = None,
        moved: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> Any:
        """Goes on from a checkpoint: to the same bits, and without spending anything twice.

        The handle must be made of the same clients, seed, aggregation and privacy.

        Args:
            checkpoint: the file.
            method: the trainer's name; it is kept in checkpoints from here on, and one that was
                written by another is refused.
            settings: the trainer's, without those that may change on the way; kept as well, and a
                checkpoint with others is refused.
            moved: settings that nobody gave and whose defaults have changed since checkpoints did
                not keep settings: the default then and the one now. Such a checkpoint is refused,
                because the run would go on by another rule than it began by.

        Returns:
            The state that the trainer yielded then, to be passed to it as its start; None where
            there is no such file, so that a run starts anew.

        Raises:
            FederationError: a checkpoint of another setting or method, or damaged.
        """
        self._method = method
        self._settings = settings
        if not checkpoint.exists():
            return None
        found = checkpoints.load(checkpoint)
        if method and found.method and found.method != method:
            raise FederationError(
                f"{checkpoint}: a checkpoint of {found.method}, this run trains by {method};"
                " resume with the same method, or choose another checkpoint file"
            )
        refuse_other_settings(checkpoint, found, settings or {}, moved or {})
        self._engine.restore(found, checkpoint)
        self._resumed = found.state
        self.notes = dict(found.notes)
        return found.state

    def snapshot(self, state: Any) -> Snapshot:
        """Everything that a run needs to go on after this state, between two rounds."""
        return evolve(
            self._engine.snapshot(state),
            method=self._method,
            settings=self._settings,
            notes=dict(self.notes),
        )

    def privacy_statement(self) -> str:
        """One line: epsilon, delta, unit and rule of everything in the ledger's books.

        Raises:
            PrivacyError: the handle has no privacy option.
        """
        if self._engine.stages.accountant is None:
            raise PrivacyError("privacy: the federation has no ClientPrivacy; nothing is accounted")
        return statement(self._engine.stages.accountant)

    def close(self) -> None:
        """Ends worker processes and threads."""
        self._engine.close()


def _as_type(leaf: Array, dtype: "np.dtype[Any]") -> Array:
    if dtype.kind == "i" and leaf.dtype.kind == "f":
        leaf = np.rint(leaf)
    return leaf.astype(dtype, copy=False)
