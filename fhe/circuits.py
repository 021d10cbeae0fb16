"""The encrypted rules as circuits: the tournament on packed integers, and the paper's own."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .digits import Traced, all_equal, minimum
from .errors import LibraryError
from .library import concrete_fhe, remove_at_exit
from .parameters import RuleParameters


def _smallest(
    field: Traced, players: int, slab: int, base: int, keep_last: int | None = None
) -> Traced:
    """The smallest of `players` slabs of `slab` rows each, in a knock-out of minima.

    `keep_last` is the number of digits that the last minimum selects; None keeps all.
    """
    digits = field.shape[1]
    while players > 1:
        half = players // 2
        keep = keep_last if players == 2 and keep_last is not None else digits
        winners = minimum(field[: half * slab], field[half * slab : 2 * half * slab], keep, base)
        odd = players % 2 == 1
        field = np.concatenate((winners, field[2 * half * slab :])) if odd else winners
        players -= half
    return field


def knockout_sides(players: int) -> list[NDArray[np.bool_]]:
    """For every round of `_smallest`, which players stand on the second side of their match.

    Holding one side at 0 and the other at the top digit drives every difference of that round to
    its end.
    """
    slots = [[i] for i in range(players)]
    rounds = []
    while len(slots) > 1:
        half = len(slots) // 2
        second = np.zeros(players, bool)
        second[[i for slot in slots[half : 2 * half] for i in slot]] = True
        rounds.append(second)
        merged = [slots[i] + slots[half + i] for i in range(half)]
        slots = merged + slots[2 * half :]
    return rounds


def tournament(parameters: RuleParameters) -> Callable[..., Traced]:
    """The rule as a function of one (block, digits) array per contributor.

    Returns the class digits of the smallest packed integer, shape (block, class digits). The last
    minimum selects those alone: nobody reads the others.
    """
    packing = parameters.packing

    def rule(*contributions: Traced) -> Traced:
        if len(contributions) == 1:
            # The library mishandles an output that no table has touched.
            identity = concrete_fhe().univariate(lambda digit: digit)
            return identity(contributions[0][:, packing.code_digits :])
        field = np.concatenate(contributions, axis=0)
        count = len(contributions)
        return _smallest(field, count, parameters.block, parameters.base, packing.class_digits)

    return rule


def paper(parameters: RuleParameters) -> Callable[..., Traced]:
    """The paper's rule (kahm.txt, 3.9): minima over clients for each class, then equalities.

    A function of one (block, classes x digits) array per contributor. Returns Phi* of eq. (106),
    shape (classes, block): 1 for every class that attains the smallest code.
    """
    block, classes, base = parameters.block, parameters.classes, parameters.base
    digits = parameters.packing.code_digits

    def rule(*contributions: Traced) -> Traced:
        rows = [each.reshape((block * classes, digits)) for each in contributions]
        field = rows[0] if len(rows) == 1 else np.concatenate(tuple(rows), axis=0)
        by_class = _smallest(field, len(rows), block * classes, base)
        # (query, class) rows become (class, query), so that classes are slabs of their own.
        by_class = np.transpose(by_class.reshape((block, classes, digits)), (1, 0, 2))
        flat = by_class.reshape((classes * block, digits))
        smallest = _smallest(flat, classes, block, base)
        difference = by_class - smallest.reshape((1, block, digits))
        equal = all_equal(difference.reshape((classes * block, digits)), base)
        return equal.reshape((classes, block))

    return rule


RULES: dict[str, Callable[[RuleParameters], Callable[..., Traced]]] = {
    "tournament": tournament,
    "paper": paper,
}


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
    """Inputs that reach both ends of every intermediate value.

    The compiler takes the width of a table from what it sees here, so a round whose differences
    were never driven to both ends would silently get a table too small.
    """
    shape = (parameters.block, parameters.columns)
    count, classes = parameters.contributors, parameters.classes
    top = parameters.base - 1
    ends = [np.zeros(shape, np.int64), np.full(shape, top, np.int64)]
    found = [tuple([end] * count) for end in ends]
    for second in knockout_sides(count):
        found += [tuple(ends[int(side != flip)] for side in second) for flip in (False, True)]
    if parameters.rule == "paper":
        digits = parameters.packing.code_digits
        for second in knockout_sides(classes):
            row = np.repeat(np.where(second, top, 0), digits)
            found += [tuple([np.tile(each, (shape[0], 1))] * count) for each in (row, top - row)]
    rng = np.random.default_rng(0)
    return found + [tuple(rng.integers(0, top + 1, shape) for _ in range(count)) for _ in range(20)]


@lru_cache(maxsize=8)
def compile_rule(parameters: RuleParameters) -> Any:
    """The library's circuit of a rule; takes seconds to minutes, kept for the life of the process.

    What only encrypts, evaluates or decrypts asks `compiled_rule`, which also keeps it on disk.

    Raises:
        LibraryError: the compiler found no secure parameters, or other ones than asked for.
    """
    names = [f"contributor_{i}" for i in range(parameters.contributors)]
    rule = _named(RULES[parameters.rule](parameters), names)
    failure = 2.0**-parameters.failure_exponent / parameters.lookups
    return compile_circuit(rule, names, _inputset(parameters), failure)


def compile_circuit(
    function: Callable[..., Traced],
    names: list[str],
    inputset: Sequence[tuple[NDArray[np.int64], ...]],
    failure: float,
) -> Any:
    """Compiles a function of encrypted arrays.

    Args:
        function: takes the names as keyword arguments.
        names: of the arguments.
        inputset: arrays that reach both ends of every intermediate value.
        failure: probability that noise makes one table look-up wrong.

    Raises:
        LibraryError: the compiler found no secure parameters, or other ones than asked for.
    """
    fhe = concrete_fhe()
    configuration = fhe.Configuration(
        p_error=failure,
        # All tables of a design are of one width: more parameter sets would only add keys.
        parameter_selection_strategy="MONO",
        loop_parallelize=True,
        compress_evaluation_keys=True,
        dump_artifacts_on_unexpected_failures=False,
    )
    compiler = fhe.Compiler(function, dict.fromkeys(names, "encrypted"))
    try:
        circuit = compiler.compile(inputset, configuration)
    except RuntimeError as error:
        raise LibraryError(f"concrete-python: {' '.join(str(error).split())}") from error
    remove_at_exit(circuit.server)
    if circuit.p_error > failure * (1 + 1e-9):
        raise LibraryError(f"concrete-python: failure {circuit.p_error} a look-up, asked {failure}")
    return circuit
