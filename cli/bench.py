"""`securefl bench`: the measurements of `benchmarks/`: run, keep, and put beside the papers."""

import ast
import importlib
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from cli.output import Output, output_options
from cli.paths import ANY_PATH, FILE, FOLDER

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
    """`list`, `run`, `report`, and every benchmark under its own name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands first, then the benchmarks."""
        return [*super().list_commands(ctx), *questions()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports a benchmark when it is asked for."""
        own = super().get_command(ctx, cmd_name)
        return own if own is not None or cmd_name not in questions() else _load(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without importing torch and the compiler for the help of each."""
        own = [
            (name, self.commands[name].get_short_help_str(limit=90))
            for name in sorted(self.commands)
        ]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *questions().items()])


def _module(name: str) -> Any:
    if str(ROOT) not in sys.path[:1]:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module(f"{PACKAGE}.{name}")


def _load(name: str) -> click.Command:
    command = _module(name).main
    assert isinstance(command, click.Command)
    return command


@click.group(cls=BenchmarkGroup)
def bench() -> None:
    """Measure: `securefl bench NAME [--quick] [--json]`, or `bench run` to keep the results."""


@bench.command(name="list")
@output_options
def list_benchmarks(output: Output) -> None:
    """Say what each benchmark asks."""
    found = questions()
    width = max(map(len, found), default=0)
    lines = [f"{name.ljust(width)}  {question}" for name, question in found.items()]
    output.result({"benchmarks": found}, "\n".join(lines))


@bench.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every benchmark, one after the other.")
@click.option("--quick", is_flag=True, help="The short run, under a minute each.")
@click.option(
    "--out",
    default=Path("results"),
    show_default=True,
    type=FOLDER,
    help="Folder of the results, one NAME.json each; an older one is replaced.",
)
@click.option(
    "--part",
    metavar="WORD",
    help="Keep it as NAME.WORD.json: a part of what the benchmark measures, such as one data set."
    " `bench report` puts parts together.",
)
@output_options
def run(
    output: Output,
    names: tuple[str, ...],
    everything: bool,
    quick: bool,
    out: Path,
    part: str | None,
) -> None:
    """Run the benchmarks NAMES, each in a process of its own, and keep their results as JSON.

    What stands after -- are options of a single benchmark, such as
    `bench run fedavgr_tables --part vehicle -- --data vehicle`.
    """
    known = questions()
    split = next((i for i, each in enumerate(names) if each.startswith("-")), len(names))
    names, options = names[:split], names[split:]
    wanted = _wanted(known, names, everything=everything)
    if (options or part is not None) and len(wanted) > 1:
        raise click.UsageError("--part and options after -- are of one benchmark; name one")
    if part is not None and not re.fullmatch(r"[A-Za-z0-9_-]+", part):
        raise click.UsageError(f"--part {part!r}: expected letters, digits, - and _")
    from secure_fl.files import make_folder, prove_writable

    results = _module("_results")
    # All places are tried before the minutes that measuring takes.
    was_there = out.exists()
    make_folder(out)
    for name in wanted:
        prove_writable(results.file_of(out, name, part), 0)
    saved: dict[str, Any] = {}
    failed: dict[str, int] = {}
    for name in wanted:
        output.note(f"{name} ...")
        code, content = results.measure(name, options, quick=quick, quiet=output.quiet)
        if content is None:
            failed[name] = code
            continue
        path = results.save(out, content, part)
        saved[name] = {"file": str(path), "seconds": content["seconds"]}
    lines = [f"{each['file']}: {each['seconds']:.0f} s" for each in saved.values()]
    lines += [f"{name}: failed with exit code {code}" for name, code in failed.items()]
    output.result({"saved": saved, "failed": failed}, "\n".join(lines))
    if not saved and not was_there:
        out.rmdir()
    if failed:
        click.get_current_context().exit(1)


def _wanted(known: Collection[str], names: tuple[str, ...], *, everything: bool) -> list[str]:
    if everything and names:
        raise click.UsageError("--all has no meaning beside names; leave out one")
    wanted = list(known) if everything else list(names)
    if not wanted:
        raise click.UsageError("name a benchmark (securefl bench list), or give --all")
    for name in wanted:
        if name not in known:
            raise click.UsageError(f"no benchmark {name!r}; securefl bench list shows them")
    return wanted


@bench.command()
@click.argument("folder", default=Path("results"), type=ANY_PATH)
@click.option(
    "--out",
    default=Path("benchmarks.html"),
    show_default=True,
    type=FILE,
    help="The page; an older one is replaced.",
)
@output_options
def report(output: Output, folder: Path, out: Path) -> None:
    """Make one page of the results in FOLDER, each table beside the papers' figures."""
    from secure_fl.errors import InputError

    known = questions()
    found = _module("_results").load_folder(folder)
    if not found:
        raise InputError(f"{folder}: holds no result; make some with securefl bench run")
    size = _module("_report").write_report(out, found, known)
    missing = [name for name in known if name not in found]
    output.result(
        {"page": str(out), "bytes": size, "benchmarks": list(found), "not_run": missing},
        f"{out}: {len(found)} benchmarks, {size / 1e3:.0f} kB"
        + (f"; not run: {', '.join(missing)}" if missing else ""),
    )
