"""The contributor: encrypts one integer per query under the querier's public key."""

import numpy as np

from .code import Ints
from .errors import InputError
from .messages import Contribution
from .public_key import PublicKey, encrypt_digits


def contribute(
    codes: Ints, public: PublicKey, *, contributor: int, name: str, federation: str, batch: str
) -> Contribution:
    """Reduces a contributor's codes to one packed integer per query and encrypts its digits.

    Args:
        codes: the contributor's own, shape (queries, classes), in 0..2^p - 1.
        public: to encrypt under.
        contributor: its position, 0 to Q - 1.
        name: its name.
        federation: fingerprint of the manifest.
        batch: name of the query batch.

    Raises:
        InputError: no query, codes out of range, or a position that is not among the contributors.
        LibraryError: the rule's parameters are not secure or too noisy.
    """
    parameters = public.parameters
    if not 0 <= contributor < parameters.contributors:
        raise InputError(
            f"contributor {name!r}: position {contributor}, the keys are for"
            f" {parameters.contributors} contributors"
        )
    if codes.ndim != 2 or len(codes) == 0:
        raise InputError(f"contributor {name!r}: codes of shape {codes.shape}, expected (q, C)")
    digits = parameters.encode(codes)
    return _encrypted(digits, public, contributor, name, federation, batch)


def neutral(
    queries: int,
    public: PublicKey,
    *,
    contributor: int,
    name: str,
    federation: str,
    batch: str,
) -> Contribution:
    """A contribution that changes no answer, for a contributor who is not there.

    All its digits are the largest, so it is at least every integer that a contributor can send, and
    the smallest of all is the smallest of those that are there. It holds no secret: whoever has
    the public key makes it, the evaluator too.

    Args:
        queries: of the batch, at least 1.
        public: to encrypt under.
        contributor, name, federation, batch: as `contribute`.

    Raises:
        LibraryError: the rule's parameters are not secure or too noisy.
    """
    parameters = public.parameters
    digits = np.full((queries, parameters.columns), parameters.base - 1, np.int64)
    return _encrypted(digits, public, contributor, name, federation, batch)


def _encrypted(
    digits: Ints, public: PublicKey, contributor: int, name: str, federation: str, batch: str
) -> Contribution:
    encrypted = encrypt_digits(digits, public)
    return Contribution(
        parameters=public.parameters,
        key=public.key,
        federation=federation,
        batch=batch,
        queries=len(digits),
        contributor=contributor,
        name=name,
        public=encrypted.public,
        content=encrypted.content,
    )
