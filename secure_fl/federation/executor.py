"""Where client steps run: here, in threads, or in worker processes (`workers`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kahm.threads import one_thread
from secure_fl.errors import StepError
from secure_fl.federation.client import Client
from secure_fl.federation.cohort import BatchedStep, Cohort, Stack, batched_form
from secure_fl.federation.trees import Array, Tree


@dataclass(frozen=True)
class Call:
    """One step, asked of several clients.

    Attributes:
        step: registered by `client_step`.
        broadcast: its arguments after the client.
        seed: of the federation.
        round: from 0.
        number: of the call within the round, from 0.
    """

    step: Callable[..., Tree]
    broadcast: tuple[Any, ...]
    seed: int
    round: int
    number: int


class Runtime(Protocol):
    """Runs steps on clients."""

    def run(self, call: Call, names: Sequence[str]) -> Iterator[tuple[str, Tree]]:
        """What each client returns, in the order of the names.

        Raises:
            StepError: a step failed.
        """

    def states(self) -> dict[str, dict[str, Array]]:
        """Every client's own arrays, for a checkpoint."""

    def restore(self, states: Mapping[str, Mapping[str, Array]]) -> None:
        """Puts every client's own arrays back."""

    def close(self) -> None:
        """Ends threads and processes; a runtime may be closed twice."""


def run_step(call: Call, client: Client) -> Tree:
    """Runs one step on one client.

    Raises:
        StepError: it failed; the cause is chained.
    """
    client.begin(call.seed, call.round, call.number)
    try:
        return call.step(client, *call.broadcast)
    except Exception as error:
        raise StepError(
            f'client "{client.name}": {call.step.__name__} failed in round {call.round}:'
            f" {type(error).__name__}: {error}"
        ) from error


class InProcess:
    """Clients one after the other in this process; nothing is copied.

    Attributes:
        parallel: whether clients run beside one another here. Then the server's linear algebra
            must keep to one thread as well: its threads would spin beside the clients'.
    """

    parallel = False

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = {client.name: client for client in clients}
        self._cohorts = [Cohort(clients)]

    def run(self, call: Call, names: Sequence[str]) -> Iterator[tuple[str, Tree]]:
        """See `Runtime.run`."""
        with one_thread():
            for name in names:
                yield name, run_step(call, self._clients[name])

    def batched(self, call: Call, names: Sequence[str]) -> list[Stack] | None:
        """What the clients return, as stacks in the order of the names; None to run them singly.

        Raises:
            StepError: the step failed.
        """
        form = batched_form(call.step)
        if form is None:
            return None
        parts = []
        wanted = None if len(names) == len(self._clients) else set(names)
        for cohort in self._cohorts:
            chosen = np.arange(len(cohort.clients))
            if wanted is not None:
                chosen = chosen[[client.name in wanted for client in cohort.clients]]
            for i in chosen.tolist():
                cohort.clients[i].begin(call.seed, call.round, call.number)
            if len(chosen):
                parts.append((cohort, chosen))
        try:
            with one_thread():
                found = self._all(call, form, parts)
        except Exception as error:
            raise StepError(
                f"{call.step.__name__} failed in round {call.round}:"
                f" {type(error).__name__}: {error}"
            ) from error
        stacks = [stack for stack in found if stack is not None]
        return stacks if len(stacks) == len(parts) else None

    def _all(
        self, call: Call, form: BatchedStep, parts: Sequence[tuple[Cohort, Array]]
    ) -> list[Stack | None]:
        return [form(cohort, chosen, *call.broadcast) for cohort, chosen in parts]

    def states(self) -> dict[str, dict[str, Array]]:
        """See `Runtime.states`."""
        return {name: dict(client.state) for name, client in self._clients.items()}

    def restore(self, states: Mapping[str, Mapping[str, Array]]) -> None:
        """See `Runtime.restore`."""
        for name, state in states.items():
            client = self._clients[name]
            client.state = dict(state)
            client.cache = {}
        for cohort in self._cohorts:
            cohort.cache = {}

    def close(self) -> None:
        """Nothing to end."""


class Threads(InProcess):
    """Clients in threads, for steps that release the interpreter's lock."""

    parallel = True

    def __init__(self, clients: Sequence[Client], workers: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        super().__init__(clients)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="client")
        share = -(-len(clients) // workers)
        self._cohorts = [
            Cohort(clients[first : first + share]) for first in range(0, len(clients), share)
        ]

    def run(self, call: Call, names: Sequence[str]) -> Iterator[tuple[str, Tree]]:
        """See `Runtime.run`."""
        from concurrent.futures import wait

        with one_thread():
            running = [self._pool.submit(run_step, call, self._clients[name]) for name in names]
            try:
                for name, future in zip(names, running, strict=True):
                    yield name, future.result()
            finally:
                # A sum that was given up must not run into the next one on the same client.
                for future in running:
                    future.cancel()
                wait(running)

    def _all(
        self, call: Call, form: BatchedStep, parts: Sequence[tuple[Cohort, Array]]
    ) -> list[Stack | None]:
        running = [self._pool.submit(form, *part, *call.broadcast) for part in parts]
        return [future.result() for future in running]

    def close(self) -> None:
        """Waits for the threads."""
        self._pool.shutdown()
