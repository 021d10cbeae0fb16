"""Nodes made of their owners' settings for every message, as Flower makes them, without Flower."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from secure_fl.crypto.identities import write_identity
from secure_fl.data import Dataset, write_clients
from secure_fl.federation import wire
from secure_fl.flower.plan import read_plan
from secure_fl.flower.settings import make_node
from secure_fl.flower.training import train
from secure_fl.flower.transport import REQUEST
from secure_fl.heads.manifest import Manifest, load_manifest
from tests.secure_fl.trainers.linear.federations import pool

NAMES = ("c0", "c1", "c2")


class Machines:
    """Three clients' folders; every message is answered by a node made anew, as Flower does it."""

    def __init__(self, folder: Path) -> None:
        data = pool()
        sets = [
            Dataset(data.X[rows], data.y[rows].astype(np.int64), ("x", "y", "z"), name)
            for name, rows in zip(NAMES, data.parts, strict=True)
        ]
        write_clients(folder / "clients", tuple(sets))
        public = {name: write_identity(folder / f"{name}.key") for name in NAMES}
        (folder / "members.json").write_text(json.dumps(public))
        self.folder = folder
        self.config: dict[str, Any] = {}
        self.own: dict[str, dict[str, Any]] = {name: {} for name in NAMES}
        self.lost: Callable[[str, str], bool] = lambda name, what: False
        self.seen: list[bytes] = []

    def node(self, name: str) -> Any:
        own = {
            "data": str(self.folder / "clients" / f"{name}.npz"),
            "state": str(self.folder / name / "state"),
            "heads": str(self.folder / name / "heads"),
            "identity": str(self.folder / f"{name}.key"),
            "directory": str(self.folder / "members.json"),
            **self.own[name],
        }
        return make_node(own, self.config)

    def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        found = {}
        for name, request in requests.items():
            if not self.lost(name, wire.decode(request, kind=REQUEST)["do"]):
                found[name] = self.node(name).answer(request)
                self.seen.append(found[name])
        return found

    def train(self, out: str, **settings: Any) -> Path:
        """Trains by a plan; the folder that the server wrote."""
        self.config = {
            "clients": ",".join(NAMES),
            "classes": "x,y,z",
            "scale": 0.5,
            "out": str(self.folder / out),
            **{key.replace("_", "-"): value for key, value in settings.items()},
        }
        train(self, read_plan(self.config), lambda line: None)
        return self.folder / out

    def heads(self, out: str, **settings: Any) -> Manifest:
        """Trains heads, by default of batches of 5; the manifest that the server wrote."""
        plan = settings if "method" in settings else {"method": "kahm", "batch_size": 5, **settings}
        return load_manifest(self.train(out, **plan))

    def run(self, name: str, manifest: Manifest) -> Path:
        return self.folder / name / "heads" / manifest.fingerprint[:16]
