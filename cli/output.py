"""How a command speaks: results on standard output, progress on standard error."""

import contextlib
import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import click


class OutputError(RuntimeError):
    """Standard output took no more; the work itself was done."""


def show(text: str, *, newline: bool = True) -> None:
    """Writes to standard output.

    Raises:
        OutputError: it is closed, or what it leads to is full or gone.
    """
    with printing():
        click.echo(text, nl=newline)


@contextmanager
def printing() -> Iterator[None]:
    """Whatever the block writes to standard output is there when it ends.

    Raises:
        OutputError: it is closed, or what it leads to is full or gone.
    """
    try:
        if sys.stdout is None:
            raise OSError("closed")
        yield
        sys.stdout.flush()
    except OSError as error:
        _forget_output()
        raise OutputError(
            f"standard output: the result could not be printed ({error.strerror or error}); what"
            " the command wrote to files is there"
        ) from None


def _forget_output() -> None:
    # What is left in the buffer would fail once more when the process ends, without a line.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@dataclass(frozen=True)
class Output:
    """The two switches every command has.

    Attributes:
        as_json: one JSON object on standard output and nothing else there.
        quiet: no progress and no remarks.
    """

    as_json: bool
    quiet: bool

    @contextmanager
    def progress(self) -> Iterator[Callable[[str, int, int], None]]:
        """A callback (phase, done, total) that draws on standard error, or does nothing."""
        if self.quiet:
            yield lambda phase, done, total: None
            return
        if not sys.stderr.isatty():
            yield _phase_lines()
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            tasks: dict[str, Any] = {}

            def report(phase: str, done: int, total: int) -> None:
                if phase not in tasks:
                    tasks[phase] = bars.add_task(phase, total=total)
                bars.update(tasks[phase], completed=done, total=total)

            yield report

    def note(self, text: str) -> None:
        """A remark for people, on standard error."""
        if not self.quiet:
            click.echo(text, err=True)

    @contextmanager
    def rounds(self) -> Iterator[Callable[[str], None]]:
        """A callback that takes a line a round: hundreds of rounds are some thirty lines.

        Shown are the first ten, of the hundred every tenth, of the thousand every hundredth and so
        on, and the last. The log of the run has all of them.
        """
        heard = 0
        left: str | None = None

        def hear(line: str) -> None:
            nonlocal heard, left
            heard += 1
            left = line
            if heard % 10 ** (len(str(heard)) - 1) == 0:
                self.note(line)
                left = None

        try:
            yield hear
        finally:
            if left is not None:
                self.note(left)

    def result(self, data: dict[str, Any], text: str) -> None:
        """The command's result: `data` for machines, `text` for people."""
        if self.as_json:
            show(json.dumps(data, indent=2, allow_nan=False))
        elif text:
            show(text)

    def table(
        self,
        data: dict[str, Any],
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
    ) -> None:
        """A result that people read as a table."""
        if self.as_json:
            self.result(data, "")
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title, title_justify="left")
        for i, column in enumerate(columns):
            numeric = all(isinstance(row[i], int | float) for row in rows)
            # Whatever is too long goes on in the next line; nothing is cut.
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(_cell, row))
        console = Console(width=_width(), markup=False, highlight=False)
        with console.capture() as drawn:
            console.print(table)
        show(drawn.get(), newline=False)

    def fits(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
        """Whether a table of these columns fits into a line without breaking a name."""
        from rich.cells import cell_len

        cells = [list(columns), *([_cell(cell) for cell in row] for row in rows)]
        # Two blanks and a line beside every column, and one line more.
        widths = [max(map(cell_len, column)) + 3 for column in zip(*cells, strict=True)]
        return sum(widths) + 1 <= _width()


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _width() -> int:
    """Characters of a line: the terminal's, or of a file a page's."""
    import shutil

    terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if terminal else 120


def _phase_lines() -> Callable[[str, int, int], None]:
    """One line when a phase starts, for logs that cannot be drawn over."""
    seen: set[str] = set()

    def report(phase: str, done: int, total: int) -> None:
        if phase not in seen:
            seen.add(phase)
            click.echo(f"{phase} ...", err=True)

    return report


def with_options(command: Any, options: Sequence[Callable[[Any], Any]]) -> Any:
    """A command with options, which its help shows in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def output_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds --json and --quiet and hands the function an `Output` as its first argument."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
    @click.option("--quiet", "-q", is_flag=True, help="No progress and no remarks.")
    @functools.wraps(function)
    def command(as_json: bool, quiet: bool, **arguments: Any) -> None:
        function(Output(as_json, quiet), **arguments)

    return command


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json is among a command's arguments, whatever else is wrong with them."""
    options = itertools.takewhile(lambda argument: argument != "--", arguments)
    return "--json" in options


def show_failure(kind: str, message: str, exit_code: int) -> None:
    """What a command that failed prints for machines, on standard output.

    Args:
        kind: the error's type.
        message: one line.
        exit_code: 1 or 2.
    """
    failure = {"type": kind, "message": " ".join(message.split()), "exit_code": exit_code}
    click.echo(json.dumps({"error": failure}, indent=2))


def human_bytes(count: int) -> str:
    """A size as people read it, in powers of 1000."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def show_classes(
    output: Output,
    found: list[str],
    labels: list[str] | None,
    facts: Mapping[str, Any] = MappingProxyType({}),
    *,
    lines: list[str] | None = None,
    unknown: str | None = None,
) -> None:
    """A class a line, and how many are right where the file has labels.

    Args:
        output: where to.
        found: a class a query.
        labels: of the queries, where they have some.
        facts: more for machines to read.
        lines: what people read of each query; None for its class.
        unknown: the answer that is no class, where there is one.
    """
    data: dict[str, Any] = {"classes": found, **facts}
    if labels is not None:
        # Queries that carry labels are for measuring; 3 and 3.0 are the same class there.
        right = sum(a == b for a, b in zip(found, labels, strict=True))
        data["accuracy"] = right / len(found)
        output.note(f"accuracy against the file's labels: {right}/{len(found)}")
        answered = sum(each != unknown for each in found)
        if answered < len(found):
            data |= {"answered": answered / len(found)}
            output.note(f"answered: {answered}/{len(found)}, the others are {unknown}")
    output.result(data, "\n".join(lines or found))
