"""The rules as knock-outs: which pairs of integers meet, level by level.

A rule is the same whether its integers are ciphertexts, clear digits in the simulated circuit or
anything else that a `Run` can compare; it knows nothing of encryption.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Protocol, TypeVar

from .parameters import RuleParameters

V = TypeVar("V")
"""One operand of a compiled function: the digits of one integer for a block of queries."""

ONLY = "only"
EQUAL = "equal"


class Run(Protocol[V]):
    """Calls a compiled function on every tuple of operands, and says how many there will be."""

    def __call__(self, name: str, calls: int, operands: Iterator[tuple[V, ...]], /) -> list[V]:
        """The results in the order of the operands."""


def level_name(level: int) -> str:
    """The compiled minimum of a level, from 0."""
    return f"level_{level}"


def first_name(parameters: RuleParameters) -> str:
    """The compiled function that takes what contributors sent."""
    return level_name(0) if levels(parameters) else ONLY


def last_name(parameters: RuleParameters) -> str:
    """The compiled function whose results are the answer."""
    if parameters.rule == "paper":
        return EQUAL
    return level_name(levels(parameters) - 1) if levels(parameters) else ONLY


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
    numbers = parameters.contributors * parameters.numbers
    minima = max(1, numbers - 1)
    equalities = parameters.classes if parameters.rule == "paper" else 0
    return parameters.blocks(queries) * (minima + equalities)


def rule_outputs(
    parameters: RuleParameters, integers: Callable[[int], Sequence[V]], blocks: int, run: Run[V]
) -> list[V]:
    """Runs the rule.

    Args:
        parameters: of the rule.
        integers: what a contributor sent, by its position, asked once: an operand for every block
            of queries, in the paper's rule for every class and in it every block.
        blocks: of queries.
        run: calls a compiled function.

    Returns:
        Tournament: the class digits of the smallest packed integer, one operand a block. Paper's
        rule: Phi* of eq. (106), for every class, in it for every block, 1 where the class attains
        the smallest code.
    """
    if parameters.rule == "paper":
        return _paper(parameters, integers, blocks, run)
    if parameters.contributors == 1:
        return run(ONLY, blocks, ((each,) for each in integers(0)))
    return _knockout(parameters.contributors, integers, blocks, 0, run)


def _paper(
    parameters: RuleParameters, integers: Callable[[int], Sequence[V]], blocks: int, run: Run[V]
) -> list[V]:
    """kahm.txt, 3.9: minima over clients for each class, then over classes, then equalities."""
    classes = parameters.classes
    by_class = _knockout(parameters.contributors, integers, classes * blocks, 0, run)

    def of_class(c: int) -> Sequence[V]:
        return by_class[c * blocks : (c + 1) * blocks]

    smallest = _knockout(classes, of_class, blocks, levels_among(parameters.contributors), run)
    return run(EQUAL, len(by_class), zip(by_class, smallest * classes, strict=True))


def _knockout(
    players: int, integers: Callable[[int], Sequence[V]], width: int, level: int, run: Run[V]
) -> list[V]:
    """The smallest of the players' integers, each of `width` operands.

    Who has no partner goes to the next level. Integers are asked for when they play, so that no
    more than half of the first level is in memory at once.
    """
    if players == 1:
        return list(integers(0))
    half = players // 2
    pairs = chain.from_iterable(
        zip(integers(i), integers(half + i), strict=True) for i in range(half)
    )
    won = run(level_name(level), half * width, pairs)
    field = [won[i * width : (i + 1) * width] for i in range(half)]
    field += [list(integers(i)) for i in range(2 * half, players)]
    return _knockout(len(field), field.__getitem__, width, level + 1, run)
