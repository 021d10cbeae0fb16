"""Integers as rows of words whose sum shows the smallest of them and nothing else.

A contributor packs, for each query, its smallest code and that code's class into one integer
m = code * C + class, below M = 2^p * C. Its row has M words: zero below m, independent and uniform
from m on. Added modulo 2^w, the rows of all contributors give zero below the smallest integer m*
of all, since each of them is zero there, and from m* on words that are independent and uniform,
since each has a uniform one of the contributor that holds m* in it, which nobody else's words
depend on.

So a sum has the distribution of *one* row of m*: `rows_of(m*)` is the simulator. Whoever opens the
sum can make all that it sees from the answer alone, and learns of no integer but the smallest, not
even how many contributors hold it. The same goes for whoever knows some contributors' rows, with
the smallest integer of the others in the place of m*.

The answer is the place of the first word that is not zero. It is wrong where the word at m* happens
to be zero: with a probability of 2^-w a query, whatever the integers are.
"""

import os
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from secure_fl.crypto.keys import Entropy
from secure_fl.errors import InputError, ProtocolError
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.masks import add_masks

Ints = NDArray[np.int64]

MOST_WORDS = 2**22
"""Words of one query, 32 MiB: what a contributor and the sum hold of it at once."""
SEED = 32
"""Bytes of a key of the words' keystream, AES-256-CTR, as of the masks."""


@frozen
class Opened:
    """What sums of rows show, query by query.

    Attributes:
        classes: of the smallest code, or of most votes, the lowest among ties, shape (queries,).
        codes: the smallest code, in 0..2^p - 1, shape (queries,); none of votes.
        votes: noisy votes, shape (queries, classes), of the rule votes alone.
    """

    classes: Ints
    codes: Ints = field(factory=lambda: np.empty(0, np.int64))
    votes: NDArray[np.float64] | None = None

    @classmethod
    def joined(cls, parts: Sequence["Opened"]) -> "Opened":
        """Several sums' queries, one after the other."""
        votes = [each.votes for each in parts if each.votes is not None]
        return cls(
            np.concatenate([each.classes for each in parts]),
            np.concatenate([each.codes for each in parts]),
            np.concatenate(votes) if votes else None,
        )


def check_codes(codes: Ints, classes: int) -> None:
    """Refuses a contributor's codes that are not one a query and class.

    Raises:
        InputError: another shape.
    """
    if codes.ndim != 2 or codes.shape[1] != classes:
        raise InputError(
            f"codes: shape {codes.shape}, expected (queries, {classes}): a code a class"
        )


def rows_in(total: Words, words: int, rule: str) -> Words:
    """A sum, query by query, shape (queries, words).

    Raises:
        ProtocolError: words that are no whole rows.
    """
    if len(total) % words:
        raise ProtocolError(f"rule {rule}: a sum of {len(total)} words, expected rows of {words}")
    return total.reshape(-1, words)


@frozen
class RowCoding:
    """How codes become rows.

    Attributes:
        bits: p of the codes, 1 to 16.
        classes: C, at least 2.
        word_bits: w, 64 or 32.

    Raises:
        InputError: an attribute out of range, or rows of more words than are offered.
    """

    bits: int
    classes: int
    word_bits: int = 64
    rule: ClassVar[str] = "masked"

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.bits <= 16:
            raise InputError(f"rule masked: codes of {self.bits} bits, expected 1 to 16")
        if self.classes < 2:
            raise InputError(f"rule masked: {self.classes} classes, expected at least 2")
        if self.word_bits not in (32, 64):
            raise InputError(f"rule masked: words of {self.word_bits} bits, expected 64 or 32")
        if self.words > MOST_WORDS:
            raise InputError(
                f"rule masked: {self.classes} classes and {self.bits}-bit codes make rows of"
                f" {self.words:,} words a query, expected at most {MOST_WORDS:,}; take fewer bits,"
                " or rule tournament"
            )

    @property
    def words(self) -> int:
        """M, words of a row."""
        return self.classes << self.bits

    @property
    def facts(self) -> tuple[float | int, ...]:
        """What contributors of a sum must agree on."""
        return (self.bits, self.classes, self.word_bits)

    @property
    def bytes_a_query(self) -> int:
        """Of one row."""
        return self.words * self.word_bits // 8

    def pack(self, codes: Ints) -> Ints:
        """A contributor's integers m, shape (queries,).

        Args:
            codes: shape (queries, classes), in 0..2^p - 1.

        Raises:
            InputError: another shape, or a code out of range.
        """
        check_codes(codes, self.classes)
        if codes.size and not 0 <= codes.min() <= codes.max() < 2**self.bits:
            raise InputError(
                f"codes: found {codes.min()} to {codes.max()}, expected 0 to {2**self.bits - 1}"
            )
        packed: Ints = (codes.astype(np.int64) * self.classes + np.arange(self.classes)).min(axis=1)
        return packed

    def rows_of(self, packed: Ints, entropy: Entropy = os.urandom) -> Words:
        """Fresh rows of packed integers, one after the other, shape (queries * M,).

        The words come from a keystream of their own that no other call shares, and are drawn below
        the integer too before they are set to zero: the time taken does not depend on it.

        Args:
            packed: in 0..M - 1, shape (queries,).
            entropy: 32 bytes are taken; the operating system's randomness in production.
        """
        flat = np.zeros(len(packed) * self.words, np.dtype(f"u{self.word_bits // 8}"))
        add_masks(flat, [entropy(SEED)], [])
        flat.reshape(-1, self.words)[np.arange(self.words) < packed[:, None]] = 0
        return flat

    def rows(self, codes: Ints, entropy: Entropy = os.urandom) -> Words:
        """Fresh rows of a contributor's codes; as `pack` and `rows_of`."""
        return self.rows_of(self.pack(codes), entropy)

    def open(self, total: Words) -> Opened:
        """The smallest code and its class in sums of rows.

        Args:
            total: sums, one query after the other, shape (queries * M,).

        Raises:
            ProtocolError: words that are no rows of this coding, or a sum without a word that is
                not zero, which no contributor that followed the rule leaves.
        """
        found = rows_in(total, self.words, self.rule) != 0
        empty = np.flatnonzero(~found.any(axis=1))
        if len(empty):
            raise ProtocolError(
                f"rule masked: the sum of query {empty[0]} is zero everywhere, so no contributor"
                " sent a row by the rule; trust no answer of this batch"
            )
        packed = found.argmax(axis=1).astype(np.int64)
        return Opened(packed % self.classes, packed // self.classes)
