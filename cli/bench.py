"""`securefl bench`: the measurements of `benchmarks/`, one command each."""

import ast
import importlib
import sys
from pathlib import Path

import click

from cli.output import Output, output_options

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "benchmarks"
# opacus installs a package of the same name; ours are the modules that use our frame.
_MARK = "from benchmarks._harness import"


def questions() -> dict[str, str]:
    """What each benchmark asks, by name in alphabetical order; none of them is imported."""
    found = {}
    for path in sorted((ROOT / PACKAGE).glob("[!_]*.py")):
        source = path.read_text(encoding="utf-8")
        if _MARK in source:
            text = ast.get_docstring(ast.parse(source)) or ""
            found[path.stem] = " ".join(text.partition("\n\n")[0].split())
    return found


class BenchmarkGroup(click.Group):
    """`list`, and every benchmark under its own name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """`list` first, then the benchmarks."""
        return [*super().list_commands(ctx), *questions()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports a benchmark when it is asked for."""
        own = super().get_command(ctx, cmd_name)
        return own if own is not None or cmd_name not in questions() else _load(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without importing torch and the compiler for the help of each."""
        with formatter.section("Commands"):
            formatter.write_dl([("list", "Say what each benchmark asks."), *questions().items()])


def _load(name: str) -> click.Command:
    if str(ROOT) not in sys.path[:1]:
        sys.path.insert(0, str(ROOT))
    command = importlib.import_module(f"{PACKAGE}.{name}").main
    assert isinstance(command, click.Command)
    return command


@click.group(cls=BenchmarkGroup)
def bench() -> None:
    """Run a benchmark: `securefl bench NAME [--quick] [--json]`."""


@bench.command(name="list")
@output_options
def list_benchmarks(output: Output) -> None:
    """Say what each benchmark asks."""
    found = questions()
    width = max(map(len, found), default=0)
    lines = [f"{name.ljust(width)}  {question}" for name, question in found.items()]
    output.result({"benchmarks": found}, "\n".join(lines))
