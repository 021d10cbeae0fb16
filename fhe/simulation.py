"""The rule without encryption: through the same circuit, or in plain arithmetic."""

import numpy as np

from .circuits import compile_rule
from .code import Ints, from_digits, to_digits
from .contributor import padded
from .errors import InputError
from .parameters import RuleParameters


def _packed(codes: Ints, parameters: RuleParameters) -> Ints:
    if codes.ndim != 3 or codes.shape[1] != parameters.contributors:
        raise InputError(
            f"codes: shape {codes.shape}, expected (queries, {parameters.contributors},"
            f" {parameters.classes})"
        )
    return parameters.packing.pack(codes)


def simulate(codes: Ints, parameters: RuleParameters) -> Ints:
    """The classes by the compiled circuit on clear integers.

    Args:
        codes: shape (queries, contributors, classes).
        parameters: of the rule.

    Returns:
        Shape (queries,).
    """
    digits = to_digits(_packed(codes, parameters), parameters.packing.digits)
    circuit = compile_rule(parameters)
    found = []
    for start in range(0, len(digits), parameters.block):
        block = digits[start : start + parameters.block]
        arguments = [padded(block[:, i], parameters.block) for i in range(parameters.contributors)]
        found.append(np.asarray(circuit.simulate(*arguments))[: len(block)])
    return from_digits(np.concatenate(found).astype(np.int64))


def plain(codes: Ints, parameters: RuleParameters) -> Ints:
    """The classes in plain arithmetic; same arguments and result as `simulate`."""
    return parameters.packing.class_of(_packed(codes, parameters).min(axis=1))
