"""The batched rule in pieces that any process can take: from files and to files.

An evaluation has three rounds, and the pieces of a round need nothing of each other:

    high    some upper digits of the high half -> P of their counts, summed for A and B
    winner  some contributors                  -> their alpha and beta, and what is malformed
    low     some upper digits of the low half  -> their part of the answer

A round reads contributions, and what the round before left in the scratch folder. Of contributions
no more is in memory than one contributor's digits; sums have as many ciphertexts as values are
counted, whatever the number of contributors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from fhe.errors import ContributionError, FormatError

from . import circuit
from .ciphertexts import Ciphertexts
from .keys import BatchedEvaluationKeys, BatchedPublicKey
from .library import return_freed_blocks, seal
from .messages import BatchedContribution, bit_bytes, place
from .packing import unpack
from .scheme import Scheme, refuse_zero, scheme_of

HIGH, WINNER, LOW = "high", "winner", "low"
ROUNDS = (HIGH, WINNER, LOW)
Tick = Callable[[], None]


@attrs.frozen
class Task:
    """A piece of a round.

    Attributes:
        round: one of ROUNDS.
        number: of the set of queries.
        first, last: upper digits, or contributors, first to last - 1.
    """

    round: str
    number: int
    first: int
    last: int

    @property
    def span(self) -> range:
        """Upper digits or contributors."""
        return range(self.first, self.last)


class Desk:
    """Where tasks are done.

    Args:
        keys: of the querier.
        public: of the querier.
        contributions: in order of position, checked to belong together.
        scratch: a folder that all who work on the evaluation share.
    """

    def __init__(
        self,
        keys: BatchedEvaluationKeys,
        public: BatchedPublicKey,
        contributions: Sequence[BatchedContribution],
        scratch: Path,
    ) -> None:
        self.parameters = keys.parameters
        self.rule = self.parameters.circuit
        self._keys, self._public = keys, public
        self._contributions, self._scratch = contributions, scratch

    @cached_property
    def scheme(self) -> Scheme:
        """The library's context."""
        return scheme_of(self.parameters.chain)

    @cached_property
    def ops(self) -> Ciphertexts:
        """The library with the keys: made when the first task needs it."""
        return_freed_blocks()
        return Ciphertexts(self.scheme, self._keys.library_keys, self._public.encryptor)

    def do(self, task: Task, tick: Tick) -> None:
        """Does a task; tells after every step.

        Raises:
            ContributionError: a contributor's ciphertexts cannot be computed with; names it.
        """
        {HIGH: self._high, WINNER: self._winner, LOW: self._low}[task.round](task, tick)
        self.ops.forget()

    def steps(self, task: Task) -> int:
        """How often a task tells."""
        if task.round == WINNER:
            return 2 * len(task.span)
        half = self.rule.layout.high if task.round == HIGH else self.rule.layout.low
        return self.rule.contributors + sum(len(half.columns_of(a)) for a in task.span)

    def _high(self, task: Task, tick: Tick) -> None:
        with self._reading(task.number, tick) as source:
            counts = circuit.count_high(self.ops, self.rule, source, task.span)
        parts = _told(circuit.high_part(self.ops, self.rule, counts), tick)
        found = circuit.join(self.ops, parts)
        for name, values in (("last", found.last), ("column", found.columns)):
            for digit, each in values.items():
                self._save(each, task.number, HIGH, name, digit, task.first)

    def _winner(self, task: Task, tick: Tick) -> None:
        marks = self._marks(task.number)
        for i in task.span:
            with self._reading(task.number, tick) as source:
                alpha, beta = circuit.winner(self.ops, self.rule, marks, source, i)
            with self._reading(task.number, tick) as source:
                malformed = circuit.malformed(self.ops, self.rule, source, i)
            found = (("alpha", alpha), ("beta", beta), ("malformed", malformed))
            for name, each in found:
                self._save(each, task.number, WINNER, name, i)

    def _low(self, task: Task, tick: Tick) -> None:
        winners = (
            (
                self._load(task.number, WINNER, "alpha", i),
                self._load(task.number, WINNER, "beta", i),
            )
            for i in range(self.rule.contributors)
        )
        with self._reading(task.number, tick) as source:
            counts = circuit.count_low(self.ops, self.rule, winners, source, task.span)
        parts = _told(circuit.low_steps(self.ops, self.rule, counts), tick)
        found = circuit.join_steps(self.ops, parts)
        for name, each in (("up", found.up), ("wrap", found.wrap)):
            if each is not None:
                self._save(each, task.number, LOW, name, task.first)

    def answer(self, number: int) -> Any:
        """The answer of a set, from what its tasks left; not flooded yet."""
        steps = (
            circuit.Steps(each, None) if name == "up" else circuit.Steps(None, each)
            for name in ("up", "wrap")
            for each in self._load_all(number, LOW, name)
        )
        joined = circuit.join_steps(self.ops, steps)
        malformed: Any = None
        for each in self._load_all(number, WINNER, "malformed"):
            malformed = self.ops.accumulate(malformed, each)
        malformed = self.ops.relinearize(malformed)
        return circuit.answer(self.ops, self.rule, joined, malformed)

    def _marks(self, number: int) -> circuit.Smallest[Any]:
        half = self.rule.layout.high
        last = {}
        for a in range(half.rows - 1):
            (last[a],) = self._load_all(number, HIGH, "last", a)
        columns = (
            circuit.Part({}, {b: each})
            for b in range(half.columns)
            for each in self._load_all(number, HIGH, "column", b)
        )
        joined = circuit.join(self.ops, columns)
        return circuit.smallest(self.ops, self.rule, circuit.Part(last, joined.columns))

    def _save(self, ciphertext: Any, *name: object) -> None:
        ciphertext.save(str(self._scratch / "-".join(map(str, name))))

    def _load(self, *name: object) -> Any:
        return self._read(self._scratch / "-".join(map(str, name)))

    def _load_all(self, *name: object) -> Iterator[Any]:
        prefix = "-".join(map(str, name))
        for path in sorted(self._scratch.glob(f"{prefix}-*")):
            yield self._read(path)

    def _read(self, path: Path) -> Any:
        found = seal().Ciphertext()
        found.load(self.scheme.context, str(path))
        return found

    def _reading(self, number: int, tick: Tick) -> "_Reading":
        return _Reading(self._contributions, self.scheme, number, tick)


def _told(values: Iterable[Any], tick: Tick) -> Iterator[Any]:
    for each in values:
        yield each
        tick()


class _Reading:
    """Ciphertexts of the contributions to a set, checked; what goes wrong names a contributor."""

    def __init__(
        self,
        contributions: Sequence[BatchedContribution],
        scheme: Any,
        number: int,
        tick: Tick,
    ) -> None:
        self._contributions, self._scheme = contributions, scheme
        self._number, self._tick = number, tick
        self._current: int | None = None

    def __enter__(self) -> "_Reading":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: Any
    ) -> None:
        if self._current is None:
            return
        who = f"contributor {self._contributions[self._current].name!r}"
        if isinstance(error, FormatError):
            raise FormatError(f"{who}: {error}; get it again") from None
        # What the library raises where ciphertexts hide nothing and cancel.
        if isinstance(error, RuntimeError | ValueError) and not isinstance(error, FormatError):
            raise ContributionError(
                f"{who}: its ciphertexts cannot be computed with ({error}); encrypt again"
            ) from error
        if error is None:
            self._tick()

    def __call__(self, contributor: int, bit: int, level: int) -> Any:
        """The ciphertext of a bit at its level or below."""
        if contributor != self._current:
            if self._current is not None:
                self._tick()
            self._current = contributor
        each = self._contributions[contributor]
        parameters = each.parameters
        start = place(parameters, self._number, bit)
        data = each.content.read(start, bit_bytes(parameters, level))
        residues = unpack(data, parameters.chain.primes(level), parameters.degree, 2)
        refuse_zero(residues)
        return self._scheme.ciphertext(residues, level)
