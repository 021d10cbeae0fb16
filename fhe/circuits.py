"""The compiled functions of a rule, one a level of its knock-out.

Every function takes two (block, digits) arrays of encrypted digits. The compiler is told which
result may become which operand: noise grows from level to level, since a minimum is b plus a table,
and parameters are chosen for the last one.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .digits import Traced, equality, look_up, minimum
from .errors import LibraryError
from .knockout import EQUAL, ONLY, level_name, levels, levels_among
from .library import concrete_fhe, remove_at_exit, signals_kept
from .lwe_layout import check_wires
from .parameters import RuleParameters

Function = Callable[[Traced, Traced], Traced]


def _level(keep: int, base: int) -> Function:
    def smaller(a: Traced, b: Traced) -> Traced:
        return minimum(a, b, keep, base)

    return smaller


def _rule_functions(parameters: RuleParameters) -> dict[str, Callable[..., Traced]]:
    """By name; a last minimum of the tournament selects the class alone: nobody reads the rest."""
    base, packing = parameters.base, parameters.packing
    count = levels(parameters)
    keep = [parameters.number_digits] * count
    if parameters.rule == "tournament":
        if count == 0:
            # The library mishandles an output that no table has touched.
            return {ONLY: lambda a: look_up(lambda digit: digit, a[:, packing.code_digits :], base)}
        keep[-1] = packing.class_digits
    functions: dict[str, Callable[..., Traced]] = {
        level_name(i): _level(kept, base) for i, kept in enumerate(keep)
    }
    if parameters.rule == "paper":
        functions[EQUAL] = lambda a, b: equality(a, b, base)
    return functions


def _wires(parameters: RuleParameters) -> list[tuple[str, str]]:
    """Which function's result may be an operand of which other."""
    names = [level_name(i) for i in range(levels(parameters))]
    wires = list(pairwise(names))
    if parameters.rule == "paper":
        # The minima of the classes wait for the smallest of them.
        last = {levels_among(parameters.contributors) - 1, len(names) - 1}
        wires += [(names[i], EQUAL) for i in last if i >= 0]
    return wires


@lru_cache(maxsize=8)
def compile_rule(parameters: RuleParameters) -> Any:
    """The library's module of a rule; takes a second or two, kept for the life of the process.

    What only encrypts, evaluates or decrypts asks `compiled_rule`, which also keeps it on disk.

    Raises:
        LibraryError: the compiler found no secure parameters, or other ones than asked for.
    """
    shape = (parameters.block, parameters.number_digits)
    failure = 2.0**-parameters.failure_exponent / parameters.lookups
    return compile_functions(
        _rule_functions(parameters), _wires(parameters), shape, parameters.base, failure
    )


def compile_functions(
    functions: Mapping[str, Callable[..., Traced]],
    wires: Sequence[tuple[str, str]],
    shape: tuple[int, int],
    base: int,
    failure: float,
) -> Any:
    """Compiles functions of one or two encrypted arrays, named a and b, under one set of keys.

    Args:
        functions: by name.
        wires: (from, to): a result of the one may be any operand of the other.
        shape: of every operand.
        base: of the digits, 2 or 4.
        failure: probability that noise makes one table look-up wrong.

    Raises:
        LibraryError: the compiler found no secure parameters, or other ones than asked for.
    """
    fhe = concrete_fhe()
    defined, inputs = {}, {}
    for name, function in functions.items():
        names = ["a", "b"][: function.__code__.co_argcount]
        function.__name__ = name
        defined[name] = fhe.function(dict.fromkeys(names, "encrypted"))(function)
        inputs[name] = _inputset(shape, base, len(names))
    wired = {
        fhe.Wire(fhe.Output(defined[source], 0), fhe.Input(defined[target], i))
        for source, target in wires
        for i in (0, 1)
    }
    compiler = fhe.module()(type("Rule", (), {**defined, "composition": fhe.Wired(wired)}))
    configuration = fhe.Configuration(
        p_error=failure,
        # The one strategy that follows noise from function to function.
        parameter_selection_strategy="MULTI",
        loop_parallelize=True,
        compress_evaluation_keys=True,
        dump_artifacts_on_unexpected_failures=False,
    )
    try:
        with signals_kept():
            module = compiler.compile(inputs, configuration)
    except RuntimeError as error:
        raise LibraryError(f"concrete-python: {' '.join(str(error).split())}") from error
    remove_at_exit(module.server)
    check_wires(module.client.specs, wires)
    if module.p_error > failure * (1 + 1e-9):
        raise LibraryError(f"concrete-python: failure {module.p_error} a look-up, asked {failure}")
    return module


def _inputset(
    shape: tuple[int, int], base: int, operands: int
) -> list[tuple[NDArray[np.int64], ...]]:
    """Operands that reach both ends of every intermediate value.

    The compiler takes the width of a table from what it sees here.
    """
    top = base - 1
    ends = [np.zeros(shape, np.int64), np.full(shape, top, np.int64)]
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, base, shape) for _ in range(20)]
    if operands == 1:
        return [(each,) for each in [*ends, *draws]]
    corners = [(a, b) for a in ends for b in ends]
    return [*corners, *zip(draws, draws[::-1], strict=True)]
