"""`--workers` of `infer` and `serve evaluator`: batches answered by other machines."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.given import refuse_given
from cli.output import with_options
from cli.paths import EXISTING_FILE

if TYPE_CHECKING:
    from secure_fl.service.cluster import Calling, Remote
    from secure_fl.service.slice_job import Dropped

_Command = TypeVar("_Command", bound=Callable[..., Any])

OF_WORKERS = frozenset({"members", "identity", "authority", "insecure", "batch_hours"})
"""Options by which an evaluator's workers are called."""


hours_option = click.option(
    "--batch-hours",
    default=24.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="--workers: that a batch may take them in all; then it ends.",
)


def workers_options(command: _Command) -> _Command:
    """Adds what an evaluator's workers are called with."""
    options = (
        click.option(
            "--workers",
            multiple=True,
            metavar="NAME=URL",
            help="encrypted: machines with `securefl serve worker` that answer; once for each.",
        ),
        click.option(
            "--members",
            type=EXISTING_FILE,
            help='--workers: public keys of "evaluator" and all workers.',
        ),
        click.option(
            "--identity", type=EXISTING_FILE, help="--workers: the evaluator's secret file."
        ),
        click.option(
            "--authority", type=EXISTING_FILE, help="--workers: PEM of who signed certificates."
        ),
        click.option("--insecure", is_flag=True, help="--workers: plain HTTP; not for data."),
        hours_option,
    )
    added: _Command = with_options(command, options)
    return added


def calling_of(
    workers: Sequence[str],
    members: Path | None,
    identity: Path | None,
    authority: Path | None,
    insecure: bool,
    batch_hours: float,
    *,
    theirs: Collection[str] = OF_WORKERS,
) -> "Calling | None":
    """How the workers that were named are called; None where none were.

    Args:
        workers: NAME=URL each.
        members, identity, authority, insecure: as `Calling`.
        batch_hours: that a batch may take.
        theirs: of these options those that have no meaning without workers.

    Raises:
        UsageError: options that do not go together.
    """
    if not workers:
        refuse_given(theirs, "without --workers")
        return None
    if members is None or identity is None:
        needed = " and ".join(f"--{each}" for each in ("members", "identity") if each in theirs)
        raise click.UsageError(f"--workers needs {needed}; all calls are signed")
    from secure_fl.service.extra import check_extra

    check_extra()
    from secure_fl.service.cluster import Calling

    return Calling(
        addresses=tuple(workers),
        members=members,
        identity=identity,
        authority=authority,
        insecure=insecure,
        longest=3600 * batch_hours,
    )


def answered_by(
    workers: "Sequence[Remote]",
    messages: Sequence[Any],
    evaluation: Any,
    public: Any,
    keys: Path,
    progress: Any,
    dropped: "Dropped",
    longest: float,
) -> Any:
    """The answer of workers; what does not belong together is refused before anything is sent.

    Raises:
        ContributionError, InputError: so.
        ServiceError: no worker is left, or the time is over.
    """
    from fhe.evaluator import checked
    from secure_fl.service.cluster import evaluate_on

    ordered = checked(messages, evaluation, public)
    return evaluate_on(workers, ordered, keys, progress=progress, dropped=dropped, longest=longest)
