"""A folder of runs: finished ones as curves, those under way as checkpoints of the federation.

A study that is killed, or cut at a time, goes on from it on a later day to the same numbers but
for seconds. A file is named by its task and holds the settings too: those that changed since are
refused, not silently mixed.
"""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks._fedrco_curves import Curve
from benchmarks._kept import Described, digest, keep, kept, slug
from secure_fl.errors import InputError
from secure_fl.files import make_folder


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
        found = kept(path, run, "curve")
        if found is None:
            return None
        try:
            return Curve.of_json(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{path}: not a kept run ({type(error).__name__}); delete it, and the run is made"
                " anew"
            ) from error

    def finish(self, run: Described, curve: Curve) -> None:
        """Keeps a finished run, whole or not at all."""
        keep(self._path(run), run, "curve", curve.as_json())

    def checkpoint(self, run: Described) -> Path:
        """The checkpoint of a run under way: the same however many rounds it is to have."""
        make_folder(self.folder)
        endless = {**run, "task": {**run["task"], "rounds": 0}}
        return self._path(endless).with_suffix(".checkpoint")

    def _path(self, run: Described) -> Path:
        task = run["task"]
        words = f"{task['method']} {task['data']} {task['partition']} {task['clients']}"
        rounds = f"-{task['rounds']}" if task["rounds"] else ""
        return self.folder / f"{slug(words)}-{digest(task)[:12]}{rounds}.json"
