"""The rule without encryption: through the same compiled functions, or in plain arithmetic."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from .batched.clear import simulate_batched
from .batched.parameters import BatchedParameters
from .circuits import compile_rule
from .code import Ints
from .errors import InputError
from .knockout import Rows, function_name, rule_outputs
from .operands import call_in_blocks, integers_of
from .parameters import RuleParameters


def _check(codes: Ints, parameters: RuleParameters | BatchedParameters) -> None:
    if codes.ndim != 3 or codes.shape[1] != parameters.contributors:
        raise InputError(
            f"codes: shape {codes.shape}, expected (queries, {parameters.contributors},"
            f" {parameters.classes})"
        )


def simulate(codes: Ints, parameters: RuleParameters | BatchedParameters) -> Ints:
    """The classes by the engine's own circuit on clear integers.

    Args:
        codes: shape (queries, contributors, classes).
        parameters: of the rule.

    Returns:
        Shape (queries,).
    """
    if isinstance(parameters, BatchedParameters):
        _check(codes, parameters)
        return simulate_batched(codes, parameters)
    return parameters.decode([simulate_outputs(codes, parameters)], len(codes))


def simulate_outputs(codes: Ints, parameters: RuleParameters) -> Ints:
    """What the rule's compiled functions give for clear integers, before it is decoded.

    Args:
        codes: shape (queries, contributors, classes).
        parameters: of the rule.

    Returns:
        As `rule_outputs`.
    """
    _check(codes, parameters)
    module = compile_rule(parameters)

    def integers(contributor: int) -> Ints:
        return integers_of(parameters.encode(codes[:, contributor]), parameters)

    def call(kind: str, block: tuple[Rows, ...]) -> Rows:
        function = getattr(module, function_name(kind, len(block[0])))
        return np.asarray(function.simulate(*block))

    def run(kind: str, _level: int, _rows: int, operands: Iterator[tuple[Rows, ...]], /) -> Rows:
        return call_in_blocks(partial(call, kind), parameters.block, operands)

    return rule_outputs(parameters, integers, len(codes), run)


def plain(codes: Ints, parameters: RuleParameters | BatchedParameters) -> Ints:
    """The classes in plain arithmetic; same arguments and result as `simulate`."""
    _check(codes, parameters)
    packing = parameters.packing
    return packing.class_of(packing.pack(codes).min(axis=1))
