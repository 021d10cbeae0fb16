"""All parties as processes of one machine, on loopback: for trials, measurements and tests.

Every party has a folder of its own with what it would have on its own machine, and nothing else.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fhe
from fhe.keys import EVALUATION_FILE
from fhe.public_key import PUBLIC_FILE
from secure_fl.crypto.identities import EVALUATOR, QUERIER
from secure_fl.errors import ServiceError
from secure_fl.heads.codes import batched_parameters, rule_parameters
from secure_fl.heads.head import Head, save_head
from secure_fl.heads.manifest import Manifest, save_manifest
from secure_fl.service.members import enrol, make_member_keys

START = 120.0
"""Seconds that a party may take until it works, on a machine with other work."""
PASSPHRASE = "for trials on one machine"
IDENTITY = "identity"


def set_up(
    folder: Path,
    manifest: Manifest,
    heads: Sequence[Head],
    *,
    failure_exponent: int = 128,
    block: int = 32,
    engine: str = "tfhe",
    queriers: Sequence[str] = (QUERIER,),
) -> Manifest:
    """Writes every party's folder; returns the manifest with their keys.

    Args:
        folder: absent or empty.
        manifest: of the federation, without members.
        heads: one a client.
        failure_exponent: tfhe: a decision is wrong by noise with probability at most 2^-this.
        block: tfhe: integers that one call of a compiled function compares.
        engine: of the keys, one of `fhe.ENGINES`.
        queriers: who may ask.
    """
    names = (*manifest.clients, *queriers, EVALUATOR)
    for name in names:
        (folder / name).mkdir(parents=True)
    keys = {name: make_member_keys(folder / name / IDENTITY) for name in names}
    found = enrol(manifest, keys, queriers)
    for name in names:
        save_manifest(folder / name, found)
    if not found.summed:
        parameters: fhe.AnyParameters
        if engine == "bgv":
            parameters = batched_parameters(found)
        else:
            parameters = rule_parameters(found, failure_exponent=failure_exponent, block=block)
        for name in queriers:
            _hand_out_keys(folder, found, name, parameters)
    for head in heads:
        save_head(folder / head.client, head, found)
    return found


def _hand_out_keys(
    folder: Path, manifest: Manifest, querier: str, parameters: fhe.AnyParameters
) -> None:
    """Makes a querier's keys; those of several lie in folders of their names at the others."""
    secret = fhe.generate_keys(parameters)
    own = folder / querier
    fhe.save_secret_keys(own, secret, PASSPHRASE)
    fhe.save_public_key(own, fhe.make_public_key(secret))
    fhe.save_evaluation_keys(own, secret.evaluation)
    of_one = "" if len(manifest.queriers) == 1 else querier
    for name in (*manifest.clients, EVALUATOR):
        (folder / name / of_one).mkdir(exist_ok=True)
        shutil.copyfile(own / PUBLIC_FILE, folder / name / of_one / PUBLIC_FILE)
    shutil.move(own / EVALUATION_FILE, folder / EVALUATOR / of_one / EVALUATION_FILE)


def copy_parties(source: Path, target: Path) -> None:
    """The parties' folders once more, as they were before any party ran."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("state", "*.log"))


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Deployment:
    """Running parties; `close` stops all of them.

    Args:
        folder: as `set_up` made it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports: dict[str, int] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def url(self, name: str = "evaluator") -> str:
        """Where a party listens, running or not; the same after a restart."""
        port = self._ports.setdefault(name, free_port())
        return f"http://127.0.0.1:{port}"

    def start(self, name: str, *options: str) -> None:
        """Starts the evaluator or a client's contributor, and waits until it works.

        Args:
            name: "evaluator" or a client's.
            options: more of the command's.

        Raises:
            ServiceError: it does not, within two minutes.
        """
        self._launch(name, *options)
        self._wait_until_well(name)

    def start_contributors(self, names: Sequence[str], *options: str) -> None:
        """Starts several contributors at once; as `start`."""
        for name in names:
            self._launch(name, *options)
        for name in names:
            self._wait_until_well(name)

    def _launch(self, name: str, *options: str) -> None:
        own = self.folder / name
        port = self.url(name).rpartition(":")[2]
        common = ["--identity", str(own / IDENTITY), "--state", str(own / "state"), "--port", port]
        if name == "evaluator":
            command = ["evaluator", str(own), *common]
        else:
            rest = ["--client", name, "--evaluator", self.url()]
            command = ["contributor", str(own), *self._keys(own), *rest, *common]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*_SECUREFL, "serve", *command, *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_environment(),
            )

    def query(self, queries: Path, *options: str, name: str = QUERIER) -> "subprocess.Popen[bytes]":
        """Starts a querier; its standard output is one JSON object."""
        own = self.folder / name
        files = ["--run", str(own), *self._keys(own), "--identity", str(own / IDENTITY)]
        command = ["query", str(queries), *files, "--evaluator", self.url(), "--json", *options]
        return subprocess.Popen(
            [*_SECUREFL, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**_environment(), "SECUREFL_PASSPHRASE": PASSPHRASE},
        )

    @staticmethod
    def _keys(own: Path) -> list[str]:
        """The rule masked has none."""
        has = (own / PUBLIC_FILE).exists() or any(own.glob(f"*/{PUBLIC_FILE}"))
        return ["--keys", str(own)] if has else []

    def health(self, name: str = "evaluator") -> dict[str, Any] | None:
        """What a party says of itself; None where it does not answer."""
        try:
            with _direct.open(f"{self.url(name)}/health", timeout=10) as response:
                return dict(json.load(response))
        except urllib.error.HTTPError as refusal:
            with refusal:
                return dict(json.load(refusal))
        except OSError:
            return None

    def metrics(self, name: str = "evaluator") -> dict[str, float]:
        """A party's counters by their Prometheus name."""
        with _direct.open(f"{self.url(name)}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {counter: float(value) for counter, value in pairs}

    def kill(self, name: str, with_signal: int = signal.SIGKILL) -> int:
        """Sends a signal to one party and waits for its end; returns its exit code."""
        process = self._running.pop(name)
        process.send_signal(with_signal)
        return process.wait(timeout=300)

    def pid(self, name: str) -> int:
        """A running party's process number."""
        return self._running[name].pid

    def log(self, name: str) -> str:
        """What a party printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        """Stops all parties."""
        for name in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                self.kill(name)

    def _wait_until_well(self, name: str) -> None:
        end = time.monotonic() + START
        while time.monotonic() < end and self._running[name].poll() is None:
            if (self.health(name) or {}).get("status") == "ok":
                return
            time.sleep(0.1)
        raise ServiceError(f"{name} does not start: {self.log(name)[-500:]}")


@contextlib.contextmanager
def deployment(folder: Path) -> Iterator[Deployment]:
    """Parties that are stopped when the block ends."""
    found = Deployment(folder)
    try:
        yield found
    finally:
        found.close()


# The parties are on this machine; a proxy of the environment's has no business there.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_SECUREFL = (sys.executable, "-c", "from cli.main import main; main()")


def _environment() -> dict[str, str]:
    # The package that runs now, wherever it was started.
    path = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
