"""The evaluator: takes minima of ciphertexts with evaluation keys alone.

It sees how many queries and contributors there are and the federation's public parameters; neither
a record, a measure, a code nor an answer.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from .compiled import compiled_rule
from .errors import ContributionError, InputError, LibraryError
from .frames import frames_of
from .keys import EvaluationKeys
from .knockout import EQUAL, ONLY, Rows, function_name, last_kind, levels, rule_outputs, smallest
from .library import signals_kept
from .lwe_layout import result_of, split, to_value
from .messages import Answer, Contribution, Sent, check_span
from .operands import call_in_blocks
from .parameters import RuleParameters
from .public_key import PublicKey, RingCiphertexts, check_size, to_integers
from .ring import Words

Progress = Callable[[str, int, int], None]


def quiet(phase: str, done: int, total: int) -> None:
    """Reports nothing."""


def evaluate(
    contributions: Sequence[Contribution],
    keys: EvaluationKeys,
    public: PublicKey,
    *,
    progress: Progress = quiet,
    queries: range | None = None,
) -> Answer:
    """Runs the rule on one contribution of every contributor.

    Args:
        contributions: in any order.
        keys: of the querier.
        public: of the querier, the key that the contributions are under.
        progress: told after every block of comparisons, level by level.
        queries: that are answered; None answers all.

    Raises:
        InputError: the public key does not go with the evaluation keys, or the batch has no such
            queries.
        ContributionError: one is missing, twice, or belongs to other keys, another federation,
            rule or query batch; names the contributor.
        FormatError: a ciphertext cannot be read, and names the contributor; or the evaluation keys
            are no keys of the rule.
    """
    if public.key != keys.fingerprint:
        raise InputError(
            f"public key: goes with evaluation keys {public.key[:16]}, these are"
            f" {keys.fingerprint[:16]}; take both from the same querier"
        )
    ordered = checked(contributions, keys, public)
    first = ordered[0]
    wanted = range(first.queries) if queries is None else queries
    check_span(wanted, first.queries)
    progress("compiling", 0, 1)
    keys.check()
    # Before the first minute of work, not in its middle.
    for each in ordered:
        check_size(_ciphertexts(each), public, who=_who(each))
    results = _Calls(keys, public, progress)

    def integers(position: int) -> Words:
        each = ordered[position]
        return to_integers(_ciphertexts(each), public, who=_who(each), queries=wanted)

    rule_outputs(keys.parameters, integers, len(wanted), results.run)
    return Answer(
        parameters=first.parameters,
        key=first.key,
        federation=first.federation,
        batch=first.batch,
        queries=len(wanted),
        content=b"".join(results.last),
    )


def evaluate_minimum(
    columns: Sequence[RingCiphertexts], rows: int, keys: EvaluationKeys, public: PublicKey
) -> Words:
    """The smallest integer of each row, still encrypted.

    Args:
        columns: the integers of every column, in the paper's rule's layout.
        rows: integers of a column that count; what fills up the layout is left out.
        keys: for the paper's rule with as many contributors as there are columns.
        public: that the columns are under.

    Returns:
        LWE ciphertexts of the digits, shape (rows, digits, k N + 1).

    Raises:
        InputError, FormatError: columns that are not ciphertexts under the public key.
    """

    def integers(position: int) -> Words:
        who = f"column {position}"
        return to_integers(columns[position], public, who=who)[:rows]

    return smallest(len(columns), integers, rows, _Calls(keys, public, quiet).run)


class _Calls:
    """Calls the library's functions on LWE ciphertexts, and keeps the last function's results.

    Args:
        keys: of the querier.
        public: its public key.
        progress: told after every call.
    """

    def __init__(self, keys: EvaluationKeys, public: PublicKey, progress: Progress) -> None:
        self._keys, self._public, self._progress = keys, public, progress
        rule = compiled_rule(keys.parameters)
        self._server, self._specs = rule.server, rule.specs
        self._frames = frames_of(keys.parameters).operands
        self.last: list[bytes] = []

    def run(
        self, kind: str, level: int, rows: int, operands: Iterator[tuple[Rows, ...]], /
    ) -> Rows:
        """As `Run`."""
        parameters = self._keys.parameters
        done, total = 0, len(parameters.blocks(rows))

        def call(block: tuple[Rows, ...]) -> Rows:
            nonlocal done
            size, digits, _ = block[0].shape
            frame = self._frames[size]
            values = [to_value(frame, each.reshape(size * digits, -1)) for each in block]
            with signals_kept():
                found = self._server.run(
                    *values,
                    evaluation_keys=self._keys.library_keys,
                    function_name=function_name(kind, size),
                ).serialize()
            done += 1
            self._progress(_phase(kind, level, parameters), done, total)
            if kind == last_kind(parameters):
                self.last.append(self._words(found, kind, size))
                return np.zeros((size, 0), np.uint64)
            its_frame, words = split(found, size * digits, self._public.kind)
            if its_frame != frame:
                raise LibraryError("concrete-python: results are laid out otherwise than operands")
            return words.reshape(size, digits, -1)

        return call_in_blocks(call, parameters.block, operands)

    def _words(self, found: bytes, kind: str, size: int) -> bytes:
        """The words of a result that goes into the answer."""
        type_, shape = result_of(self._specs, function_name(kind, size))
        return split(found, math.prod(shape), type_)[1].astype("<u8").tobytes()


def _ciphertexts(contribution: Contribution) -> RingCiphertexts:
    shape = (contribution.queries, contribution.parameters.columns)
    return RingCiphertexts(contribution.public, shape, contribution.content)


def _who(contribution: Contribution) -> str:
    return f"contributor {contribution.name!r}"


def _phase(kind: str, level: int, parameters: RuleParameters) -> str:
    """What is being computed, for people."""
    others = {EQUAL: "comparing classes", ONLY: "evaluating"}
    return others.get(kind, f"level {level + 1} of {levels(parameters)}")


class _Keys(Protocol):
    """What is compared of evaluation keys, of any engine."""

    @property
    def parameters(self) -> Any:
        """Of the rule."""

    @property
    def fingerprint(self) -> str:
        """Of the keys."""


class _Public(Protocol):
    """What is compared of a public key, of any engine."""

    @property
    def fingerprint(self) -> str:
        """Of the key."""


S = TypeVar("S", bound=Sent)


def checked(contributions: Sequence[S], keys: _Keys, public: _Public) -> list[S]:
    """The contributions in order of position, if they belong together.

    Args:
        contributions: of any engine, in any order.
        keys: of the querier.
        public: of the querier.

    Raises:
        ContributionError: as `evaluate`.
    """
    by_position: dict[int, S] = {}
    for each in contributions:
        _check_belongs(each, contributions[0], keys, public)
        if each.contributor in by_position:
            raise ContributionError(
                f"contributor {each.name!r}: two contributions for position {each.contributor};"
                " send one"
            )
        by_position[each.contributor] = each
    expected = keys.parameters.contributors
    missing = [i for i in range(expected) if i not in by_position]
    if missing:
        raise ContributionError(
            f"contributions: {len(by_position)} of {expected}, positions"
            f" {', '.join(map(str, missing[:10]))} are missing"
        )
    return [by_position[i] for i in range(expected)]


def _check_belongs(each: Sent, first: Sent, keys: _Keys, public: _Public) -> None:
    facts = (
        ("rule parameters", each.parameters, keys.parameters),
        ("key", each.key, keys.fingerprint),
        ("public key", each.public, public.fingerprint),
        ("federation", each.federation, first.federation),
        ("query batch", each.batch, first.batch),
        ("number of queries", each.queries, first.queries),
    )
    for name, found, expected in facts:
        if found != expected:
            raise ContributionError(
                f"contributor {each.name!r}: {name} {found!s:.80}, expected {expected!s:.80};"
                " encrypt again for this batch and these keys"
            )
    if not 0 <= each.contributor < keys.parameters.contributors:
        raise ContributionError(
            f"contributor {each.name!r}: position {each.contributor}, the rule has"
            f" {keys.parameters.contributors}"
        )
