"""How the digits that a contributor sends become operands of the compiled functions."""

from typing import TypeVar

import numpy as np

from .parameters import RuleParameters

T = TypeVar("T", np.int64, np.uint64)


def operands(
    rows: np.ndarray[tuple[int, ...], np.dtype[T]], parameters: RuleParameters
) -> list[np.ndarray[tuple[int, ...], np.dtype[T]]]:
    """For every integer of a query, and in it for every block of queries, one operand.

    Args:
        rows: digits, or their ciphertexts: shape (queries, columns, ...).
        parameters: of the rule.

    Returns:
        Arrays (block, digits, ...); the last block is filled up with zeros, whose answers are never
        read.
    """
    p = parameters
    padded = np.zeros((p.blocks(len(rows)) * p.block, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    split = padded.reshape(-1, p.block, p.numbers, p.number_digits, *rows.shape[2:])
    return [split[b, :, n] for n in range(p.numbers) for b in range(len(split))]
