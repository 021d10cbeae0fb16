"""Results of benchmarks as files: one JSON a benchmark, written whole, read as untrusted data."""

import json
import os
import reprlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks._harness import FORMAT_VERSION, Table
from fhe.envelope import write_atomic
from secure_fl.errors import InputError
from secure_fl.files import read_json_object

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


def measure(
    name: str, options: Sequence[str] = (), *, quick: bool, quiet: bool
) -> tuple[int, dict[str, Any] | None]:
    """Runs a benchmark in a process of its own, so that memory and libraries are its own too.

    Args:
        name: of the module.
        options: its own.
        quick: the short run.
        quiet: no progress on standard error.

    Returns:
        The exit code, and what to save where it is 0.
    """
    command = [sys.executable, "-P", "-m", f"benchmarks.{name}", "--json", *options]
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
    return 0, json.loads(done.stdout)


def file_of(folder: Path, name: str, part: str | None = None) -> Path:
    """FOLDER/NAME.json, or FOLDER/NAME.PART.json of a part of a benchmark."""
    return folder / (f"{name}.json" if part is None else f"{name}.{part}.json")


def save(folder: Path, content: dict[str, Any], part: str | None = None) -> Path:
    """Writes what `measure` returned to its file in the folder, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = file_of(folder, content["benchmark"], part)
    write_atomic(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
    return path


def load_folder(folder: Path) -> dict[str, Result]:
    """All results in a folder by the name of their benchmark, those of its parts together.

    Raises:
        InputError: a `.json` file is not a saved result, or parts do not go together.
    """
    parts: dict[str, dict[str, Result]] = {}
    for path in sorted(folder.glob("*.json")):
        result = load(path)
        parts.setdefault(result.benchmark, {})[path.name] = result
    return {name: _joined(found) for name, found in parts.items()}


def _joined(parts: Mapping[str, Result]) -> Result:
    """One result of the parts of a benchmark, by the names of their files.

    Parameters in which parts differ are left out, so that nothing is judged by them.
    """
    (first_name, first), *others = parts.items()
    if not others:
        return first
    notes = dict.fromkeys(first.notes)
    tables = {each.name: replace(each, rows=list(each.rows)) for each in first.tables}
    for name, part in others:
        if part.quick != first.quick:
            raise InputError(f"{name}: a short run beside a full one, {first_name}; keep one kind")
        for table in part.tables:
            known = tables.setdefault(table.name, replace(table, rows=[]))
            if known.columns != table.columns:
                raise InputError(
                    f"{name}: the columns of {table.name!r} are not those of {first_name}; run"
                    " both by the same version"
                )
            known.rows.extend(table.rows)
        notes |= dict.fromkeys(part.notes)
    common = {
        key: value
        for key, value in first.parameters.items()
        if all(key in each.parameters and each.parameters[key] == value for each in parts.values())
    }
    for name, part in parts.items():
        own = {key: value for key, value in part.parameters.items() if key not in common}
        told = "".join(f", {key} {value}" for key, value in own.items())
        notes[f"{name}: {part.machine}, revision {part.environment.get('revision')}{told}"] = None
    return replace(
        first,
        tables=tuple(tables.values()),
        notes=tuple(notes),
        parameters=common,
        seeds=tuple(sorted({seed for each in parts.values() for seed in each.seeds})),
        seconds=sum(each.seconds for each in parts.values()),
    )


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
    # Results of before this flag have no curves.
    drawn = value.get("drawn", False) is True
    table = Table(str(name), tuple(map(str, value["columns"])), drawn=drawn)
    for row in value["rows"]:
        table.add(*(row[column] for column in table.columns))
    return table
