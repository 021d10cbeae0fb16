"""What do the defences against parties that cheat cost, beside the version that had none?

Two versions of this repository do the same tasks in turns on one machine, each in a process of its
own that is started once, so that other work on the machine meets both. Processor time is counted,
in one thread, and medians over the rounds are compared. `--before` names a checkout of the earlier
version: `git worktree add /tmp/before COMMIT`.

Known answers, which the service mixes in by default, are not in it: they are more queries of the
same kind, and `docs/service.md` has their share.
"""

import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks._harness import Run, benchmark
from cli.paths import EXISTING_FOLDER

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "benchmarks" / "_defended.py"
ROUNDS = 9


class Version:
    """One version's process.

    Args:
        root: of its checkout.
    """

    def __init__(self, root: Path) -> None:
        variables = {"PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            # Without the program's own folder among the modules: it is of this version.
            [sys.executable, "-P", str(PROGRAM)],
            cwd=root,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tasks: list[str] = json.loads(self._line())

    def seconds(self, task: str) -> float:
        """Processor seconds of a task, done once."""
        assert self._process.stdin is not None
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"the tasks ended with status {self._process.wait()}")
        return line


@benchmark(
    "what do the defences against parties that cheat cost?",
    click.option(
        "--before",
        required=True,
        type=EXISTING_FOLDER,
        help="Checkout of the version to compare with.",
    ),
)
def main(run: Run, before: Path) -> None:
    """Processor time of masked sums and of the encrypted rule's roles, before and now, in turns."""
    rounds = 3 if run.quick else ROUNDS
    run.parameter(rounds=rounds)
    table = run.table(
        "medians of processor time, in turns", ["task", "before s", "now s", "more %", "rounds"]
    )
    with ExitStack() as stack:
        versions = []
        for root in (before.resolve(), ROOT):
            run.progress(f"starting {root}")
            versions.append(Version(root))
            stack.callback(versions[-1].close)
        for task in versions[1].tasks:
            run.progress(task)
            pairs = [[each.seconds(task) for each in versions] for _ in range(rounds)]
            old, new = (statistics.median(column) for column in zip(*pairs, strict=True))
            table.add(task, old, new, 100 * (new / old - 1), rounds)


if __name__ == "__main__":
    main()
