"""Servers and nodes as processes of this machine, for the network's benchmark."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from attrs import frozen

from benchmarks.defaults import load
from secure_fl.crypto.identities import write_identity
from secure_fl.data import Dataset, read_clients, write_clients
from secure_fl.data.samples import digits_split
from secure_fl.data.splitting import Division, divide
from secure_fl.demo.credentials import write_certificates, write_ssh_key
from secure_fl.demo.flower_parties import Loopback, free_port, loopback
from secure_fl.service.coordinator import SERVER

SEED = 0
LONGEST = 1800.0
LOSS = 0.01
"""Of the segments on a line, with a delay."""
WHICH = {
    "flower": "flower-supernode",
    "node": "securefl flower node",
    "service": "securefl serve client",
}


@frozen
class Case:
    """One deployment.

    Attributes:
        nodes: how many.
        kind: Flower's own nodes, securefl's for Flower, or those of the service's channel.
        secure: masked sums.
        rounds: of FedNewton.
        memory: the SuperLink keeps its state in memory; else in a database.
        tls: with TLS and registered keys.
        together: nodes that are threads of one process; 1 gives each its own.
        delay: of the line between nodes and server, milliseconds each way; 0 for this machine's.
        method: FedNewton on the digits, or FedNL-LS on phishing.
    """

    nodes: int
    kind: Literal["flower", "node", "service"] = "node"
    secure: bool = False
    rounds: int = 5
    memory: bool = True
    tls: bool = False
    together: int = 1
    delay: int = 0
    method: Literal["fednewton", "fednl-ls"] = "fednewton"

    @property
    def which(self) -> str:
        """The nodes' command."""
        shared = "" if self.together == 1 else f", {self.together} a process"
        return f"{WHICH[self.kind]}{shared}"

    @property
    def place(self) -> str:
        """What carries the messages, and how."""
        if self.kind == "service":
            return f"train --runtime service{', TLS' if self.tls else ''}"
        kept = "memory" if self.memory else "database"
        return f"SuperLink, {kept}{', TLS, keys' if self.tls else ''}"


def _write_parties(folder: Path, case: Case) -> list[str]:
    train = (
        _phishing() if case.method == "fednl-ls" else digits_split(np.random.default_rng(SEED))[0]
    )
    write_clients(folder / "clients", divide(train, Division("iid", case.nodes, 1.0), SEED))
    names = [client.name for client in read_clients(folder / "clients")]
    public = {name: write_identity(folder / f"{name}.key") for name in names}
    public[SERVER] = write_identity(folder / "training.key")
    (folder / "members.json").write_text(json.dumps(public))
    return names


def _phishing() -> Dataset:
    found = load("phishing", SEED)
    return Dataset(found.X_train, found.y_train, found.classes, "phishing", found.source)


@contextlib.contextmanager
def deployment(folder: Path, case: Case) -> Iterator[tuple[Loopback, list[str], list[str]]]:
    """A deployment, its clients, and the processes of their nodes."""
    names = _write_parties(folder, case)
    certificates = write_certificates(folder) if case.tls else None
    with loopback(folder, certificates) as net:
        if case.kind != "service":
            net.superlink(memory=case.memory)
        if case.delay:
            net.entry = free_port()
            line = ("python", "-m", "benchmarks._line", str(net.entry), str(net.port))
            net.start("line", *line, str(case.delay / 1000), str(LOSS))
        configs = {name: _config(folder, name) for name in names}
        yield net, names, _start(net, configs, case)


def _config(folder: Path, name: str) -> dict[str, str | bool | float]:
    return {
        "data": str(folder / "clients" / f"{name}.npz"),
        "state": str(folder / name),
        "identity": str(folder / f"{name}.key"),
        "directory": str(folder / "members.json"),
    }


def _start(net: Loopback, configs: Mapping[str, dict[str, Any]], case: Case) -> list[str]:
    """Starts the nodes; their processes."""
    if case.together > 1:
        return _start_together(net, configs, case)
    for name, config in configs.items():
        if case.kind == "service":
            net.client(name, config)
        else:
            start = net.supernode if case.kind == "flower" else net.node
            start(name, config, _registered(net, name) if case.tls else None)
    return list(configs)


def _start_together(net: Loopback, configs: Mapping[str, dict[str, Any]], case: Case) -> list[str]:
    files = []
    for name, config in configs.items():
        files.append(net.folder / f"{name}.node.toml")
        files[-1].write_text("".join(f"{key} = {json.dumps(config[key])}\n" for key in config))
    service = case.kind == "service"
    place = f"{'http://' if service else ''}127.0.0.1:{net.entry}"
    processes: list[str] = []
    for start in range(0, len(files), case.together):
        processes.append(f"nodes {len(processes)}")
        command = ("python", "-m", "benchmarks._nodes", "service" if service else "flower", place)
        net.start(processes[-1], *command, *map(str, files[start : start + case.together]))
    return processes


def _registered(net: Loopback, name: str) -> Path:
    """A node's key that the SuperLink knows."""
    key = write_ssh_key(net.folder, name)
    command = ("flwr", "supernode", "register", str(key.with_suffix(".pub")), net.name)
    net.start(f"register {name}", *command).wait(timeout=LONGEST)
    return key
