"""The command's entry point: which command lives where, and what an error becomes.

Exit codes: 0 done, 1 the work failed, 2 bad usage or bad input.
"""

import contextlib
import importlib
import os
import signal
import sys
from typing import Any, NoReturn

import click

from cli.output import show_failure, wants_json

COMMANDS = {
    "bench": ("cli.bench:bench", "Measure, and put the figures on one page."),
    "data": ("cli.data:data", "Prepare client files: schema, prepare, partition, embed, describe."),
    "decrypt": ("cli.query:decrypt", "Read the classes in an answer."),
    "demo": ("cli.demo:demo", "Real digits, five clients, an evaluator that reads nothing."),
    "doctor": ("cli.doctor:doctor", "Look whether this machine is ready to train over a network."),
    "dp": ("cli.dp:dp", "Differentially private release: release, account, audit."),
    "encrypt": ("cli.query:encrypt", "Encrypt one integer per query and client."),
    "explain": ("cli.living:explain", "Say which records of a client gave an answer."),
    "flower": ("cli.flower:flower", "Train on separate machines with Flower."),
    "forget": ("cli.living:forget", "Take records out of a head, with a signed receipt."),
    "identity": ("cli.identity:identity", "Make a party's keys, and the list of all parties."),
    "infer": ("cli.infer:infer", "Answer a batch: on ciphertexts, masked, or in the clear."),
    "keys": ("cli.keys:keys", "Make, look at and try the keys of the encrypted rule."),
    "members": ("cli.members:members", "Let clients join a federation and leave it."),
    "migrate": ("cli.living:migrate", "Bring heads of earlier versions to this one."),
    "predict": ("cli.trainers:predict", "Classify queries with a trained model."),
    "query": ("cli.ask:query", "Ask the federation over a network."),
    "receipt": ("cli.living:receipt", "Check receipts of erasures."),
    "report": ("cli.report:report", "Make one page of a run for whoever must sign."),
    "serve": ("cli.serve:serve", "Answer encrypted queries over a network."),
    "tune": ("cli.tune:tune", "Choose settings by cross-validation inside the clients."),
    "train": ("cli.train:train", "Train on clients' files and write a run folder."),
    "update": ("cli.living:update", "Add records to a client's head."),
}
"""Where a command is and what it does; it is imported when it is needed: that takes seconds."""

_ERROR_MODULES = (
    *("kahm.errors", "dp.errors", "fhe.errors", "secure_fl.errors"),
    "cli.output",
)
_VERSIONS = ("concrete-python", "opacus", "torch", "numpy", "scipy")


class LazyGroup(click.Group):
    """A group whose commands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing one of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    libraries = ", ".join(f"{name} {version(name)}" for name in _VERSIONS)
    click.echo(f"securefl {version('securefl')} ({libraries})")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    callback=_print_version,
    expose_value=False,
    is_eager=True,
    help="Show this version and those of the libraries that matter.",
)
def securefl() -> None:
    """Private federated classification with encrypted answers.

    Clients train heads on their own files; an untrusted evaluator classifies queries on
    ciphertexts. Start with `securefl demo`.
    """
    _keep_interrupts_to_this_thread()


def _keep_interrupts_to_this_thread() -> None:
    """Imports the libraries that start threads while Ctrl-C is blocked, which threads inherit.

    While concrete-python compiles, whichever thread takes Ctrl-C kills the process. This one blocks
    it meanwhile (`fhe.library.signals_kept`), so no other may be there to take it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        import numpy  # noqa: F401  # for the threads that it starts
        import scipy.linalg  # noqa: F401  # as above
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def exit_code_of(error: Exception) -> int | None:
    """2 for bad input, 1 for work that failed in a known way, None for a defect of ours.

    Only errors of modules loaded so far can have been raised, so none is imported here.
    """
    loaded = [sys.modules[name] for name in _ERROR_MODULES if name in sys.modules]
    kinds = [module.InputError for module in loaded if hasattr(module, "InputError")]
    if isinstance(error, tuple(kinds)):
        return 2
    return 1 if type(error).__module__ in _ERROR_MODULES else None


def _place_error(error: OSError) -> Exception:
    """A file that the operating system refused, as an error of one line; others as they are."""
    if not isinstance(error.filename, str) and error.errno is None:
        return error
    from pathlib import Path

    from secure_fl.files import place_error

    return place_error(Path(error.filename or "standard output or a file"), error)


def _announced() -> dict[Any, int]:
    ledgers = sys.modules.get("dp.ledger")
    return {} if ledgers is None else dict(ledgers.announced_here())


def _spent(since: dict[Any, int]) -> str:
    """What was booked before the work failed: it is spent, and whoever reads must know."""
    if _announced() == since:
        return ""
    try:
        spent = sys.modules["dp.ledger"].spent_here(since)
    except (ValueError, RuntimeError) as error:
        return f"privacy may have been spent before that, and its ledger cannot be read: {error}"
    return f"spent before that: {spent}" if spent else ""


def _reserve_standard_streams() -> None:
    """No file may get the number of a standard stream that is closed: prints would go into it."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def main(arguments: list[str] | None = None) -> Any:
    """Runs the command line and exits.

    With --json a failure is one object on standard output as well: its type, message and exit code.
    """
    as_json = wants_json(sys.argv[1:] if arguments is None else arguments)
    _reserve_standard_streams()
    announced = _announced()
    try:
        # Without its own handling click returns the code of an explicit exit.
        code = securefl.main(args=arguments, prog_name="securefl", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        _fail(as_json, type(error).__name__, error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        spent = _spent(announced)
        message = f"interrupted; nothing was left half-written{f', but {spent}' if spent else ''}"
        _say(message)
        _fail(as_json, "Interrupted", message, 1)
    except Exception as problem:
        known = _place_error(problem) if isinstance(problem, OSError) else problem
        spent, failure = _spent(announced), exit_code_of(known)
        if failure is None and not (spent and isinstance(known, _FAILED)):
            if spent:
                _say(spent)
            if as_json:
                show_failure(type(known).__name__, str(known), 1)
            raise
        what = str(known) if failure is not None else f"{type(known).__name__}: {known}"
        message = f"{what}{f'; {spent}' if spent else ''}"
        _say(f"error: {message}")
        # What was spent was work begun, whatever ended it.
        _fail(as_json, type(known).__name__, message, 1 if spent or failure is None else failure)
    sys.exit(code if isinstance(code, int) else 0)


_FAILED = (ArithmeticError, MemoryError, OSError, RuntimeError, ValueError)
"""Ends of computations; other errors are defects, whose traceback is wanted."""


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(" ".join(line.split()), err=True)


def _fail(as_json: bool, kind: str, message: str, code: int) -> NoReturn:
    if as_json:
        with contextlib.suppress(OSError):
            show_failure(kind, message, code)
    sys.exit(code)


if __name__ == "__main__":
    main()
