"""A SuperLink and SuperNodes as processes of this machine, for trials, tests and measurements.

Linux only: processes are found by a mark in their environment, so that all are stopped whatever
started them, the ones that Flower puts into sessions of their own included. Should this process be
killed, the kernel kills those that it started, and Flower's own follow their parents.
"""

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

POLL = 0.2
"""Seconds between two looks of Flower's SuperExec for work; Flower's default is 1."""
MARK = "SECUREFL_LOOPBACK"
"""Variable in the environment of processes that are found by its value."""
_PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when its parent ends."""
_BIN = Path(sys.executable).parent


@frozen
class Certificates:
    """TLS and node authentication of a deployment.

    Attributes:
        authority: certificate that all trust, PEM.
        certificate: of the SuperLink, for 127.0.0.1.
        key: of the SuperLink.
    """

    authority: Path
    certificate: Path
    key: Path


class Loopback:
    """Processes of one deployment; see `loopback`.

    Args:
        folder: for logs, Flower's home and the SuperLink's database.
        certificates: None runs without TLS, with Flower's own flag.

    Attributes:
        folder: as given.
        port: of the SuperLink.
        entry: port that nodes call, where it is another one.
        name: of the SuperLink in Flower's config.toml.
    """

    def __init__(self, folder: Path, certificates: Certificates | None = None) -> None:
        self.folder = folder
        self.port = self.entry = free_port()
        self.name = "here"
        self._certificates = certificates
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        home = folder / "flwr"
        home.mkdir()
        safety = "insecure = true"
        if certificates is not None:
            safety = f'root-certificates = "{certificates.authority}"'
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{self.name}"\n\n[superlink.{self.name}]\n'
            f'address = "127.0.0.1:{self.port}"\n{safety}\n'
        )
        self._environment = {
            **os.environ,
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            # gRPC would call this machine's own ports through the environment's proxy.
            "no_grpc_proxy": "127.0.0.1",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(POLL),
            "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def superlink(self, *, memory: bool = False) -> None:
        """Starts the SuperLink and waits until it listens.

        Args:
            memory: keep its state in memory, which is faster; by default in a database, from which
                it goes on after it was killed.

        Raises:
            RuntimeError: it does not listen within a minute.
        """
        safety = ["--insecure"]
        if self._certificates is not None:
            given = self._certificates
            safety = ["--ssl-ca-certfile", str(given.authority), "--enable-supernode-auth"]
            safety += ["--ssl-certfile", str(given.certificate), "--ssl-keyfile", str(given.key)]
        self.start(
            "superlink",
            *("flower-superlink", *safety, "--host", "127.0.0.1", "--port", str(self.port)),
            *(() if memory else ("--database", str(self.folder / "superlink.db"))),
            "--disable-runtime-dependency-installation",
        )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.1)
        raise RuntimeError(f"the SuperLink does not listen: {self.log('superlink')}")

    def supernode(
        self, name: str, config: Mapping[str, str | bool | float], identity: Path | None = None
    ) -> None:
        """Starts a SuperNode.

        Args:
            name: of the process.
            config: its `--node-config`.
            identity: its private key, registered at the SuperLink; needed with certificates.
        """
        # TOML's strings, numbers and booleans are written as JSON's.
        pairs = [f"{key}={json.dumps(value)}" for key, value in config.items()]
        safety = ["--insecure"]
        if self._certificates is not None:
            safety = ["--root-certificates", str(self._certificates.authority)]
        if identity is not None:
            safety += ["--auth-supernode-private-key", str(identity)]
        self.start(
            name,
            *("flower-supernode", *safety, "--superlink", f"127.0.0.1:{self.entry}"),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *("--node-config", " ".join(pairs)),
        )

    def node(
        self, name: str, config: Mapping[str, str | bool | float], identity: Path | None = None
    ) -> None:
        """Starts securefl's own node; see `supernode` for the arguments."""
        file = self._settings(name, config)
        safety = ["--insecure"]
        if self._certificates is not None:
            safety = ["--root-certificates", str(self._certificates.authority)]
        if identity is not None:
            safety += ["--auth-supernode-private-key", str(identity)]
        place = ["--superlink", f"127.0.0.1:{self.entry}", "--node-config", str(file)]
        self.start(name, "securefl", "flower", "node", *place, *safety)

    def client(self, name: str, config: Mapping[str, str | bool | float]) -> None:
        """Starts a node that calls a server of `train`; see `supernode` for the arguments."""
        place = ["--server", f"https://127.0.0.1:{self.entry}"]
        if self._certificates is None:
            place = ["--server", f"http://127.0.0.1:{self.entry}"]
        else:
            place += ["--authority", str(self._certificates.authority)]
        file = self._settings(name, config)
        self.start(name, "securefl", "serve", "client", *place, "--node-config", str(file))

    def train(self, name: str, app: Path, out: Path) -> "subprocess.Popen[bytes]":
        """Starts `securefl train --runtime service`, with training.key and members.json here."""
        keys = ["--members", "members.json", "--identity", "training.key", "--port", str(self.port)]
        if self._certificates is not None:
            keys += ["--certificate", str(self._certificates.certificate)]
            keys += ["--certificate-key", str(self._certificates.key)]
        runtime = ["--runtime", "service", "--out", str(out)]
        return self.start(name, "securefl", "train", str(app), *runtime, *keys)

    def _settings(self, name: str, config: Mapping[str, str | bool | float]) -> Path:
        file = self.folder / f"{name}.node.toml"
        file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
        return file

    def run(self, name: str, app: Path) -> "subprocess.Popen[bytes]":
        """Starts a run of an app folder, as `flwr run` does; its log is the run's."""
        return self.start(name, "flwr", "run", str(app), self.name, "--stream")

    def start(self, name: str, *command: str) -> "subprocess.Popen[bytes]":
        """Starts a process of the deployment; its output goes to NAME.log."""
        mark = secrets.token_hex(8)
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(_BIN / command[0]), *command[1:]],
                env={**self._environment, MARK: mark},
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._running[name] = mark, process
        return process

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a process and to all that it started."""
        mark, _ = self._running[name]
        for pid in _marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, name: str) -> None:
        """Ends a process and all that it started, at once and without a farewell."""
        mark, process = self._running[name]
        # A process that was about to start another may have done so meanwhile.
        while _marked(mark):
            self.signal(name, signal.SIGKILL)
            process.poll()
            time.sleep(0.01)
        process.wait()
        del self._running[name]

    def processor_seconds(self, name: str) -> float:
        """What a process, and all that it started, have used of the processor so far."""
        mark, _ = self._running[name]
        return sum(map(_used, _marked(mark)))

    def log(self, name: str) -> str:
        """What a process has said so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        """Ends all processes."""
        for name in list(self._running):
            self.kill(name)


@contextlib.contextmanager
def loopback(folder: Path, certificates: Certificates | None = None) -> Iterator[Loopback]:
    """A deployment whose processes end with the block, also by an error.

    Args:
        folder: empty.
        certificates: see `Loopback`.
    """
    found = Loopback(folder, certificates)
    try:
        yield found
    finally:
        found.close()


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_marked(mark: str) -> None:
    """Ends all processes with this mark, and what they start meanwhile, at once."""
    while found := _marked(mark):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _used(pid: int) -> float:
    """Of a process and its children that have ended."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    # proc(5): utime, stime, cutime and cstime are fields 14 to 17, the first here is the third.
    return sum(map(int, facts[11:15])) / os.sysconf("SC_CLK_TCK")


def _marked(mark: str) -> list[int]:
    """Processes with the mark in their environment; zombies have none."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found
