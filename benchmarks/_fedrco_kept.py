"""A folder of runs: finished ones as curves, those under way as checkpoints of the federation.

A study that is killed, or cut at a time, goes on from it on a later day to the same numbers but
for seconds. A file is named by its task and holds the settings too: those that changed since are
refused, not silently mixed.
"""

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import click

from benchmarks._fedrco_curves import Curve
from fhe.envelope import write_atomic
from secure_fl.errors import InputError
from secure_fl.files import make_folder, read_json_object

FORMAT = 1
MAX_BYTES = 2**28
"""Of a curve; one with the trajectories of 10 clients over 1,600 rounds has 30 MB."""

RESUME = click.option(
    "--resume",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder that keeps every run: another call with it goes on to the same figures.",
)

Described: TypeAlias = Mapping[str, Any]
"""A run: "task" with its fields, and "settings", of which a file must have the same."""


@dataclass(frozen=True)
class Keep:
    """Where runs are kept, and until when this call may take.

    Attributes:
        folder: of the files; made where it is absent.
        until: a time of `time.time` after which runs are left off between two rounds.
        every: seconds between two checkpoints of a run.
    """

    folder: Path
    until: float = math.inf
    every: float = 180.0

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.time() >= self.until

    def endless(self) -> "Keep":
        """The same folder without an end of time."""
        return replace(self, until=math.inf)

    def curve(self, run: Described) -> Curve | None:
        """Of a finished run; None where there is none.

        Raises:
            InputError: the file is damaged, or of another run or format.
        """
        path = self._path(run)
        if not path.exists():
            return None
        content = read_json_object(path, MAX_BYTES, "kept run")
        if content.get("format") != FORMAT:
            raise InputError(
                f"{path}: not a kept run of format {FORMAT}; delete it, and the run is made anew"
            )
        if content.get("digest") != _digest([content.get("run"), content.get("curve")]):
            raise InputError(
                f"{path}: damaged, its digest is not that of its content; delete it, and the run is"
                " made anew"
            )
        changed = _difference(content["run"], run)
        if changed:
            raise InputError(
                f"{path}: a run of other settings ({changed}); go on with the same, or give another"
                " folder"
            )
        try:
            return Curve.of_json(content["curve"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{path}: not a kept run ({type(error).__name__}); delete it, and the run is made"
                " anew"
            ) from error

    def finish(self, run: Described, curve: Curve) -> None:
        """Keeps a finished run, whole or not at all."""
        make_folder(self.folder)
        found = json.loads(json.dumps(curve.as_json(), allow_nan=False))
        known = json.loads(json.dumps(run))
        content = {"format": FORMAT, "run": known, "digest": _digest([known, found])}
        write_atomic(self._path(run), json.dumps({**content, "curve": found}).encode())

    def checkpoint(self, run: Described) -> Path:
        """The checkpoint of a run under way: the same however many rounds it is to have."""
        make_folder(self.folder)
        endless = {**run, "task": {**run["task"], "rounds": 0}}
        return self._path(endless).with_suffix(".checkpoint")

    def _path(self, run: Described) -> Path:
        task = run["task"]
        words = f"{task['method']} {task['data']} {task['partition']} {task['clients']}"
        slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
        rounds = f"-{task['rounds']}" if task["rounds"] else ""
        return self.folder / f"{slug}-{_digest(task)[:12]}{rounds}.json"


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _difference(found: Described, wanted: Described) -> str:
    """The first setting of which a file has another value, with both; "" where it has none.

    Those that both know are compared: a setting that is new has been its default.
    """
    before, now = ({**run["task"], **run["settings"]} for run in (found, wanted))
    for key in sorted({*before} & {*now}):
        if before[key] != now[key]:
            return f"{key} was {before[key]}, is {now[key]}"
    return ""
