"""A real SuperLink of this process (flwr's own application, unmodified), and nodes as threads."""

import hashlib
import io
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.superlink.main import create_app

from secure_fl.demo.flower_parties import free_port
from secure_fl.flower.settings import Owner
from secure_fl.flower.superlink import Line
from secure_fl.flower.supernode import Desk, SuperNode

PROJECT = """[project]
name = "securefl-app"
version = "1.0.0"
[tool.flwr.app]
publisher = "securefl"
[tool.flwr.app.components]
serverapp = "app.server:app"
clientapp = "app.client:app"
[tool.flwr.app.config]
"""


class Here:
    """A SuperLink that keeps its state in memory, on a port of loopback.

    Args:
        port: of a SuperLink that was here before.
        authority, certificate, key: PEM files for TLS; with them nodes are known by their keys.
    """

    def __init__(self, port: int | None = None, tls: tuple[Path, Path] | None = None) -> None:
        self.port = port or free_port()
        self.app = create_app()
        self.app.state.enable_supernode_auth = tls is not None
        self.state = self.app.state.linkstate_factory.state()
        files = {} if tls is None else {"ssl_certfile": tls[0], "ssl_keyfile": tls[1]}
        config = uvicorn.Config(self.app, port=self.port, log_config=None, ws="none", **files)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def register(self, key: Any) -> None:
        """As `flwr supernode register` does."""
        self.state.create_node("none", "none", public_key_to_bytes(key), 0)

    def run(self, config: Mapping[str, Any], files: Mapping[str, str] = {}) -> HttpGrid:
        """Starts a run of an app with these settings and files, as its server."""
        app = bundle(files)
        fab = Fab(hashlib.sha256(app).hexdigest(), app, {})
        self.state.store_fab(fab)
        kind = TaskType.SERVER_APP
        place = NOOP_FEDERATION_ID
        run = self.state.create_run(
            "securefl/app", "1.0.0", fab.hash_str, dict(config), place, None, "none", kind
        )
        (found,) = self.state.get_run_info(run_ids=[run])
        token = self.state.claim_task(found.primary_task_id)
        assert self.state.activate_task(found.primary_task_id)
        grid = HttpGrid(self.address, insecure=True, token=token)
        grid.set_run(found)
        # As flwr's process of a ServerApp does; of the run that was started last.
        TaskIdentity.task_id, TaskIdentity.run_id = found.primary_task_id, run
        TaskIdentity.node_id = SUPERLINK_NODE_ID
        return grid

    def finish(self, grid: HttpGrid) -> None:
        """Ends the run of a grid."""
        assert self.state.finish_task(grid.run.primary_task_id, "completed", "")
        grid.close()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()


def bundle(files: Mapping[str, str] = {}, settings: str = "") -> bytes:
    """An app as Flower bundles it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("pyproject.toml", PROJECT + settings)
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


@contextmanager
def superlink(port: int | None = None) -> Iterator[Here]:
    """A SuperLink that ends with the block."""
    found = Here(port)
    try:
        yield found
    finally:
        found.close()


class Seat:
    """One client's node in a thread, which can be killed and started anew.

    Args:
        here: where it answers.
        own: its `--node-config`.
        kind: of its line; one that is cut somewhere.
    """

    def __init__(self, here: Here, own: Mapping[str, Any], kind: type[Line] = Line) -> None:
        self.address, self.own = here.address, own
        self.numbers: list[int] = []
        self.ended: BaseException | None = None
        self.start(kind)

    def start(self, kind: type[Line] = Line) -> None:
        owner = Owner(self.own)
        self.desk = Desk(owner.state)
        key, source = self.desk.own_key()
        line = kind(self.address, key, source=source, registers=True, insecure=True)
        self._ending = threading.Event()
        self.node = SuperNode(line, self.desk, owner.node, self._ending)
        self._thread = threading.Thread(target=self._run, daemon=True)
        before = len(self.numbers)
        self._thread.start()
        while len(self.numbers) == before and self._thread.is_alive():
            time.sleep(0.01)

    def _run(self) -> None:
        try:
            with self.desk.held():
                self.node.run(self.numbers.append)
        except BaseException as ended:
            self.ended = ended

    def wait(self) -> None:
        """Until it ended by itself."""
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self._ending.set()
        self.wait()
