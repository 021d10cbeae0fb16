"""Which options the command line says, and those that have no meaning there."""

from collections.abc import Iterable

import click
from click.core import ParameterSource


def was_given(parameter: str) -> bool:
    """Whether the command line says it, rather than a default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.COMMANDLINE


def refuse_given(parameters: Iterable[str], why: str) -> None:
    """An option that has no meaning there could only mislead: refuse it.

    Args:
        parameters: by their names in Python.
        why: what it has no meaning for, e.g. "for --method krr" or "without --epsilon".
    """
    for parameter in click.get_current_context().command.params:
        if parameter.name in parameters and was_given(parameter.name):
            raise click.UsageError(f"{parameter.opts[0]} has no meaning {why}")
