"""The contributor: encrypts one integer per query."""

import numpy as np

from .code import Ints
from .errors import InputError
from .keys import SecretKeys
from .messages import Contribution


def contribute(
    codes: Ints, keys: SecretKeys, *, contributor: int, name: str, federation: str, batch: str
) -> Contribution:
    """Reduces a contributor's codes to one packed integer per query and encrypts its digits.

    Args:
        codes: the contributor's own, shape (queries, classes), in 0..2^p - 1.
        keys: to encrypt under.
        contributor: its position, 0 to Q - 1.
        name: its name.
        federation: fingerprint of the manifest.
        batch: name of the query batch.

    Raises:
        InputError: no query, codes out of range, or a position that is not among the contributors.
    """
    parameters = keys.parameters
    if not 0 <= contributor < parameters.contributors:
        raise InputError(
            f"contributor {name!r}: position {contributor}, the keys are for"
            f" {parameters.contributors} contributors"
        )
    if codes.ndim != 2 or len(codes) == 0:
        raise InputError(f"contributor {name!r}: codes of shape {codes.shape}, expected (q, C)")
    digits = parameters.encode(codes)
    others: list[None] = [None] * parameters.contributors
    blocks = []
    for start in range(0, len(digits), parameters.block):
        arguments: list[Ints | None] = list(others)
        arguments[contributor] = padded(digits[start : start + parameters.block], parameters.block)
        encrypted = keys.client.encrypt(*arguments)
        value = encrypted if parameters.contributors == 1 else encrypted[contributor]
        blocks.append(value.serialize())
    return Contribution(
        parameters=parameters,
        key=keys.evaluation.fingerprint,
        federation=federation,
        batch=batch,
        queries=len(codes),
        blocks=tuple(blocks),
        contributor=contributor,
        name=name,
    )


def padded(block: Ints, length: int) -> Ints:
    """A block with rows of zeros up to the circuit's length; their answers are never read."""
    return np.concatenate([block, np.zeros((length - len(block), block.shape[1]), np.int64)])
