"""Types what a page says, as the parties of a consortium, each in a home folder of its own.

    python -m tests.walk

A line of the page above a block says whose terminal it is, and readers do not see it:

    <!-- on: north, south; stays as node; ends client -->

Each of these parties types the block, with its own name in place of the first one's. What `stays`
runs on under its name, until a block `ends` it by Ctrl+C or the page is over. All machines are this
one, so that there is a table of what is typed otherwise, and nothing else is:

    | the page            | here                                                   |
    | ------------------- | ------------------------------------------------------ |
    | NAME.example:PORT   | localhost, and a free port for each of that machine's  |
    | DNS:NAME.example    | DNS:localhost, in requests for certificates            |
    | 0.0.0.0             | 127.0.0.1                                              |
    | --port PORT         | the same, of the machine where it is typed             |
    | scp FILES NAME:PATH | cp to that party's home                                |
    | ~                   | the party's home, where it also types                  |
"""

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen

from secure_fl.demo.flower_parties import MARK, free_port, kill_marked
from tests.cli.command import hear_interrupts

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = ("deploy.md", "service.md")
"""The second goes on where the first ends."""
CLIENTS = ("north", "south", "west")
ASKED = ("0", "1", "1", "0")
"""Classes of the records that the querier asks about."""
LONGEST = 600.0
"""Seconds for a block; Flower is slow on a loaded machine."""
_MARKED = re.compile(r"<!-- on: (?P<on>[\w, ]+?)(?P<rest>(?:; \w[\w ]*)*) -->")
_SHELL = """
scp() {
  local target="${@: -1}"
  cp -r "${@:1:$#-1}" "$HOMES/${target%%:*}/${target#*:}"
}
"""


@frozen
class Typed:
    """A block of a page.

    Attributes:
        text: as the page has it.
        line: where its fence opens, from 1.
        on: the parties that type it; the text is written for the first one.
        stays: under which name it runs on; None for a block that comes to an end.
        ends: name of what is ended first; None for nothing.
    """

    text: str
    line: int
    on: tuple[str, ...]
    stays: str | None = None
    ends: str | None = None


def is_walked(before: str) -> bool:
    """Whether the line above a block says who types it."""
    return _MARKED.fullmatch(before.strip()) is not None


def blocks_of(page: Path) -> list[Typed]:
    """The blocks that parties type, in order."""
    found, lines = [], page.read_text(encoding="utf-8").splitlines()
    for place, line in enumerate(lines):
        marked = _MARKED.fullmatch(line)
        if marked is None:
            continue
        assert lines[place + 1] == "```sh", f"{page}, line {place + 2}: no block follows"
        end = lines.index("```", place + 2)
        words = dict(each.split(" ", 1) for each in marked["rest"].split("; ")[1:])
        stays = words.get("stays")
        found.append(
            Typed(
                "\n".join(lines[place + 2 : end]),
                place + 2,
                tuple(marked["on"].split(", ")),
                None if stays is None else stays.removeprefix("as "),
                words.get("ends"),
            )
        )
    return found


@frozen
class _Running:
    process: "subprocess.Popen[bytes]"
    log: Path


@frozen
class Walk:
    """Parties and what runs in their terminals.

    Attributes:
        folder: of their homes.
        say: receives what is typed.
    """

    folder: Path
    say: Callable[[str], None] = print
    _mark: str = field(factory=lambda: secrets.token_hex(8))
    _ports: dict[tuple[str, int], int] = field(factory=dict)
    _exported: dict[str, dict[str, str]] = field(factory=dict)
    _running: dict[tuple[str, str], _Running] = field(factory=dict)

    def home(self, party: str) -> Path:
        """Where a party types."""
        found = self.folder / f"{party}.example"
        found.mkdir(exist_ok=True)
        return found

    def type(self, block: Typed) -> str:
        """Has each of its parties type a block; what the last of them was told.

        Raises:
            AssertionError: a command failed, or what should stay ended.
        """
        told = ""
        if block.ends is not None:
            for party in block.on:
                self._end(party, block.ends)
        for party in block.on:
            text = re.sub(rf"\b{block.on[0]}\b", party, block.text)
            self.say("\n".join(f"{party}$ {line}" for line in text.splitlines()))
            if block.stays is None:
                told = self._run(party, text, block)
            else:
                self._start(party, text, block.stays)
        if block.stays is not None:
            for party in block.on:
                self._wait_for(party, block)
        return told

    def check(self) -> None:
        """Raises AssertionError where something that should stay has ended."""
        for (party, name), found in self._running.items():
            assert found.process.poll() is None, f"{party}, {name}: {_read(found.log)}"

    def close(self) -> None:
        """Ends all that runs."""
        kill_marked(self._mark)

    def _run(self, party: str, text: str, block: Typed) -> str:
        done = subprocess.run(
            **self._shell(party, text),
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
        self.say(done.stdout + done.stderr)
        logs = "".join(f"\n{key}: {_read(each.log)}" for key, each in self._running.items())
        assert done.returncode == 0, f"line {block.line}, {party}: {done.stdout}{done.stderr}{logs}"
        exported = re.findall(r'^export (\w+)="?([^"\n]*)"?$', text, re.MULTILINE)
        self._exported.setdefault(party, {}).update(exported)
        return done.stdout

    def _start(self, party: str, text: str, name: str) -> None:
        log = self.home(party) / f"{name}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                **self._shell(party, text),
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A shell in the background would hand on that Ctrl+C is not heard.
                preexec_fn=hear_interrupts,
            )
        self._running[party, name] = _Running(process, log)

    def _shell(self, party: str, text: str) -> dict[str, Any]:
        """The party's shell, as `subprocess` takes it."""
        return {
            "args": ["bash", "-euo", "pipefail", "-c", _SHELL + self._here(party, text)],
            "cwd": self.home(party),
            "env": self._environment(party),
            "stdin": subprocess.DEVNULL,
        }

    def _wait_for(self, party: str, block: Typed) -> None:
        """Until it listens where it should, as a person looks before going on."""
        assert block.stays is not None
        found = self._running[party, block.stays]
        end = time.monotonic() + LONGEST
        for port in map(int, re.findall(r"--port (\d+)", block.text)):
            while not _listens(self._port(party, port)):
                assert found.process.poll() is None, f"line {block.line}: {_read(found.log)}"
                assert time.monotonic() < end, f"line {block.line}: {_read(found.log)}"
                time.sleep(0.2)

    def _end(self, party: str, name: str) -> None:
        """Ctrl+C in its terminal, which must do."""
        found = self._running.pop((party, name))
        self.say(f"{party}$ ^C  ({name})")
        os.killpg(found.process.pid, signal.SIGINT)
        code = found.process.wait(timeout=LONGEST)
        assert code == 0, f"{party}, {name}: exit code {code}: {_read(found.log)}"

    def _here(self, party: str, text: str) -> str:
        """A block by the table above."""
        text = re.sub(r"DNS:[\w$]+\.example", "DNS:localhost", text)
        text = re.sub(
            r"\b(\w+)\.example:(\d+)",
            lambda found: f"localhost:{self._port(found[1], int(found[2]))}",
            text,
        )
        text = re.sub(
            r"--port (\d+)", lambda found: f"--port {self._port(party, int(found[1]))}", text
        )
        return text.replace("0.0.0.0", "127.0.0.1")

    def _port(self, machine: str, port: int) -> int:
        if (machine, port) not in self._ports:
            self._ports[machine, port] = free_port()
        return self._ports[machine, port]

    def _environment(self, party: str) -> dict[str, str]:
        caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return {
            **os.environ,
            MARK: self._mark,
            "HOME": str(self.home(party)),
            "HOMES": str(self.folder),
            # Circuits that are compiled already need not be compiled for every home.
            "XDG_CACHE_HOME": caches,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            # gRPC would call this machine's own ports through the environment's proxy.
            "no_grpc_proxy": "localhost",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **self._exported.get(party, {}),
        }


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _read(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


def write_records(walk: Walk) -> None:
    """What the parties bring along: two classes that lie apart, and questions about them."""
    source = np.random.default_rng(0)
    middles = source.normal(size=(2, 6)) * 3.0

    def drawn(classes: np.ndarray) -> np.ndarray:
        return middles[classes] + source.normal(size=(len(classes), 6))

    for party in CLIENTS:
        labels = np.arange(60) % 2
        np.savez(walk.home(party) / f"{party}.npz", X=drawn(labels), y=labels.astype(str))
    np.savez(walk.home("querier") / "queries.npz", X=drawn(np.array(ASKED, int)))


@contextlib.contextmanager
def walking(folder: Path, say: Callable[[str], None] = print) -> Iterator[Walk]:
    """Parties with their records, whose processes end with the block."""
    found = Walk(folder, say)
    try:
        write_records(found)
        yield found
    finally:
        found.close()


def walk_through(walk: Walk, page: str) -> str:
    """Types a page; what the last command printed."""
    told, blocks = "", blocks_of(DOCS / page)
    # Files are sent to machines that have not typed anything yet.
    for party in {party for block in blocks for party in block.on}:
        walk.home(party)
    for block in blocks:
        start = time.monotonic()
        told = walk.type(block)
        walk.check()
        walk.say(f"# {page}, line {block.line}: {time.monotonic() - start:.0f} s")
    return told


def main() -> None:
    """Walks and shows what is typed and told."""
    with tempfile.TemporaryDirectory(prefix="securefl-") as name, walking(Path(name)) as walk:
        for page in PAGES:
            walk_through(walk, page)


if __name__ == "__main__":
    main()
