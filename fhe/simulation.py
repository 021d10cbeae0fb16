"""The rule without encryption: through the same circuit, or in plain arithmetic."""

import numpy as np

from .circuits import compile_rule
from .code import Ints
from .errors import InputError
from .parameters import RuleParameters


def _check(codes: Ints, parameters: RuleParameters) -> None:
    if codes.ndim != 3 or codes.shape[1] != parameters.contributors:
        raise InputError(
            f"codes: shape {codes.shape}, expected (queries, {parameters.contributors},"
            f" {parameters.classes})"
        )


def simulate(codes: Ints, parameters: RuleParameters) -> Ints:
    """The classes by the compiled circuit on clear integers.

    Args:
        codes: shape (queries, contributors, classes).
        parameters: of the rule.

    Returns:
        Shape (queries,).
    """
    _check(codes, parameters)
    sent = [parameters.encode(codes[:, i]) for i in range(parameters.contributors)]
    circuit = compile_rule(parameters)
    found = []
    for start in range(0, len(codes), parameters.block):
        block = [digits[start : start + parameters.block] for digits in sent]
        output = circuit.simulate(*(padded(digits, parameters.block) for digits in block))
        found.append(parameters.decode(np.asarray(output))[: len(block[0])])
    return np.concatenate(found)


def plain(codes: Ints, parameters: RuleParameters) -> Ints:
    """The classes in plain arithmetic; same arguments and result as `simulate`."""
    _check(codes, parameters)
    packing = parameters.packing
    return packing.class_of(packing.pack(codes).min(axis=1))


def padded(block: Ints, length: int) -> Ints:
    """A block with rows of zeros up to the circuit's length; their answers are never read."""
    return np.concatenate([block, np.zeros((length - len(block), block.shape[1]), np.int64)])
