"""Options of where a party of a network listens."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from cli.output import with_options

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def address_options(port: int) -> Callable[[Any], Any]:
    """Adds where a party listens, by default at that port."""
    options = (
        click.option("--host", default="127.0.0.1", show_default=True),
        click.option("--port", default=port, show_default=True, type=click.IntRange(1, 65535)),
        click.option(
            "--certificate", type=_file, help="PEM file; needed where others can reach HOST."
        ),
        click.option("--certificate-key", type=_file, help="PEM file of its private key."),
        click.option(
            "--insecure", is_flag=True, help="Plain HTTP beyond this machine; not for data."
        ),
    )
    return partial(with_options, options=options)
