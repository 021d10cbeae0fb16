"""How integers become operands of the compiled functions, which take blocks of them."""

from collections.abc import Callable, Iterator

import numpy as np

from .knockout import Rows
from .parameters import RuleParameters, sizes_of


def integers_of(digits: Rows, parameters: RuleParameters) -> Rows:
    """What a contributor sent, a row an integer: for every class, and in it for every query.

    Args:
        digits: or their ciphertexts, shape (queries, columns, ...).
        parameters: of the rule.

    Returns:
        Shape (numbers x queries, digits of an integer, ...).
    """
    shape = (len(digits), parameters.numbers, parameters.number_digits, *digits.shape[2:])
    return digits.reshape(shape).swapaxes(0, 1).reshape(-1, *shape[2:])


def call_in_blocks(
    call: Callable[[tuple[Rows, ...]], Rows], block: int, operands: Iterator[tuple[Rows, ...]]
) -> Rows:
    """Calls a function on blocks of rows, whoever's they are: full ones, then smaller ones.

    Args:
        call: from operands of any of the sizes of blocks to as many results.
        block: rows of a full one, at least 1.
        operands: at least one row in all.

    Returns:
        The results, in the order of the rows.
    """
    results = []
    held: tuple[Rows, ...] = ()

    def call_while_filled(size: int) -> None:
        nonlocal held
        while len(held[0]) >= size:
            results.append(call(tuple(each[:size] for each in held)))
            held = tuple(each[size:] for each in held)

    for more in operands:
        held = tuple(map(_joined, held, more)) if held else more
        call_while_filled(block)
    for size in sizes_of(block):
        call_while_filled(size)
    return np.concatenate(results)


def _joined(first: Rows, second: Rows) -> Rows:
    return np.concatenate((first, second)) if len(first) else second
