"""Clients in worker processes: requests and results cross pipes in the wire encoding.

A worker is a fresh interpreter that gets its clients' records once and keeps their state. Nothing
is pickled; a worker imports the modules that define the steps and records it is sent, from this
program's own path.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from dp import Ledger
from secure_fl.errors import StepError
from secure_fl.federation import wire
from secure_fl.federation.client import Client
from secure_fl.federation.executor import Call, InProcess
from secure_fl.federation.steps import find_step, import_by_name, step_name
from secure_fl.federation.trees import Array, Tree

KIND = "worker message"
_PROGRAM = "from secure_fl.federation.workers import main; main()"
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Processes:
    """Clients spread over worker processes; results come back in the order of the clients.

    Args:
        clients: of the federation.
        workers: processes, at least 1; no more than clients are started.
    """

    def __init__(self, clients: Sequence[Client], workers: int) -> None:
        count = min(workers, len(clients))
        self._workers = [_Worker() for _ in range(count)]
        self._home = {client.name: i % count for i, client in enumerate(clients)}
        for i, worker in enumerate(self._workers):
            own = [client for client in clients if self._home[client.name] == i]
            worker.send({"do": "begin", "clients": [_describe(client) for client in own]})

    def run(self, call: Call, names: Sequence[str]) -> Iterator[tuple[str, Tree]]:
        """See `Runtime.run`."""
        for i, worker in enumerate(self._workers):
            own = [name for name in names if self._home[name] == i]
            if own:
                request = {
                    "do": "run",
                    "step": step_name(call.step),
                    "broadcast": call.broadcast,
                    "key": (call.seed, call.round, call.number),
                    "names": own,
                }
                worker.send(request)
        # Every worker answers in the order of its clients.
        left = list(names)
        try:
            while left:
                name = left.pop(0)
                answer = self._workers[self._home[name]].receive()
                if "error" in answer:
                    raise StepError(answer["error"])
                yield name, answer["tree"]
        finally:
            # An answer that nobody reads would be taken for one to the next request.
            with contextlib.suppress(StepError):
                for name in left:
                    self._workers[self._home[name]].receive()

    def states(self) -> dict[str, dict[str, Array]]:
        """See `Runtime.states`."""
        found: dict[str, dict[str, Array]] = {}
        for worker in self._workers:
            worker.send({"do": "states"})
        for worker in self._workers:
            found.update(worker.receive()["states"])
        return {name: found[name] for name in self._home}

    def restore(self, states: Mapping[str, Mapping[str, Array]]) -> None:
        """See `Runtime.restore`."""
        for i, worker in enumerate(self._workers):
            own = {n: dict(state) for n, state in states.items() if self._home[n] == i}
            worker.send({"do": "restore", "states": own})

    def close(self) -> None:
        """Ends the processes."""
        for worker in self._workers:
            worker.close()


class _Worker:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {
                **os.environ,
                **dict.fromkeys(_ONE_THREAD, "1"),
                # The same modules as here, whatever put them on the path.
                "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            }
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        self._pipe = Connection(ours.detach())

    def send(self, request: Mapping[str, Any]) -> None:
        try:
            self._pipe.send_bytes(wire.encode(dict(request), kind=KIND))
        except OSError as error:
            raise self._ended() from error

    def receive(self) -> dict[str, Any]:
        try:
            answer = wire.decode(self._pipe.recv_bytes(), kind=KIND, source="worker")
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if "fatal" in answer:
            raise StepError(f"worker process: {answer['fatal']}")
        return answer

    def close(self) -> None:
        self._pipe.close()
        try:
            # One that is still importing on a busy machine ends when it is done.
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self) -> StepError:
        self.close()
        return StepError(
            f"worker process {self._process.pid} ended with code {self._process.returncode}; its"
            " clients' state is lost, resume from the checkpoint"
        )


def _describe(client: Client) -> dict[str, Any]:
    features = client.features
    if scipy.sparse.issparse(features):
        rows = features.tocsr()
        features = {
            "data": rows.data,
            "indices": rows.indices,
            "indptr": rows.indptr,
            "shape": tuple(int(n) for n in rows.shape),
        }
    return {
        "name": client.name,
        "features": features,
        "targets": np.asarray(client.targets),
        "weight": client.weight,
        "state": dict(client.state),
        "ledger": None if client.ledger is None else str(client.ledger.path.absolute()),
        "records": None if client.ledger is None else client.ledger.records,
    }


def _client(described: Mapping[str, Any]) -> Client:
    features = described["features"]
    if isinstance(features, dict):
        parts = (features["data"], features["indices"], features["indptr"])
        features = scipy.sparse.csr_array(parts, shape=features["shape"])
    state = {key: array.copy() for key, array in described["state"].items()}
    ledger = None
    if described["ledger"] is not None:
        ledger = Ledger(Path(described["ledger"]), described["records"])
    return Client(
        described["name"],
        features,
        described["targets"],
        described["weight"],
        state,
        ledger=ledger,
    )


class _Server:
    """The worker's side: answers requests until the pipe is closed."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._runtime = InProcess([])

    def serve(self) -> None:
        while True:
            try:
                data = self._pipe.recv_bytes()
            except (EOFError, OSError):
                return
            try:
                self._answer(wire.decode(data, kind=KIND, source="request"))
            except Exception as error:  # the parent must hear of it, whatever it is
                self._send({"fatal": f"{type(error).__name__}: {error}"})

    def _answer(self, request: Mapping[str, Any]) -> None:
        match request["do"]:
            case "begin":
                self._runtime = InProcess([_client(each) for each in request["clients"]])
            case "run":
                self._run(request)
            case "states":
                self._send({"states": self._runtime.states()})
            case "restore":
                states = request["states"].items()
                self._runtime.restore(
                    {n: {k: a.copy() for k, a in own.items()} for n, own in states}
                )

    def _run(self, request: Mapping[str, Any]) -> None:
        step = find_step(request["step"])
        call = Call(step, tuple(request["broadcast"]), *request["key"])
        for name in request["names"]:
            try:
                ((_, tree),) = self._runtime.run(call, [name])
                self._send({"tree": tree})
            except Exception as error:  # as in one process: it ends the sum, with its cause
                self._send({"error": str(error)})

    def _send(self, answer: Mapping[str, Any]) -> None:
        self._pipe.send_bytes(wire.encode(dict(answer), kind=KIND))


def main() -> None:
    """A worker process; its argument is the number of its end of the pipe."""
    # An interrupt of the whole group is the parent's to handle; it closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_by_name()
    _Server(Connection(int(sys.argv[1]))).serve()
