"""How integers become operands of the compiled functions, which take blocks of them."""

from collections.abc import Callable, Iterator

import numpy as np

from .knockout import Rows
from .parameters import RuleParameters


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
    """Calls a function of `block` rows as often as the operands' rows need, whoever's they are.

    The last block is filled up with zeros, whose results are dropped.

    Args:
        call: from operands of `block` rows to as many results.
        block: at least 1.
        operands: at least one row in all.

    Returns:
        The results, in the order of the rows.
    """
    results = []
    held: tuple[Rows, ...] = ()
    for more in operands:
        held = tuple(map(_joined, held, more)) if held else more
        while len(held[0]) >= block:
            results.append(call(tuple(each[:block] for each in held)))
            held = tuple(each[block:] for each in held)
    used = len(held[0])
    if used:
        results.append(call(tuple(_filled(each, block) for each in held))[:used])
    return np.concatenate(results)


def _joined(first: Rows, second: Rows) -> Rows:
    return np.concatenate((first, second)) if len(first) else second


def _filled(rows: Rows, block: int) -> Rows:
    return np.concatenate((rows, np.zeros((block - len(rows), *rows.shape[1:]), rows.dtype)))
