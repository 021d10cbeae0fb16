"""The compiled functions of a rule: its minimum and its last step, for blocks of several sizes.

Every function takes two (block, digits) arrays of encrypted digits. All levels of a knock-out share
one function, since one set of parameters serves all of them: the compiler picks it for operands as
noisy as the last level's. They are given to it as results of a function of their own, which takes
as many minima in a row and is never run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .digits import Traced, base_of, exchange, largest_shown, look_up, minimum, not_less
from .errors import LibraryError
from .knockout import EQUAL, LAST, MINIMUM, ONLY, function_name, levels
from .library import concrete_fhe, remove_at_exit, signals_kept
from .lwe_layout import check_results
from .parameters import RuleParameters

NOISE = "noise"
_NOISE_DIGITS = 2
"""A minimum of two digits is as noisy as one of many."""


@dataclass(frozen=True)
class Circuit:
    """A function to compile.

    Attributes:
        trace: of one or two encrypted arrays, named a and b.
        rows: integers of an operand.
        ordered: whether the compiler is shown a >= b only, digit by digit; see digits.py.
    """

    trace: Callable[..., Traced]
    rows: int = 1
    ordered: bool = False


def _circuits(parameters: RuleParameters) -> dict[str, Circuit]:
    """The functions that are run, by kind, for blocks of one row."""
    packing, radices, width = parameters.packing, parameters.radices, parameters.width
    found = {}
    if levels(parameters) > (parameters.rule == "tournament"):
        found[MINIMUM] = Circuit(
            lambda a, b: minimum(a, b, radices, len(radices), width), ordered=True
        )
    if parameters.rule == "paper":
        # A class's smallest code, a, is at least the smallest of all, b.
        found[EQUAL] = Circuit(lambda a, b: not_less(b, a, width))
    elif parameters.contributors == 1:
        # The library mishandles an output that no table has touched.
        same = list(range(parameters.base)) + [0] * (2**width - parameters.base)
        found[ONLY] = Circuit(lambda a: look_up(same, a[:, packing.code_digits :]))
    else:
        # The last minimum selects the class alone: nobody reads the rest.
        kept = packing.class_digits
        found[LAST] = Circuit(lambda a, b: minimum(a, b, radices, kept, width), ordered=True)
    return found


def noisy(minima: int, width: int) -> Circuit:
    """Gives a result as noisy as that of so many minima in a row, at least 1."""
    radices = (base_of(width),) * _NOISE_DIGITS

    def trace(a: Traced, b: Traced) -> Traced:
        a, b = a[:, -_NOISE_DIGITS:], b[:, -_NOISE_DIGITS:]
        for _ in range(minima):
            a, b = exchange(a, b, radices, _NOISE_DIGITS, width)
        return b

    return Circuit(trace, ordered=True)


@lru_cache(maxsize=8)
def compile_rule(parameters: RuleParameters) -> Any:
    """The library's module of a rule; takes a second or two, kept for the life of the process.

    What only encrypts, evaluates or decrypts asks `compiled_rule`, which also keeps it on disk.

    Raises:
        LibraryError: the compiler found no secure parameters, or other ones than asked for.
    """
    kinds = _circuits(parameters)
    functions = {
        function_name(kind, size): replace(circuit, rows=size)
        for kind, circuit in kinds.items()
        for size in parameters.sizes
    }
    wires = []
    if MINIMUM in kinds:
        # The paper's equality takes the last minimum's result, the tournament's last step is one.
        minima = levels(parameters) - (LAST in kinds)
        wires = [(NOISE, name) for name in functions]
        functions[NOISE] = noisy(minima, parameters.width)
    failure = 2.0**-parameters.failure_exponent / parameters.lookups
    largest = largest_shown(parameters.radices, parameters.width)
    module = compile_functions(functions, wires, largest, failure)
    results = [function_name(MINIMUM, size) for size in parameters.sizes if MINIMUM in kinds]
    check_results(module.client.specs, results)
    return module


def compile_functions(
    functions: Mapping[str, Circuit],
    wires: Sequence[tuple[str, str]],
    largest: Sequence[int],
    failure: float,
) -> Any:
    """Compiles functions of encrypted arrays under one set of keys.

    Args:
        functions: by name.
        wires: (from, to): parameters are picked for operands as noisy as the results of the one in
            each place of the other.
        largest: value of every digit of an integer that the compiler is shown.
        failure: probability that noise makes one table look-up wrong.

    Raises:
        LibraryError: the compiler found no secure parameters, or other ones than asked for.
    """
    fhe = concrete_fhe()
    defined, inputs = {}, {}
    for name, circuit in functions.items():
        trace = circuit.trace
        names = ["a", "b"][: trace.__code__.co_argcount]
        # A function of its own, since the library takes its name.
        trace = FunctionType(trace.__code__, trace.__globals__, name, None, trace.__closure__)
        defined[name] = fhe.function(dict.fromkeys(names, "encrypted"))(trace)
        inputs[name] = _inputset(circuit, np.array(largest), len(names))
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
    if module.p_error > failure * (1 + 1e-9):
        raise LibraryError(f"concrete-python: failure {module.p_error} a look-up, asked {failure}")
    return module


def _inputset(
    circuit: Circuit, largest: NDArray[np.int64], operands: int
) -> list[tuple[NDArray[np.int64], ...]]:
    """Operands up to the largest digits, both ends among them.

    The compiler takes the width of a value from what it sees here, or from the table it goes to.
    """
    shape = (circuit.rows, len(largest))
    ends = [np.zeros(shape, np.int64), np.broadcast_to(largest, shape)]
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, largest + 1, shape) for _ in range(20)]
    if operands == 1:
        return [(each,) for each in [*ends, *draws]]
    pairs = [*((a, b) for a in ends for b in ends), *zip(draws, draws[::-1], strict=True)]
    return [(np.maximum(a, b), np.minimum(a, b)) if circuit.ordered else (a, b) for a, b in pairs]
