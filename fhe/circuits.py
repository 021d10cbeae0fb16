"""The encrypted minimum on base-4 digits, and the tournament on it.

A comparison of digit vectors a and b takes the sign of every digit's difference (a 3-bit table),
then combines the signs in groups of three as 4 x + 2 y + z, whose sign is that of the most
significant non-zero one (a 4-bit table). A minimum then selects every digit with one more 4-bit
table over (a - b + 3) + 7 [a < b]. No table is wider than 4 bits.

Functions are traced on arrays of shape (pairs, digits), so one call compares many pairs and the
library spreads them over the cores.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import LibraryError
from .library import concrete_fhe
from .parameters import RuleParameters

Traced = Any
"""An array of integers, or the library's stand-in for an encrypted one."""

_DIGIT_SPAN = 7
"""Differences of two digits take the values -3..3."""


def _seven_if_negative(value: NDArray[Any]) -> NDArray[Any]:
    return _DIGIT_SPAN * (np.asarray(value) < 0)


def _difference_if_less(value: NDArray[Any]) -> NDArray[Any]:
    value = np.asarray(value)
    return np.where(value >= _DIGIT_SPAN, value - (_DIGIT_SPAN + 3), 0)


def _combine(signs: list[Traced]) -> Traced:
    """7 where the most significant non-zero sign is negative, else 0."""
    fhe = concrete_fhe()

    while True:
        last = len(signs) <= 3
        combined = []
        for start in range(0, len(signs), 3):
            group = signs[start : start + 3]
            if len(group) == 1 and not last:
                combined.append(group[0])
                continue
            total = group[-1]
            for power, sign in enumerate(reversed(group[:-1]), start=1):
                total = total + sign * 2**power
            combined.append(fhe.univariate(_seven_if_negative if last else np.sign)(total))
        if last:
            return combined[0]
        signs = combined


def minimum(a: Traced, b: Traced, keep: int) -> Traced:
    """The last `keep` digits of the smaller of a and b, both of shape (pairs, digits)."""
    fhe = concrete_fhe()

    digits = a.shape[1]
    difference = a - b
    sign = fhe.univariate(np.sign)(difference)
    less = _combine([sign[:, i] for i in range(digits)])
    index = difference[:, digits - keep :] + 3 + less.reshape((a.shape[0], 1))
    return b[:, digits - keep :] + fhe.univariate(_difference_if_less)(index)


def tournament(parameters: RuleParameters) -> Callable[..., Traced]:
    """The rule as a function of one (block, digits) array per contributor.

    Returns the class digits of the smallest packed integer, shape (block, class digits). The last
    minimum selects those alone: nobody reads the others.
    """
    block, packing = parameters.block, parameters.packing

    def rule(*contributions: Traced) -> Traced:
        fhe = concrete_fhe()

        players = len(contributions)
        if players == 1:
            # The library mishandles an output that no table has touched.
            return fhe.univariate(lambda digit: digit)(contributions[0][:, packing.code_digits :])
        field = np.concatenate(contributions, axis=0)
        while players > 1:
            half = players // 2
            keep = packing.class_digits if players == 2 else packing.digits
            winners = minimum(field[: half * block], field[half * block : 2 * half * block], keep)
            odd = players % 2 == 1
            field = np.concatenate((winners, field[2 * half * block :])) if odd else winners
            players -= half
        return field

    return rule


def _named(rule: Callable[..., Traced], names: list[str]) -> Callable[..., Traced]:
    # The compiler reads parameter names off the signature, which must therefore be explicit.
    import inspect

    def named(**arguments: Traced) -> Traced:
        return rule(*(arguments[name] for name in names))

    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names
    ]
    named.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions take attributes
    return named


def _inputset(parameters: RuleParameters) -> list[tuple[NDArray[np.int64], ...]]:
    """Inputs that reach the ends of every intermediate value's range."""
    shape = (parameters.block, parameters.packing.digits)
    count = parameters.contributors
    low, high = np.zeros(shape, np.int64), np.full(shape, 3, np.int64)
    fixed = [tuple([low] * count), tuple([high] * count)]
    turn = [tuple((low, high)[(i >> level) % 2] for i in range(count)) for level in range(8)]
    turn += [tuple((high, low)[(i >> level) % 2] for i in range(count)) for level in range(8)]
    halves = [
        tuple(first if i < count // 2 else second for i in range(count))
        for first, second in ((low, high), (high, low))
    ]
    rng = np.random.default_rng(0)
    random = [tuple(rng.integers(0, 4, shape) for _ in range(count)) for _ in range(30)]
    return [*fixed, *turn, *halves, *random]


@lru_cache(maxsize=8)
def compile_rule(parameters: RuleParameters) -> Any:
    """The library's circuit of a rule; takes seconds, kept for the life of the process.

    Raises:
        LibraryError: the compiler found no secure parameters, or other ones than asked for.
    """
    fhe = concrete_fhe()

    names = [f"contributor_{i}" for i in range(parameters.contributors)]
    configuration = fhe.Configuration(
        p_error=2.0**-parameters.failure_exponent / parameters.lookups,
        loop_parallelize=True,
        compress_evaluation_keys=True,
        compress_input_ciphertexts=True,
        fhe_simulation=True,
        dump_artifacts_on_unexpected_failures=False,
    )
    compiler = fhe.Compiler(
        _named(tournament(parameters), names), dict.fromkeys(names, "encrypted")
    )
    try:
        circuit = compiler.compile(_inputset(parameters), configuration)
    except RuntimeError as error:
        raise LibraryError(f"concrete-python: {' '.join(str(error).split())}") from error
    wanted = 2.0**-parameters.failure_exponent / parameters.lookups
    if circuit.p_error > wanted * (1 + 1e-9):
        raise LibraryError(f"concrete-python: failure {circuit.p_error} a look-up, asked {wanted}")
    return circuit
