"""The rules as knock-outs: which pairs of integers meet, level by level.

A rule is the same whether its integers are ciphertexts or the clear digits of the simulated
functions: arrays whose first axis is integers, which a `Run` compares row by row.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .parameters import RuleParameters

Rows = NDArray[Any]
"""Integers, shape (integers, digits, ...)."""
MINIMUM, LAST, ONLY, EQUAL = "minimum", "last", "only", "equal"
"""Kinds of compiled functions."""


class Run(Protocol):
    """Calls a compiled function on operands, and says how many rows there will be."""

    def __call__(
        self, kind: str, level: int, rows: int, operands: Iterator[tuple[Rows, ...]], /
    ) -> Rows:
        """The results, in the order of the operands' rows."""


def function_name(kind: str, size: int) -> str:
    """The compiled function for blocks of so many integers."""
    return f"{kind}_{size}"


def last_kind(parameters: RuleParameters) -> str:
    """The compiled function whose results are the answer."""
    if parameters.rule == "paper":
        return EQUAL
    return LAST if parameters.contributors > 1 else ONLY


def levels_among(players: int) -> int:
    """Levels of a knock-out: ceil(log2 players)."""
    return (players - 1).bit_length()


def levels(parameters: RuleParameters) -> int:
    """Levels of the whole rule."""
    among_contributors = levels_among(parameters.contributors)
    if parameters.rule == "paper":
        return among_contributors + levels_among(parameters.classes)
    return among_contributors


def calls_of(parameters: RuleParameters, queries: int) -> int:
    """Calls of compiled functions that a batch takes."""
    if parameters.rule == "paper":
        by_class = parameters.classes * queries
        minima = _calls_among(parameters.contributors, by_class, parameters)
        minima += _calls_among(parameters.classes, queries, parameters)
        return minima + len(parameters.blocks(by_class))
    if parameters.contributors == 1:
        return len(parameters.blocks(queries))
    return _calls_among(parameters.contributors, queries, parameters)


def _calls_among(players: int, width: int, parameters: RuleParameters) -> int:
    total = 0
    while players > 1:
        total += len(parameters.blocks(players // 2 * width))
        players -= players // 2
    return total


def rule_outputs(
    parameters: RuleParameters, integers: Callable[[int], Rows], queries: int, run: Run
) -> Rows:
    """Runs the rule.

    Args:
        parameters: of the rule.
        integers: what a contributor sent, by its position, asked once: a row a query, in the
            paper's rule for every class and in it every query.
        queries: of the batch.
        run: calls a compiled function.

    Returns:
        Tournament: the class digits of the smallest packed integer, a row a query. Paper's rule:
        Phi* of eq. (106), for every class, in it for every query, 1 where the class attains the
        smallest code.
    """
    if parameters.rule == "paper":
        return _paper(parameters, integers, queries, run)
    if parameters.contributors == 1:
        return run(ONLY, 0, queries, iter([(integers(0),)]))
    return _knockout(parameters.contributors, integers, queries, 0, LAST, run)


def smallest(players: int, integers: Callable[[int], Rows], width: int, run: Run) -> Rows:
    """The smallest of the players' integers, each of `width` rows, with all its digits."""
    return _knockout(players, integers, width, 0, MINIMUM, run)


def _paper(
    parameters: RuleParameters, integers: Callable[[int], Rows], queries: int, run: Run
) -> Rows:
    """kahm.txt, 3.9: minima over clients for each class, then over classes, then equalities."""
    classes = parameters.classes
    by_class = _knockout(parameters.contributors, integers, classes * queries, 0, MINIMUM, run)

    def of_class(c: int) -> Rows:
        return by_class[c * queries : (c + 1) * queries]

    level = levels_among(parameters.contributors)
    smallest = _knockout(classes, of_class, queries, level, MINIMUM, run)
    repeated = np.concatenate([smallest] * classes)
    return run(EQUAL, levels(parameters), len(by_class), iter([(by_class, repeated)]))


def _knockout(
    players: int, integers: Callable[[int], Rows], width: int, level: int, final: str, run: Run
) -> Rows:
    """The smallest of the players' integers, each of `width` rows; `final` is the final's kind.

    Who has no partner goes to the next level. Integers are asked for when they play, so that of
    the first level only half, its winners, is in memory at once.
    """
    if players == 1:
        return integers(0)
    half = players // 2
    pairs = ((integers(i), integers(half + i)) for i in range(half))
    won = run(final if players == 2 else MINIMUM, level, half * width, pairs)
    field = [won[i * width : (i + 1) * width] for i in range(half)]
    field += [integers(i) for i in range(2 * half, players)]
    return _knockout(len(field), field.__getitem__, width, level + 1, final, run)
