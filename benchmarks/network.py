"""What does an exchange between a server and its clients cost over a network?

Server and nodes run as processes of this machine: over Flower with Flower's own nodes and with
securefl's (`securefl flower node`), without TLS and with TLS and registered keys, the SuperLink's
state in memory and in a database; and over the service's channel (`securefl serve client`).
FedNewton trains on the digits, in the clear and masked; a round has two sums, of which a masked one
takes three exchanges, or five where it makes keys. What a message costs does not depend much on
what is in it, so the seconds of an exchange (one message to each node and its answer) stand beside
the processor time of a message, of the nodes and of what carries it. Weights are compared with
those of one process. FedNL-LS trains on phishing until the gradient is below 1e-9. Lines with a
delay and losses between nodes and server are a relay's (`benchmarks._line`).
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from attrs import frozen
from scipy.special import expit

from benchmarks._deployments import LONGEST, LOSS, SEED, Case, deployment
from benchmarks._harness import Run, Table, benchmark
from secure_fl.data import read_clients
from secure_fl.demo.flower_parties import POLL, Loopback
from secure_fl.flower import network
from secure_fl.flower.app import write_app
from secure_fl.trainers.methods.fednl import FedNLLineSearch
from secure_fl.trainers.methods.newton import FedNewton
from secure_fl.training.linear import train_linear_model
from secure_fl.training.linear_model import LinearModel

SUMS = 2
"""Of a round of FedNewton without a safeguard."""
EXCHANGES = {False: 1.0, True: 3.0}
"""Of a sum, by whether it is masked; a masked one that makes keys has two more."""
RIDGE = 1.0
"""Strong enough for rounds of a hundred clients of 14 records each."""
TOGETHER = 10
"""Nodes that are threads of one process, where there are more than as many."""
COLUMNS = [
    *("nodes", "which", "server", "sums", "rounds", "round s", "exchange s"),
    *("node ms a message", "server ms a message", "difference"),
]
FEDNL = FedNLLineSearch(rounds=20)
"""Their gradient is below 1e-9 then, from 0."""
AnyMethod = FedNewton | FedNLLineSearch
FEDNL_COLUMNS = [
    *("nodes", "which", "server", "sums", "rounds", "seconds", "gradient", "difference"),
]
LINES = [
    *("nodes", "which", "server", "sums", "ms each way", "loss %", "rounds", "rounds a minute"),
    "difference",
]


@frozen
class Found:
    """What a deployment used.

    Attributes:
        seconds: of each round.
        nodes: processor seconds of all nodes between two rounds.
        server: of the SuperLink, or of the service's server, in the same time.
        rounds: between them.
        weights: at the end.
    """

    seconds: list[float]
    nodes: float
    server: float
    rounds: int
    weights: Any


def _gradient(clients: Path, weights: Any) -> float:
    """Norm of the whole objective's gradient at a model of two classes, with an intercept."""
    parts = read_clients(clients)
    X = np.concatenate([part.X for part in parts]).astype(np.float64)
    X = np.hstack([X, np.ones((len(X), 1))])
    y = np.concatenate([2.0 * part.y - 1 for part in parts])
    w = weights[:, 1]
    pull = X * (y * expit(-y * (X @ w)))[:, None]
    return float(np.linalg.norm(FEDNL.ridge * w - pull.mean(axis=0)))


def _over_network(
    net: Loopback, names: list[str], processes: list[str], method: AnyMethod, case: Case
) -> Found:
    clients = read_clients(net.folder / "clients")
    out = net.folder / "run"
    settings = {
        "clients": ",".join(names),
        "classes": ",".join(clients[0].classes),
        "method": method.method,
        "rounds": method.rounds,
        "ridge": method.ridge,
        **({"safeguard": method.safeguard} if isinstance(method, FedNewton) else {}),
        "secure": case.secure,
        "max-weight": float(max(map(len, clients))),
        "out": str(out),
    }
    write_app(net.folder / "app", settings)
    if case.kind == "service":
        process = net.train("run", net.folder / "app", out)
    else:
        process = net.run("run", net.folder / "app")
    server = "run" if case.kind == "service" else "superlink"
    first = _used(net, processes, server, 0)
    last = _used(net, processes, server, method.rounds)
    process.wait(timeout=LONGEST)
    if not out.exists():
        raise RuntimeError(net.log("run"))
    return Found(
        seconds=_seconds(out / "metrics.jsonl"),
        nodes=last[0] - first[0],
        server=last[1] - first[1],
        rounds=method.rounds,
        weights=LinearModel.load(out).weights,
    )


def _used(net: Loopback, processes: list[str], server: str, number: int) -> tuple[float, float]:
    """Processor seconds of nodes and server when a round is over."""
    end = time.monotonic() + LONGEST
    while f"round {number}:" not in net.log("run"):
        if time.monotonic() > end or "Traceback" in net.log("run"):
            raise RuntimeError(net.log("run"))
        time.sleep(0.05)
    nodes = sum(map(net.processor_seconds, processes))
    return nodes, net.processor_seconds(server)


def _here(folder: Path, method: AnyMethod, secure: bool) -> tuple[list[float], Any]:
    metrics = folder / "here.jsonl"
    found = train_linear_model(
        read_clients(folder / "clients"), method, secure=secure, metrics=metrics
    )
    return _seconds(metrics), found.model.weights


def _seconds(metrics: Path) -> list[float]:
    """Of the rounds after the first state, which has one sum."""
    return [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()][1:]


def _measure(tables: Mapping[str, Table], case: Case) -> None:
    newton = FedNewton(rounds=case.rounds, ridge=RIDGE, safeguard=False)
    method = newton if case.method == "fednewton" else FEDNL
    exchanges = SUMS * EXCHANGES[case.secure]
    sums = "masked" if case.secure else "plain"
    with (
        tempfile.TemporaryDirectory(prefix="securefl-") as name,
        deployment(Path(name), case) as (net, names, processes),
    ):
        here, expected = _here(net.folder, method, case.secure)
        found = _over_network(net, names, processes, method, case)
        gradient = _gradient(net.folder / "clients", found.weights) if method is FEDNL else None
    near, far = statistics.median(here), statistics.median(found.seconds)
    difference = float(np.abs(found.weights - expected).max())
    told = case.nodes, case.which, case.place, sums
    if gradient is not None:
        tables["fednl"].add(*told, method.rounds, sum(found.seconds), gradient, difference)
        return
    if case.delay:
        minute = 60 * len(found.seconds) / sum(found.seconds)
        tables["lines"].add(*told, case.delay, 100 * LOSS, case.rounds, minute, difference)
        return
    table = tables["rounds"]
    keys = found.rounds * SUMS * 2 / network.SUMS if case.secure else 0.0
    messages = (found.rounds * exchanges + keys) * case.nodes
    one = case.nodes, "one process", "none", sums, case.rounds, near, near / exchanges
    table.add(*one, None, None, 0.0)
    table.add(
        *(*told, case.rounds, far, far / exchanges),
        *(1000 * found.nodes / messages, 1000 * found.server / messages),
        difference,
    )


def _cases(quick: bool, nodes: tuple[int, ...]) -> list[Case]:
    if quick:
        newton = [Case(3, rounds=2), Case(3, "service", rounds=20)]
        return [*newton, Case(3, "service", method="fednl-ls")]
    few = nodes[0]
    return [
        Case(few),
        Case(few, "flower", rounds=2),
        Case(few, "service", rounds=50),
        Case(few, "service", secure=True, rounds=20),
        Case(few, "service", tls=True, secure=True, rounds=20),
        Case(few, memory=False),
        Case(few, tls=True),
        Case(few, tls=True, secure=True, rounds=3),
        Case(few, secure=True, rounds=3),
        Case(few, "flower", secure=True, rounds=1),
        Case(few, "service", method="fednl-ls"),
        Case(few, method="fednl-ls"),
        *(Case(count, "service", rounds=20, together=_together(count)) for count in nodes[1:]),
        *(Case(count, rounds=3, together=_together(count)) for count in nodes[1:]),
    ]


def _lines(quick: bool, few: int, delays: tuple[int, ...]) -> list[Case]:
    if quick:
        return [Case(few, "service", rounds=5, delay=min(delays))]
    return [
        Case(few, kind, secure=secure, rounds=10, delay=delay)
        for delay in delays
        for kind in ("service", "node")
        for secure in (False, True)
    ]


def _together(count: int) -> int:
    """Nodes of one process: of more than ten, each process would take 150 MB of this machine."""
    return 1 if count <= TOGETHER else TOGETHER


@benchmark(
    "what does an exchange between a server and its clients cost over a network?",
    click.option(
        "--nodes",
        multiple=True,
        type=click.IntRange(2),
        default=(3, 10),
        show_default=True,
        help="The first number in all deployments, the others with securefl's nodes; of more than"
        " 10, ten nodes share a process.",
    ),
    click.option(
        "--delay",
        "delays",
        multiple=True,
        type=click.IntRange(1),
        default=(20, 100),
        show_default=True,
        help="Milliseconds each way of lines between nodes and server, with 1 % loss.",
    ),
    click.option("--only", type=click.IntRange(1), help="One of the deployments, by its place."),
)
def main(run: Run, nodes: tuple[int, ...], delays: tuple[int, ...], only: int | None) -> None:
    """Times rounds of FedNewton on nodes of this machine."""
    cases = [*_cases(run.quick, nodes), *_lines(run.quick, nodes[0], delays)]
    if only is not None:
        cases = cases[only - 1 : only]
    run.seeds(SEED)
    run.parameter(method="fednewton", superexec_poll_seconds=POLL)
    table = run.table("medians over rounds", COLUMNS)
    tables = {
        "rounds": table,
        "fednl": run.table("FedNL-LS on phishing", FEDNL_COLUMNS),
        "lines": run.table("lines with a delay and 1 % loss: rounds a minute", LINES),
    }
    before = os.getloadavg()[0]
    for case in cases:
        line = f", {case.delay} ms each way" if case.delay else ""
        what = f"{case.method}, {case.nodes} nodes, {case.which}, {case.place}"
        run.progress(f"{what}, masked {case.secure}{line}")
        _measure(tables, case)
    run.note("difference: largest of the weights from those of one process; 0 is the same bytes")
    run.note("a difference of 0 says too that no node's part was lost in any round")
    run.note("all processes share this machine's cores; on machines of their own nodes wait less")
    run.note(
        f"load of the machine: {before:.0f} before, {os.getloadavg()[0]:.0f} after, these processes"
        " and whatever else it does; seconds grow with it, processor time hardly"
    )
    run.note(
        "node and server ms: of one core, of all their processes, between the first and the"
        " last round, their looks for messages included"
    )
    if run.quick:
        run.note("quick: securefl's nodes and plain sums alone")


if __name__ == "__main__":
    main()
