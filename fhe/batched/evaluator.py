"""The evaluator of a batched rule: counts on ciphertexts with evaluation keys alone.

It sees how many queries and contributors there are and the federation's public parameters; neither
a record, a measure, a code nor an answer.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fhe.errors import FormatError, InputError
from fhe.evaluator import Progress, checked, quiet

from .crew import Alone, Crew, Processes, lay_out
from .flooding import flood
from .keys import BatchedEvaluationKeys, BatchedPublicKey
from .layout import Half
from .messages import (
    BatchedAnswer,
    BatchedContribution,
    bit_bytes,
    contribution_bytes,
    place,
)
from .packing import pack, unpack
from .parameters import BatchedParameters
from .scheme import refuse_zero, scheme_of
from .tasks import HIGH, LOW, ROUNDS, WINNER, Desk, Task

SUMS_BYTES = {HIGH: 1 << 30, LOW: 3 << 29}
"""Memory for sums that are not relinearised, of all processes together. Low halves are multiplied
before they are summed, for every task anew."""
LEVELS_AT_ONCE = 14
"""Up to this many one process does all rounds. The library keeps freed blocks, of every level's
size, for blocks of the same size: above, every round gets a fresh process."""
NAMES = {HIGH: "smallest codes", WINNER: "contributors there", LOW: "smallest classes"}


def evaluate_batched(
    contributions: Sequence[BatchedContribution],
    keys: BatchedEvaluationKeys,
    public: BatchedPublicKey,
    *,
    progress: Progress = quiet,
    processes: int | None = None,
) -> BatchedAnswer:
    """Runs the rule on one contribution of every contributor.

    Args:
        contributions: in any order; read from their files as they are needed.
        keys: of the querier.
        public: of the querier, the key that the contributions are under.
        progress: told after every step.
        processes: that share the work; as many as there are cores by default.

    Raises:
        InputError: the public key does not go with the evaluation keys.
        ContributionError: one is missing, twice, belongs to other keys, another federation, rule or
            query batch, or cannot be computed with; names the contributor.
        FormatError: a ciphertext cannot be read; names the contributor.
    """
    if public.key != keys.fingerprint:
        raise InputError(
            f"public key: goes with evaluation keys {public.key[:16]}, these are"
            f" {keys.fingerprint[:16]}; take both from the same querier"
        )
    ordered = checked(contributions, keys, public)
    for each in ordered:
        check_size(each)
    first = ordered[0]
    parameters, sets = keys.parameters, keys.parameters.sets(first.queries)
    count = processes or len(os.sched_getaffinity(0))
    progress("reading keys", 0, 1)
    with tempfile.TemporaryDirectory(prefix="securefl-") as name:
        scratch = Path(name)
        desk = Desk(keys, public, ordered, scratch)
        once = parameters.circuit.levels <= LEVELS_AT_ONCE
        alone = count == 1 and once
        if not alone:
            lay_out(keys, public, ordered, scratch)
        for rounds in [ROUNDS] if once else [(each,) for each in ROUNDS]:
            crew: Crew = Alone(desk) if alone else Processes(count, scratch)
            with crew:
                for round_ in rounds:
                    tasks = [
                        task
                        for number in range(sets)
                        for task in tasks_of(round_, number, parameters, count)
                    ]
                    _run(crew, desk, tasks, progress)
        scheme = scheme_of(parameters.chain)
        blocks = tuple(
            pack(flood(desk.answer(number), desk.ops, scheme), parameters.chain.primes(0))
            for number in range(sets)
        )
    return BatchedAnswer(
        parameters=first.parameters,
        key=first.key,
        federation=first.federation,
        batch=first.batch,
        queries=first.queries,
        blocks=blocks,
    )


def _run(crew: Crew, desk: Desk, tasks: list[Task], progress: Progress) -> None:
    done, total = 0, sum(map(desk.steps, tasks))
    name = NAMES[tasks[0].round]
    progress(name, done, total)

    def tick() -> None:
        nonlocal done
        done += 1
        progress(name, done, total)

    crew.do(tasks, tick)


def check_size(contribution: BatchedContribution) -> None:
    """Refuses what cannot be the ciphertexts of its queries; costs nothing.

    Raises:
        FormatError: so; names the contributor.
    """
    expected = contribution_bytes(contribution.parameters, contribution.queries)
    if contribution.content.size != expected:
        raise FormatError(
            f"contributor {contribution.name!r}: {contribution.content.size} bytes of ciphertext,"
            f" expected {expected}; get it again"
        )


def check_ciphertexts(contribution: BatchedContribution) -> None:
    """Refuses what is no ciphertexts, one after the other in memory, and without the library.

    An evaluation finds the same, and ends by it; who takes contributions finds it first.

    Raises:
        FormatError: so; names the contributor.
    """
    check_size(contribution)
    parameters, rule = contribution.parameters, contribution.parameters.circuit
    for number in range(parameters.sets(contribution.queries)):
        for bit in range(rule.layout.ciphertexts):
            level = rule.level_of(bit)
            start, size = place(parameters, number, bit), bit_bytes(parameters, level)
            data = contribution.content.read(start, size)
            try:
                primes = parameters.chain.primes(level)
                refuse_zero(unpack(data, primes, parameters.degree, 2))
            except FormatError as error:
                raise FormatError(
                    f"contributor {contribution.name!r}: {error}; get it again"
                ) from None


def tasks_of(round_: str, number: int, parameters: BatchedParameters, processes: int) -> list[Task]:
    """Tasks of a round on a set: one a process, more where its sums would not fit the memory."""
    rule = parameters.circuit
    if round_ == WINNER:
        spans = _even([1] * rule.contributors, processes)
    else:
        high = round_ == HIGH
        half = rule.layout.high if high else rule.layout.low
        level = rule.levels if high else rule.low_level - 1
        sums = 24 * parameters.degree * len(parameters.chain.primes(level)) * half.counted
        parts = max(1, -(-sums // SUMS_BYTES[round_])) * processes
        spans = _even(_counted(half), parts)
    return [Task(round_, number, *span) for span in spans]


def _counted(half: Half) -> list[int]:
    return [len(half.columns_of(a)) for a in range(half.rows)]


def _even(weights: list[int], parts: int) -> list[tuple[int, int]]:
    """Ranges that follow each other and weigh about the same; at most so many, none empty."""
    spans: list[tuple[int, int]] = []
    total, start, weight = sum(weights), 0, 0
    for i, each in enumerate(weights):
        weight += each
        if weight * parts >= total * (len(spans) + 1):
            spans.append((start, i + 1))
            start = i + 1
    if start < len(weights):
        # Only weightless ones are left.
        first, _ = spans.pop()
        spans.append((first, len(weights)))
    return spans
