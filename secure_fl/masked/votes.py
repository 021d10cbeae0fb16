"""Votes of contributors, added under masks with noise that they draw themselves.

Each contributor votes, for each query, for the class of its smallest code. Its row has a word a
class: one vote, `STEPS` grid steps, at its class, plus its own part of discrete Gaussian noise in
every word. The sum shows how many voted for each class, blurred, and the answer is the class of the
largest count (Papernot et al. 2018, "Scalable private learning with PATE", its noisy maximum, with
the noise of Kairouz, Liu, Steinke 2021 in place of a trusted aggregator's).

What one client's records are decides one vote and no more. So whatever changes in them, one record
or all, the votes of a query move by at most sqrt(2) of a vote in L2 norm: one class loses a vote
and another gains it. Of a sum in which `parts` parts of noise are surely unknown to whoever looks
on, a query costs one Gaussian of noise multiplier `multiplier`, whatever the queries are and
however they depend on earlier answers. Noise of further contributors adds privacy that is not
counted.
"""

import math
import os
from typing import Any, ClassVar, TypeAlias

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from dp import Gaussian, compose
from secure_fl.crypto.keys import Entropy
from secure_fl.errors import InputError
from secure_fl.federation.noises import distributed_multiplier, part_noise
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.parameters import default_threshold
from secure_fl.masked.rows import Ints, Opened, RowCoding, check_codes, rows_in

STEPS = 2**16
"""Grid steps of a vote: what the grid adds to the noise is below a millionth."""
MOST_NOISE = 10_000.0
MOST_ANSWERS = 10**7
"""That are looked for."""


def colluding(contributors: int) -> int:
    """Contributors that may tell whoever opens the sum their own noise: below a third.

    With the default threshold t = floor(2n/3) + 1 they are no more than the 2 t - n - 1 that may
    tell all they know without opening a row.
    """
    return (contributors - 1) // 3


def vote_counts(values: NDArray[Any]) -> Ints:
    """How many contributors vote for each class, shape (queries, classes).

    Args:
        values: codes or measures, shape (queries, contributors, classes).
    """
    votes = values.argmin(axis=2)
    counts: Ints = (votes[:, :, None] == np.arange(values.shape[2])).sum(axis=1)
    return counts


def majority(values: NDArray[Any]) -> Ints:
    """The rule without noise: the class that most contributors vote for, the lowest among ties.

    Args:
        values: codes or measures, shape (queries, contributors, classes).
    """
    return vote_counts(values).argmax(axis=1)


@frozen(kw_only=True)
class VoteCoding:
    """How codes become noisy votes.

    Attributes:
        classes: C, at least 2.
        contributors: that may be in a sum, at least 2.
        noise: standard deviation of the noise in a sum that is surely unknown, in votes, above 0.
        threshold: contributors that are surely in a sum; by default the sum's own default.

    Raises:
        InputError: an attribute out of range, or a threshold that leaves no honest part.
    """

    classes: int
    contributors: int
    noise: float
    threshold: int | None = None
    rule: ClassVar[str] = "votes"
    word_bits: ClassVar[int] = 64

    def __attrs_post_init__(self) -> None:
        if self.classes < 2 or self.contributors < 2:
            raise InputError(
                f"rule votes: {self.classes} classes and {self.contributors} contributors, expected"
                " at least 2 of each"
            )
        if not 0 < self.noise <= MOST_NOISE:
            raise InputError(
                f"answer noise: found {self.noise:g} votes, expected above 0 and at most"
                f" {MOST_NOISE:g} (--answer-noise)"
            )
        if self.parts < 1:
            raise InputError(
                f"quorum: {self.left} of {self.contributors} contributors, of which"
                f" {colluding(self.contributors)} may tell their noise; ask for more (--quorum)"
            )

    @property
    def left(self) -> int:
        """Contributors that are surely in a sum."""
        return default_threshold(self.contributors) if self.threshold is None else self.threshold

    @property
    def parts(self) -> int:
        """Of the noise, that are surely in a sum and unknown to others."""
        return self.left - colluding(self.contributors)

    @property
    def words(self) -> int:
        """Of a row."""
        return self.classes

    @property
    def bytes_a_query(self) -> int:
        """Of one row."""
        return self.words * self.word_bits // 8

    @property
    def part_sigma(self) -> float:
        """Standard deviation of a contributor's own noise, in grid steps."""
        return self.noise * STEPS / math.sqrt(self.parts)

    @property
    def multiplier(self) -> float:
        """Of one Gaussian that tells no less of a client's records than a query's sum does."""
        moved = math.sqrt(2) * STEPS
        most = self.contributors
        return distributed_multiplier(moved, self.part_sigma, self.parts, most, self.classes)

    def answers_within(self, epsilon: float, delta: float) -> int:
        """Queries whose answers together keep a budget, per record added or removed.

        Args:
            epsilon: above 0.
            delta: in (0, 1).
        """

        def spent(queries: int) -> float:
            return compose([], [Gaussian(self.multiplier, steps=queries)], delta).epsilon

        fits, over = 0, 1
        while over <= MOST_ANSWERS and spent(over) <= epsilon:
            fits, over = over, 2 * over
        while over - fits > 1:
            middle = (fits + over) // 2
            fits, over = (middle, over) if spent(middle) <= epsilon else (fits, middle)
        return min(fits, MOST_ANSWERS)

    @property
    def facts(self) -> tuple[float | int, ...]:
        """What contributors of a sum must agree on."""
        return (self.classes, self.contributors, self.noise, self.left, STEPS)

    def pack(self, codes: Ints) -> Ints:
        """A contributor's classes, the lowest among ties, shape (queries,).

        Args:
            codes: shape (queries, classes).

        Raises:
            InputError: another shape.
        """
        check_codes(codes, self.classes)
        return codes.argmin(axis=1)

    def rows(self, codes: Ints, entropy: Entropy = os.urandom) -> Words:
        """Fresh noisy votes, one query after the other, shape (queries * C,).

        Args:
            codes: shape (queries, classes).
            entropy: the operating system's randomness in production.
        """
        chosen = self.pack(codes)
        drawn = part_noise(self.part_sigma).draw(len(chosen) * self.words, entropy)
        found = drawn.reshape(-1, self.words)
        found[np.arange(len(chosen)), chosen] += STEPS
        return found.reshape(-1).view(np.uint64)

    def open(self, total: Words) -> Opened:
        """The class of most votes, and the noisy votes, in sums of rows.

        Args:
            total: sums, one query after the other, shape (queries * C,).

        Raises:
            ProtocolError: words that are no rows of this coding.
        """
        # Modulo 2^64 a sum is the signed number itself: noise and votes are far from its ends.
        signed = rows_in(total, self.words, self.rule).view(np.int64)
        return Opened(signed.argmax(axis=1), votes=signed / STEPS)


Coding: TypeAlias = RowCoding | VoteCoding
"""What contributors send under a rule of sums."""
