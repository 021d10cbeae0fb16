"""`securefl infer --workers`: a batch answered by other machines."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.output import with_options

if TYPE_CHECKING:
    from secure_fl.service.cluster import Remote

_Command = TypeVar("_Command", bound=Callable[..., Any])
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


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
            "--members", type=_file, help='--workers: public keys of "evaluator" and all workers.'
        ),
        click.option("--identity", type=_file, help="--workers: the evaluator's secret file."),
        click.option("--authority", type=_file, help="--workers: PEM of who signed certificates."),
        click.option("--insecure", is_flag=True, help="--workers: plain HTTP; not for data."),
    )
    added: _Command = with_options(command, options)
    return added


def remotes(
    workers: Sequence[str],
    members: Path | None,
    identity: Path | None,
    authority: Path | None,
    insecure: bool,
) -> "list[Remote]":
    """The workers that were named; none where none were.

    Raises:
        InputError: a file or an address cannot be used.
    """
    if not workers:
        if members or identity or authority or insecure:
            raise click.UsageError("--members, --identity, --authority, --insecure: need --workers")
        return []
    if members is None or identity is None:
        raise click.UsageError("--workers needs --members and --identity; all calls are signed")
    from secure_fl.service.extra import check_extra

    check_extra()
    from secure_fl.service.cluster import Calling

    calling = Calling(
        addresses=tuple(workers),
        members=members,
        identity=identity,
        authority=authority,
        insecure=insecure,
    )
    return calling.workers()


def answered_by(
    workers: "Sequence[Remote]",
    messages: Sequence[Any],
    evaluation: Any,
    public: Any,
    keys: Path,
    progress: Any,
) -> Any:
    """The answer of workers; what does not belong together is refused before anything is sent.

    Raises:
        ContributionError, InputError: so.
        ServiceError: a worker refuses, or none is left.
    """
    from fhe.evaluator import checked
    from secure_fl.service.cluster import evaluate_on

    ordered = checked(messages, evaluation, public)
    return evaluate_on(workers, ordered, keys, progress=progress)
