"""Results of benchmarks as files: one JSON a benchmark, written whole, read as untrusted data."""

import json
import os
import reprlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._harness import Table
from fhe.envelope import write_atomic
from secure_fl.errors import InputError
from secure_fl.files import read_json_object

FORMAT_VERSION = 1
MAX_BYTES = 64 * 2**20
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Result:
    """One run of a benchmark, read from its file.

    Attributes:
        benchmark: name of the module.
        question: what it answers.
        quick: whether it was the short run.
        tables: the figures.
        notes: remarks.
        parameters: settings.
        seeds: of the run.
        environment: machine, versions and revision.
        seconds: of the whole run.
    """

    benchmark: str
    question: str
    quick: bool
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    parameters: dict[str, Any]
    seeds: tuple[int, ...]
    environment: dict[str, Any]
    seconds: float

    @property
    def machine(self) -> str:
        """Where it was measured, in a few words."""
        facts = self.environment
        memory = facts.get("memory_bytes", 0) / 2**30
        processor, cores = facts.get("processor", "unknown"), facts.get("cores", "?")
        return f"{processor}, {cores} cores, {memory:.0f} GiB"

    def table(self, start: str) -> Table | None:
        """The table whose name starts so, or None."""
        return next((each for each in self.tables if each.name.startswith(start)), None)


def measure(name: str, *, quick: bool, quiet: bool) -> tuple[int, dict[str, Any] | None]:
    """Runs a benchmark in a process of its own, so that memory and libraries are its own too.

    Args:
        name: of the module.
        quick: the short run.
        quiet: no progress on standard error.

    Returns:
        The exit code, and what to save where it is 0.
    """
    command = [sys.executable, "-P", "-m", f"benchmarks.{name}", "--json"]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, *(["--quick"] if quick else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode != 0:
        return done.returncode, None
    return 0, {"format": FORMAT_VERSION, "benchmark": name, **json.loads(done.stdout)}


def save(folder: Path, content: dict[str, Any]) -> Path:
    """Writes what `measure` returned to FOLDER/NAME.json, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{content['benchmark']}.json"
    write_atomic(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
    return path


def load_folder(folder: Path) -> dict[str, Result]:
    """All results in a folder by the name of their benchmark.

    Raises:
        InputError: a `.json` file is not a saved result.
    """
    found = (load(path) for path in sorted(folder.glob("*.json")))
    return {result.benchmark: result for result in found}


def load(path: Path) -> Result:
    """Reads one result.

    Raises:
        InputError: not a saved result, or of another format.
    """
    content = read_json_object(path, MAX_BYTES, "result")
    if content.get("format") != FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {_short(content.get('format'))}, expected {FORMAT_VERSION};"
            " make it with securefl bench run"
        )
    try:
        tables = tuple(_table(name, value) for name, value in content["results"].items())
        return Result(
            benchmark=str(content["benchmark"]),
            question=str(content["question"]),
            quick=bool(content["quick"]),
            tables=tables,
            notes=tuple(map(str, content["notes"])),
            parameters=dict(content["parameters"]),
            seeds=tuple(map(int, content["seeds"])),
            environment=dict(content["environment"]),
            seconds=float(content["seconds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}: not a result of a benchmark ({type(error).__name__}: {_short(str(error))});"
            " make it with securefl bench run"
        ) from error


def _short(value: object) -> str:
    # A file may hold anything; what is quoted of it stays short.
    return reprlib.repr(value)[:60]


def _table(name: str, value: dict[str, Any]) -> Table:
    table = Table(str(name), tuple(map(str, value["columns"])))
    for row in value["rows"]:
        table.add(*(row[column] for column in table.columns))
    return table
