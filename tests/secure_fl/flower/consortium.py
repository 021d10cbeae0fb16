"""Three clients with records, identities and SuperNodes, and a SuperLink, on loopback."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from secure_fl.crypto.identities import write_identity
from secure_fl.data import Dataset, read_clients, write_clients
from secure_fl.demo.flower_parties import Loopback
from secure_fl.errors import InputError
from secure_fl.flower.app import write_app
from secure_fl.training.linear import train_linear_model
from secure_fl.training.linear_model import LinearModel
from tests.secure_fl.methods import LINEAR, linear, own
from tests.secure_fl.trainers.linear.federations import pool

NAMES = ("c0", "c1", "c2")
CLASSES = ("x", "y", "z")
LONGEST = 900.0
"""Seconds for anything; on a loaded machine Flower is slow."""


def write_parties(folder: Path, *, classes: tuple[str, ...] = CLASSES) -> None:
    """Client files, and everybody's keys."""
    data = pool(classes=len(classes))
    sets = [
        Dataset(data.X[rows], data.y[rows].astype(np.int64), classes, name)
        for name, rows in zip(NAMES, data.parts, strict=True)
    ]
    write_clients(folder / "clients", tuple(sets))
    public = {name: write_identity(folder / f"{name}.key") for name in NAMES}
    (folder / "members.json").write_text(json.dumps(public))


def node_config(folder: Path, name: str, **settings: Any) -> dict[str, Any]:
    """`--node-config` of a party with all that a client may have."""
    return {
        "data": str(folder / "clients" / f"{name}.npz"),
        "state": str(folder / name / "state"),
        "heads": str(folder / name / "heads"),
        "identity": str(folder / f"{name}.key"),
        "directory": str(folder / "members.json"),
        **settings,
    }


def start_node(
    net: Loopback,
    name: str,
    ssh: Path | None = None,
    process: str | None = None,
    *,
    flowers: bool = False,
) -> None:
    """A node with all that a client may have, securefl's or Flower's own.

    Its process has the client's name.
    """
    (net.supernode if flowers else net.node)(process or name, node_config(net.folder, name), ssh)


def write_run(net: Loopback, name: str, **settings: Any) -> Path:
    """The app folder of a run that writes NAME.run."""
    config = {
        "clients": ",".join(NAMES),
        "classes": ",".join(CLASSES),
        "method": "fednewton",
        "out": str(net.folder / f"{name}.run"),
        **{key.replace("_", "-"): value for key, value in settings.items()},
    }
    if config["method"] in LINEAR:
        config |= own(config["method"], "linear", {"ridge": 0.1, "safeguard": False})
    app = net.folder / f"{name}.app"
    write_app(app, config)
    return app


def start_run(net: Loopback, name: str, **settings: Any) -> Any:
    """Starts such a run."""
    return net.run(name, write_run(net, name, **settings))


def wait_for(
    condition: Callable[[], bool], net: Loopback, name: str, *, every: float = 0.1
) -> None:
    """Fails with the logs when it takes too long; looks every so many seconds."""
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end, net.log(name) + net.log("c0")
        time.sleep(every)


def weights(net: Loopback, name: str) -> Any:
    """Of the model that a run left."""
    try:
        return LinearModel.load(net.folder / f"{name}.run").weights
    except InputError:
        raise AssertionError(net.log(name) + net.log("c0")) from None


def in_process(
    net: Loopback, rounds: int, method: str = "fednewton", *, secure: bool = False
) -> Any:
    """Weights of the same run without a network."""
    settings = linear(method, rounds=rounds, safeguard=False, ridge=0.1)
    clients = read_clients(net.folder / "clients")
    return train_linear_model(clients, settings, secure=secure).model.weights
