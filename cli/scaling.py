"""Options of `securefl train` that say what is done to every feature."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.output import Output, with_options
from cli.paths import EXISTING_FILE

if TYPE_CHECKING:
    from secure_fl.data import Dataset, ReadOptions, Scaling

_OPTIONS = (
    click.option(
        "--scale", default=1.0, show_default=True, help="Constant factor on the features."
    ),
    click.option(
        "--scaling",
        type=click.Choice(["auto", "moments", "floored", "common", "range", "none"]),
        help="Of every feature before that, from one masked sum: to mean 0 and deviation 1 over all"
        " clients; divided by the median deviation where its own is less; or all by one number. To"
        " [0, 1] by the ranges of --public; or none. Default: auto, for heads the one of the first"
        " three that answers best, for models moments; none where privacy is promised.",
    ),
    click.option(
        "--public",
        type=EXISTING_FILE,
        help="--scaling range: a labelled file of public records, whose ranges are taken.",
    ),
)

moments_option = click.option(
    "--moments-clip",
    metavar="NORM | LOW,HIGH",
    help="--scaling by moments beside --epsilon: public L2 norm of a record, or range of every"
    " feature, to which records are clipped before; or name a file with --public.",
)


def scaling_options(function: Any) -> Any:
    """Adds --scale, --scaling and --public."""
    return with_options(function, _OPTIONS)


MOMENTS = frozenset({"auto", "moments", "floored", "common"})
"""Scalings by means and deviations."""


def clip_for_moments(
    given: str | None,
    scaling: str | None,
    public: Path | None,
    reading: "ReadOptions",
    clients: "Sequence[Dataset]",
) -> Any:
    """What --moments-clip says, or the ranges of --public in its place; None without.

    Args:
        given: --moments-clip, or None.
        scaling: --scaling, or None.
        public: --public, or None.
        reading: how files are read.
        clients: the federation's.
    """
    from cli.trainers import read_test_set
    from secure_fl.data.scaling import ranges_of
    from secure_fl.training.released_scaling import read_moments_clip

    if given is None:
        if public is None or scaling not in MOMENTS:
            return None
        return ranges_of(read_test_set(public, reading, clients[0]).X)
    if public is not None:
        raise click.UsageError("--moments-clip and --public say the same; give one of them")
    return read_moments_clip(given)


def chosen_scaling(
    scaling: str | None,
    public: Path | None,
    reading: "ReadOptions",
    clients: "Sequence[Dataset]",
    promised: bool,
    output: Output,
) -> "Any | Scaling":
    """What the options mean for these clients; says what a default is.

    Args:
        scaling: --scaling, or None.
        public: --public, or None.
        reading: how files are read.
        clients: the federation's.
        promised: whether privacy is promised, by noise in training or in answers.
        output: for remarks.
    """
    from cli.trainers import read_test_set
    from secure_fl.data.scaling import outside, ranges_of
    from secure_fl.training.preparing import DEFAULT_SCALING

    if scaling == "range" and public is None:
        raise click.UsageError("--scaling range needs --public, a file of public records")
    if scaling != "range" and public is not None and not (promised and scaling in MOMENTS):
        raise click.UsageError("--public has no meaning without --scaling range")
    if scaling == "range":
        assert public is not None
        found = ranges_of(read_test_set(public, reading, clients[0]).X)
        for client in clients:
            count = outside(client.X, found)
            if count:
                output.note(
                    f'client "{client.name}": {count:,} of {client.X.size:,} values outside the'
                    f" ranges of {public}; they are scaled alike, to below 0 or above 1"
                )
        return found
    if scaling is None:
        if not promised:
            return DEFAULT_SCALING
        # A schema has said already what becomes of numbers.
        if not clients[0].schema:
            output.note(
                "features are not scaled: privacy is promised; give public ranges (--scaling range"
                " --public FILE) or, beside --epsilon, means under noise of their own (--scaling"
                " moments --moments-clip NORM); --scaling none says so"
            )
        return "none"
    return scaling
