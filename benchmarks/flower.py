"""What does a round cost over Flower, beside the same round in one process?

A SuperLink and three SuperNodes run as processes of this machine. FedNewton trains on the digits,
in the clear and masked; a round has two sums, of which a masked one takes five messages. What
Flower needs for a message does not depend on what is in it, so the seconds a message are given too.
"""

import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._harness import Run, benchmark
from secure_fl.crypto.identities import write_identity
from secure_fl.data import read_clients, write_clients
from secure_fl.data.samples import digits_split
from secure_fl.data.splitting import Division, divide
from secure_fl.demo.flower_parties import POLL, Loopback, loopback
from secure_fl.flower.app import write_app
from secure_fl.trainers.methods.newton import FedNewton
from secure_fl.training.linear import train_linear_model
from secure_fl.training.linear_model import LinearModel

CLIENTS = 3
SEED = 0
SUMS = 2
"""Of a round of FedNewton without a safeguard."""
MESSAGES = {False: 1, True: 5}
"""Of a sum to each client, by whether it is masked."""
LONGEST = 1800.0


@contextlib.contextmanager
def _deployment(folder: Path) -> Iterator[Loopback]:
    train, _ = digits_split(np.random.default_rng(SEED))
    write_clients(folder / "clients", divide(train, Division("iid", CLIENTS, 1.0), SEED))
    names = [client.name for client in read_clients(folder / "clients")]
    public = {name: write_identity(folder / f"{name}.key") for name in names}
    (folder / "members.json").write_text(json.dumps(public))
    with loopback(folder) as net:
        net.superlink()
        for name in names:
            net.supernode(
                name,
                {
                    "data": str(folder / "clients" / f"{name}.npz"),
                    "state": str(folder / name),
                    "identity": str(folder / f"{name}.key"),
                    "directory": str(folder / "members.json"),
                },
            )
        yield net


def _over_flower(net: Loopback, method: FedNewton, secure: bool) -> tuple[list[float], Any]:
    """Seconds of each round, and the weights."""
    clients = read_clients(net.folder / "clients")
    name = "secure" if secure else "plain"
    out = net.folder / f"{name}.run"
    settings = {
        "clients": ",".join(client.name for client in clients),
        "classes": ",".join(clients[0].classes),
        "method": method.method,
        "rounds": method.rounds,
        "ridge": method.ridge,
        "safeguard": method.safeguard,
        "secure": secure,
        "max-weight": float(max(map(len, clients))),
        "out": str(out),
    }
    write_app(net.folder / f"{name}.app", settings)
    net.run(name, net.folder / f"{name}.app").wait(timeout=LONGEST)
    if not out.exists():
        raise RuntimeError(net.log(name))
    return _seconds(out / "metrics.jsonl"), LinearModel.load(out).weights


def _here(folder: Path, method: FedNewton, secure: bool) -> tuple[list[float], Any]:
    metrics = folder / f"here-{secure}.jsonl"
    found = train_linear_model(
        read_clients(folder / "clients"), method, secure=secure, metrics=metrics
    )
    return _seconds(metrics), found.model.weights


def _seconds(metrics: Path) -> list[float]:
    """Of the rounds after the first state, which has one sum."""
    return [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()][1:]


@benchmark("what does a round cost over Flower, beside the same round in one process?")
def main(run: Run) -> None:
    """Times rounds of FedNewton on three SuperNodes of this machine."""
    rounds = 1 if run.quick else 3
    run.seeds(SEED)
    run.parameter(clients=CLIENTS, method="fednewton", rounds=rounds, superexec_poll_seconds=POLL)
    table = run.table(
        f"median of {rounds} rounds",
        ["sums", "here s", "Flower s", "messages a round", "Flower s a message", "difference"],
    )
    with tempfile.TemporaryDirectory(prefix="securefl-") as name, _deployment(Path(name)) as net:
        for secure in (False,) if run.quick else (False, True):
            method = FedNewton(rounds=rounds, ridge=1e-3, safeguard=False)
            run.progress("masked sums" if secure else "plain sums")
            here, expected = _here(net.folder, method, secure)
            far, weights = _over_flower(net, method, secure)
            messages = SUMS * MESSAGES[secure]
            median = statistics.median(far)
            table.add(
                "masked" if secure else "plain",
                statistics.median(here),
                median,
                messages,
                median / messages,
                float(np.abs(weights - expected).max()),
            )
    run.note("difference: largest of the weights from those of one process; 0 is the same bytes")
    run.note("all processes share this machine's cores; on machines of their own nodes wait less")
    if run.quick:
        run.note("masked sums were left out")


if __name__ == "__main__":
    main()
