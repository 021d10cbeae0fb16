"""The rule `masked` with all parties in one process: real messages of real secure sums.

The parties are those of `secure_fl.federation.secagg`: contributors that mask, a server that adds
and passes sealed messages on. One process that holds everything hides nothing from anybody; it
shows that the protocol gives the plain rule's answers, and what they cost.
"""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from secure_fl.crypto.keys import Entropy
from secure_fl.errors import InputError, QuorumError
from secure_fl.federation.participation import Stage
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.local import Observer
from secure_fl.federation.secagg.parameters import SESSION, default_threshold
from secure_fl.federation.secure import SecureAggregation, SecureSum
from secure_fl.masked.agreement import Told
from secure_fl.masked.rows import Ints, Opened, RowCoding
from secure_fl.masked.votes import Coding, VoteCoding
from secure_fl.progress import Progress, quiet

MOST_WORDS_A_SUM = 2**19
"""Words of one sum, 4 MiB at 64 bits: a longer batch is several sums, so that memory is bounded."""


@frozen
class MaskedAnswer:
    """The answers of a batch.

    Attributes:
        opened: what the sums show, shape (queries,) each.
        contributors: whose rows are in the sums.
        bytes_a_contributor: that the busiest of them sent.
    """

    opened: Opened
    contributors: tuple[str, ...]
    bytes_a_contributor: int

    @property
    def classes(self) -> Ints:
        """Shape (queries,); the lowest class wins a tie."""
        return self.opened.classes

    @property
    def codes(self) -> Ints:
        """The smallest code of all, shape (queries,): the answer's distance; none of votes."""
        return self.opened.codes


class _FreshRows(Mapping[str, Words]):
    """Contributors' rows, made when they are masked and kept nowhere: no word serves twice."""

    def __init__(
        self, codes: Mapping[str, Ints], part: slice, coding: Coding, entropy: Entropy
    ) -> None:
        self._codes, self._part, self._coding, self._entropy = codes, part, coding, entropy

    def __getitem__(self, name: str) -> Words:
        return self._coding.rows(self._codes[name][self._part], self._entropy)

    def __contains__(self, name: object) -> bool:
        return name in self._codes

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def __len__(self) -> int:
        return len(self._codes)


class MaskedRule:
    """The global rule as secure sums of masked rows, all parties in one process.

    There is no key that opens a contribution. Whoever opens a sum learns the smallest code and its
    class (see `secure_fl.masked.rows`), also together with contributors; that nobody opens more
    holds while fewer than 2 t - n of the n contributors collude with the server, where t is the
    threshold.

    Attributes:
        names: of the contributors.
        coding: of their codes.
        threshold: contributors that must be left at every step.
    """

    def __init__(
        self,
        *,
        contributors: int | Sequence[str],
        classes: int,
        bits: int = 8,
        threshold: int | None = None,
        degree: int | None = None,
        word_bits: int = 64,
        noise: float | None = None,
        entropy: Entropy = os.urandom,
        observe: Observer | None = None,
    ) -> None:
        """Begins a session: fresh identities, in which no sum is made twice.

        Args:
            contributors: their names, or how many, at least 2.
            classes: C, at least 2.
            bits: p of the codes, 1 to 16.
            threshold: contributors that must be left; above half of them, by default the least
                number above two thirds.
            degree: contributors that each masks and shares secrets with; all others by default. A
                ring of an even number is cheaper, and holds for each neighbourhood by itself (see
                `secure_fl.federation.ring_degree`).
            word_bits: 64, or 32: an answer is wrong with probability 2^-64 or 2^-32.
            noise: standard deviation, in votes, of the noise that is surely in a sum: votes are
                added in place of smallest codes (see `secure_fl.masked.votes`). On a ring parts of
                a sum may come to light with too little of it, so all mask with all.
            entropy: where secrets come from; the operating system in production.
            observe: sees every message, for tests and transcripts.

        Raises:
            InputError: an argument out of range.
        """
        if isinstance(contributors, int):
            contributors = [f"contributor {i}" for i in range(contributors)]
        self.names = tuple(contributors)
        self.threshold = default_threshold(len(self.names)) if threshold is None else threshold
        self.coding: Coding
        if noise is None:
            self.coding = RowCoding(bits, classes, word_bits)
        else:
            _refuse_for_votes(degree, word_bits)
            self.coding = VoteCoding(
                classes=classes,
                contributors=len(self.names),
                noise=noise,
                threshold=self.threshold,
            )
        self._entropy = entropy
        options = SecureAggregation(bits=word_bits, degree=degree, observe=observe)
        self._sums = SecureSum(self.names, options, entropy(SESSION), entropy)
        self._calls = 0
        # Refuses too few contributors, and a threshold or degree that cannot be, before any work.
        self._sums.parameters(self.names, 0, 0, self.threshold, bytes(32))

    def __call__(self, codes: Any) -> Ints:
        """The class of each query: of the smallest code of all, or of most votes.

        Args:
            codes: integers 0 to 2^bits - 1, shape (queries, contributors, classes).

        Returns:
            Shape (queries,); the lowest class wins a tie.

        Raises:
            InputError: another shape or type, or a code out of range.
        """
        found = np.asarray(codes)
        if found.ndim != 3 or found.shape[1] != len(self.names):
            raise InputError(
                f"codes: shape {found.shape}, expected (queries, {len(self.names)},"
                f" {self.coding.classes})"
            )
        told = Told("one process", secrets.token_hex(8), np.empty((len(found), 0)))
        return self.answer({name: found[:, i] for i, name in enumerate(self.names)}, told).classes

    def answer(
        self,
        codes: Mapping[str, Any],
        told: Told,
        *,
        lost: Mapping[str, Stage] | None = None,
        progress: Progress = quiet,
    ) -> MaskedAnswer:
        """The answers of a batch, by as many sums as its rows need.

        Args:
            codes: of the contributors that are there, shape (queries, classes) each.
            told: what all of them were told.
            lost: contributors that fall silent, and before which message.
            progress: told after every sum.

        Raises:
            InputError: codes of another shape or type or out of range, or of nobody known.
            QuorumError: fewer contributors left than the threshold; nothing is revealed.
        """
        checked = self._checked(codes, len(told.queries))
        gone = {name: Stage.ADVERTISE for name in self.names if name not in checked}
        queries = len(told.queries)
        step = max(1, MOST_WORDS_A_SUM // self.coding.words)
        opened: list[Opened] = []
        sent: dict[str, int] = dict.fromkeys(self.names, 0)
        there: tuple[str, ...] = self.names
        for first in range(0, queries, step):
            part = slice(first, min(first + step, queries))
            found = self._sum(checked, part, told, {**(lost or {}), **gone})
            opened.append(self.coding.open(found.total))
            for name, traffic in found.traffic.items():
                sent[name] += traffic.bytes_up
            there = tuple(name for name in there if name in found.survivors)
            progress("adding masked rows", part.stop, queries)
        return MaskedAnswer(Opened.joined(opened), there, max(sent.values()))

    def _sum(
        self, codes: Mapping[str, Ints], part: slice, told: Told, lost: Mapping[str, Stage]
    ) -> Any:
        call, self._calls = self._calls, self._calls + 1
        agreed = told.agreed(self.coding, part.start, part.stop)
        parameters = self._sums.parameters(self.names, 0, call, self.threshold, agreed)
        rows = _FreshRows(codes, part, self.coding, self._entropy)
        try:
            return self._sums.sum(parameters, rows, lost, "rows")
        except QuorumError as error:
            raise QuorumError(
                f"rule {self.coding.rule}: too few of the {len(self.names)} contributors are there,"
                f" at least {self.threshold} are needed; nothing is revealed ({error})"
            ) from error

    def _checked(self, codes: Mapping[str, Any], queries: int) -> dict[str, Ints]:
        unknown = [name for name in codes if name not in self.names]
        if unknown:
            raise InputError(f"contributor {unknown[0]!r}: unknown here; leave it out")
        if queries < 1:
            raise InputError("codes: of 0 queries, at least 1 is needed")
        found = {}
        for name, given in codes.items():
            each = np.asarray(given)
            if each.dtype.kind not in "iu":
                raise InputError(f"codes of {name!r}: of type {each.dtype}, expected integers")
            if len(each) != queries:
                raise InputError(f"codes of {name!r}: of {len(each)} queries, {queries} are asked")
            # Refused here, before anybody sends anything.
            self.coding.pack(each)
            found[name] = each.astype(np.int64)
        return found


def _refuse_for_votes(degree: int | None, word_bits: int) -> None:
    if degree is not None:
        raise InputError(
            "degree: of the rule masked; under votes all contributors mask with all others"
        )
    if word_bits != VoteCoding.word_bits:
        raise InputError(f"word_bits: found {word_bits}, votes have words of 64 bits")
