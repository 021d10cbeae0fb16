"""Nodes made of their owners' settings for every message, as Flower makes them, without Flower."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from secure_fl.federation import wire
from secure_fl.flower.plan import read_plan
from secure_fl.flower.settings import make_node
from secure_fl.flower.training import train
from secure_fl.flower.transport import REQUEST
from secure_fl.heads.manifest import Manifest, load_manifest
from tests.secure_fl.flower.consortium import NAMES, node_config, write_parties


class Machines:
    """Three clients' folders; every message is answered by a node made anew, as Flower does it."""

    def __init__(self, folder: Path) -> None:
        write_parties(folder)
        self.folder = folder
        self.config: dict[str, Any] = {}
        self.own: dict[str, dict[str, Any]] = {name: {} for name in NAMES}
        self.lost: Callable[[str, str], bool] = lambda name, what: False
        self.seen: list[bytes] = []

    def node(self, name: str) -> Any:
        return make_node(node_config(self.folder, name, **self.own[name]), self.config)

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
