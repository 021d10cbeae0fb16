"""The frame every benchmark shares: options, environment facts, tables, real data.

A benchmark is a module with one function, run as `python -m benchmarks.NAME`:

    from benchmarks._harness import Run, benchmark, newsgroups

    @benchmark("how fast is the bank beside its floor?")
    def main(run: Run) -> None:
        run.seeds(0, 1, 2)
        data = newsgroups()
        table = run.table("speed", ["method", "seconds"])
        for name in methods:
            run.progress(f"measuring {name}")
            table.add(name, seconds)
        run.note("the floor is one matrix product")

    if __name__ == "__main__":
        main()

Readable tables go to standard output, progress to standard error. With --json, standard output
holds one JSON object (question, environment, parameters, tables, notes) and nothing else.
"""

import functools
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np

from benchmarks._data import (
    DataMissingError,
    Split,
    cifar10_long_tail,
    digits,
    newsgroups,
    shared_data,
)
from benchmarks._environment import environment
from cli.main import exit_code_of
from cli.output import OutputError, printing, show_failure

__all__ = [
    "DataMissingError",
    "Run",
    "Split",
    "Table",
    "benchmark",
    "cifar10_long_tail",
    "digits",
    "environment",
    "newsgroups",
    "paired",
    "peak_memory",
    "shared_data",
    "spread",
    "timed",
]

Cell: TypeAlias = str | int | float | bool | None

COUNT = click.IntRange(1)
"""Of rounds, seeds and processes."""
WORKERS = click.option("--workers", type=COUNT, default=2, show_default=True, help="Processes.")


def _number_of_minutes(value: str) -> float:
    minutes = float(value)
    if not 0 < minutes < math.inf:
        raise ValueError
    return minutes


MINUTES = click.types.FuncParamType(_number_of_minutes)
MINUTES.name = "minutes above 0"

# ---------------------------------------------------------------------------------------- tables


@dataclass
class Table:
    """Rows of one result.

    Attributes:
        name: a title; also the key in the JSON.
        columns: one name a column.
        rows: one list of cells a row; a cell is a string, a number, a bool or None.
        drawn: points of curves: saved and drawn on the report's page, and printed nowhere.
    """

    name: str
    columns: tuple[str, ...]
    rows: list[list[Cell]] = field(default_factory=list)
    drawn: bool = False

    def add(self, *cells: Any) -> None:
        """Appends one row.

        Args:
            cells: one for each column; numpy scalars become Python numbers.

        Raises:
            ValueError: another number of cells than of columns.
        """
        if len(cells) != len(self.columns):
            raise ValueError(
                f"table {self.name!r}: {len(cells)} cells for {len(self.columns)} columns"
            )
        self.rows.append([_plain(cell) for cell in cells])

    def as_json(self) -> dict[str, Any]:
        """The table as JSON types: columns, and one object a row."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"columns": list(self.columns), "rows": rows, "drawn": self.drawn}

    def print(self) -> None:
        """Prints to standard output, numbers right-aligned with 4 significant digits."""
        from rich.console import Console
        from rich.table import Table as RichTable

        table = RichTable(title=self.name, title_justify="left")
        for i, column in enumerate(self.columns):
            numeric = all(not isinstance(row[i], str) for row in self.rows)
            table.add_column(column, justify="right" if numeric else "left")
        for row in self.rows:
            table.add_row(*(_shown(cell) for cell in row))
        # A pipe has no width; 80 columns would fold wide tables.
        width = None if sys.stdout.isatty() else 160
        Console(width=width, markup=False, highlight=False).print(table)


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and sample standard deviation as text, e.g. `79.1 ± 0.2`; `79.1` for one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {float(np.std(values, ddof=1)):.{digits}f}"


def paired(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """t and two-sided p of a mean difference of 0; None for one value or equal ones."""
    from scipy.stats import ttest_1samp

    if len({float(each) for each in differences}) < 2:
        return None, None
    found = ttest_1samp(differences, 0.0)
    return float(found.statistic), float(found.pvalue)


def _plain(cell: Any) -> Cell:
    value = cell.item() if isinstance(cell, np.generic) else cell
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        # JSON has no NaN or infinity.
        return value if math.isfinite(value) else str(value)
    raise TypeError(f"a table cell must be a string, a number or None, not {type(cell).__name__}")


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


# ------------------------------------------------------------------------------------------- run


FORMAT_VERSION = 1
"""Of what `--json` prints."""


@dataclass
class Run:
    """What a benchmark is handed.

    Attributes:
        name: of its module.
        quick: finish in under a minute: fewer seeds, settings or rows.
        as_json: print one JSON object to standard output and nothing else there.
    """

    name: str
    quick: bool
    as_json: bool
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seed_list: list[int] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def table(self, name: str, columns: Sequence[str]) -> Table:
        """Starts a table; it is shown when the benchmark ends."""
        table = Table(name, tuple(columns))
        self.tables.append(table)
        return table

    def points(self, name: str, columns: Sequence[str]) -> Table:
        """Starts a table of the points of curves; see `Table.drawn`."""
        table = self.table(name, columns)
        table.drawn = True
        return table

    def note(self, text: str) -> None:
        """Adds a remark shown below the tables, e.g. what was not run and why."""
        self.notes.append(text)

    def seeds(self, *seeds: int) -> tuple[int, ...]:
        """Records the seeds that the run uses and hands them back."""
        self.seed_list.extend(seed for seed in seeds if seed not in self.seed_list)
        return seeds

    def parameter(self, **values: Any) -> None:
        """Records settings, e.g. clients=100."""
        self.parameters.update(values)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def progress(self, text: str) -> None:
        """One line to standard error with the seconds since the start."""
        print(f"[{self.elapsed:6.1f} s] {text}", file=sys.stderr, flush=True)

    def as_dict(self, question: str) -> dict[str, Any]:
        """Everything the run found, as JSON types: what `securefl bench report` reads."""
        return {
            "format": FORMAT_VERSION,
            "benchmark": self.name,
            "question": question,
            "quick": self.quick,
            "parameters": self.parameters,
            "seeds": self.seed_list,
            "environment": environment(),
            "seconds": round(self.elapsed, 3),
            "peak_memory_bytes": peak_memory(),
            "results": {table.name: table.as_json() for table in self.tables},
            "notes": self.notes,
        }

    def show(self, question: str) -> None:
        """Prints the run to standard output."""
        if self.as_json:
            json.dump(self.as_dict(question), sys.stdout, indent=2, allow_nan=False)
            print()
            return
        for table in self.tables:
            if not table.drawn:
                table.print()
        for note in self.notes:
            print(f"- {note}")
        facts = environment()
        versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
        print(
            f"machine: {facts['processor']}, {facts['cores']} cores, {_gib(facts['memory_bytes'])}"
        )
        print(f"versions: {versions}")
        seeds = ", ".join(map(str, self.seed_list)) or "none"
        print(f"seeds: {seeds}; git revision: {facts['revision'] or 'unknown'}")


def benchmark(
    question: str, *options: Callable[[Any], Any]
) -> Callable[[Callable[..., None]], click.Command]:
    """Makes a command with --quick and --json of a function of a `Run`.

    Args:
        question: one line: what the benchmark answers.
        options: further `click.option`s; their values reach the function by keyword.

    Returns:
        A decorator. The command fails as `securefl` does: with one line on standard error, with
        --json one object on standard output, and 2 for bad input, absent data among it, or 1.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        # Of the file: where it is run as a program its module is called __main__.
        name = Path(function.__code__.co_filename).stem

        @functools.wraps(function)
        def command(quick: bool, as_json: bool, **more: Any) -> None:
            run = Run(name=name, quick=quick, as_json=as_json)
            try:
                function(run, **more)
                with printing():
                    run.show(question)
            except Exception as error:
                code = 2 if isinstance(error, DataMissingError) else exit_code_of(error)
                if code is None:
                    raise
                click.echo(f"error: {error}", err=True)
                if as_json and not isinstance(error, OutputError):
                    show_failure(type(error).__name__, str(error), code)
                raise SystemExit(code) from None

        common = [
            click.option("--quick", is_flag=True, help="Finish in under a minute."),
            click.option(
                "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
            ),
        ]
        wrapped: Callable[..., Any] = command
        for option in (*options, *common):
            wrapped = option(wrapped)
        return click.command(help=(function.__doc__ or question).strip())(wrapped)

    return decorate


def timed(function: Callable[[], Any], *, repeats: int = 3) -> tuple[float, Any]:
    """Best wall time of several calls.

    Args:
        function: called without arguments.
        repeats: at least 1; the best of them is the least disturbed by other work.

    Returns:
        Seconds of the fastest call, and the last call's result.
    """
    best = math.inf
    result = None
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def peak_memory(whose: int = resource.RUSAGE_SELF) -> int:
    """Largest resident memory of this process so far, in bytes; or of any that it waited for."""
    peak = resource.getrusage(whose).ru_maxrss
    # Linux counts kibibytes, macOS bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def _gib(count: int) -> str:
    return f"{count / 2**30:.0f} GiB"
