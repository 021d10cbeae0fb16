"""A SuperLink and SuperNodes as processes on loopback, all of them stopped at the end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """All processes that a process started, and those that these started."""
    found: list[int] = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The second field, the name in brackets, may hold spaces.
            if int(file.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(file.parent.name))
    return found + [each for child in found for each in descendants(child)]


class Deployment:
    """Processes of one deployment, each the leader of its group.

    Args:
        folder: for logs, state and Flower's home.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        home = folder / "flwr"
        home.mkdir()
        (home / "config.toml").write_text(
            '[superlink]\ndefault = "here"\n\n'
            f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        self.environment = {
            **os.environ,
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def superlink(self) -> None:
        self.start(
            "superlink",
            *("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self.port)),
            "--disable-runtime-dependency-installation",
        )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.1)
        raise AssertionError(f"the SuperLink does not answer: {self.log('superlink')}")

    def supernode(self, name: str, config: Mapping[str, str | bool | float]) -> None:
        pairs = [f'{k}="{v}"' if isinstance(v, str) else f"{k}={v}" for k, v in config.items()]
        self.start(
            name,
            *("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.port}"),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *("--node-config", " ".join(pairs)),
        )

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running[name] = process
        return process

    def kill(self, name: str) -> None:
        """SIGKILL to the process and all that it started, sessions of their own included."""
        process = self._running.pop(name)
        for pid in (process.pid, *descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)


@contextlib.contextmanager
def deployment(folder: Path) -> Iterator[Deployment]:
    found = Deployment(folder)
    try:
        yield found
    finally:
        found.close()
