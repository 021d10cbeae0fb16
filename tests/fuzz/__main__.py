"""Fuzzing for as long as you like: python -m tests.fuzz --minutes 60 [--only NAME].

Every parser has a process of its own, with 8 GB of address space, so that one that crashes is a
line of the table. Exits with 1 when an input ended in anything but a result or a typed error.
"""

import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings

import click

from tests.fuzz.inputs import Outcomes, try_inputs
from tests.fuzz.parsers import PARSERS

SPACE = 8 << 30
MOST = 200_000_000


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0), default=1.0, help="In all.")
@click.option("--only", type=click.Choice(list(PARSERS)), help="One parser.")
@click.option("--seed", type=int, default=None, help="Of the changes; the clock's by default.")
@click.option("--seconds", type=float, hidden=True, help="Run here, and print JSON.")
def main(minutes: float, only: str | None, seed: int | None, seconds: float | None) -> None:
    """Feeds changed samples to every parser of foreign bytes and prints what became of them."""
    seed = int(time.time()) if seed is None else seed
    if seconds is not None:
        assert only is not None
        resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
        warnings.simplefilter("ignore")
        found = try_inputs(PARSERS[only], count=None, seconds=seconds, seed=seed)
        print(json.dumps(dataclasses.asdict(found)))
        return
    names = [only] if only else list(PARSERS)
    print(f"seed {seed}")
    columns = ("inputs", "refused", "parsed", "bare", "slowest s", "peak MB")
    print(f"{'parser':42}" + "".join(f"{column:>11}" for column in columns))
    fine = True
    with tempfile.TemporaryDirectory() as cache:
        for name in names:
            fine &= _row(name, 60 * minutes / len(names), seed, cache)
    sys.exit(0 if fine else 1)


def _row(name: str, seconds: float, seed: int, cache: str) -> bool:
    command = [sys.executable, "-m", "tests.fuzz", "--only", name, "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--seconds", str(seconds)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SECUREFL_CACHE": cache},
    )
    if done.returncode:
        print(f"{name:42} crashed, status {done.returncode}: {done.stderr.strip()[-300:]}")
        return False
    found = Outcomes(**json.loads(done.stdout.splitlines()[-1]))
    cells = (found.inputs, found.refused, found.parsed, len(found.bare))
    numbers = "".join(f"{cell:>11,}" for cell in cells)
    print(f"{name:42}{numbers}{found.slowest:>11.3f}{found.peak / 1e6:>11.1f}", flush=True)
    for line in found.bare[:5]:
        print(f"    {line}", flush=True)
    return not found.bare and found.peak <= MOST


if __name__ == "__main__":
    main()
