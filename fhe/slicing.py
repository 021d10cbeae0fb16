"""A batch in slices that can be answered apart, and one answer of theirs.

Decisions need nothing of each other. A slice of engine tfhe may be any queries that follow each
other; one of engine bgv is whole sets, because a set's queries share their ciphertexts.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import attrs
import numpy as np

from .batched.messages import BatchedAnswer, BatchedContribution, set_bytes
from .batched.packing import unpack
from .batched.parameters import BatchedParameters
from .batched.scheme import refuse_zero
from .compiled import compiled_rule
from .envelope import Payload
from .errors import FormatError, InputError
from .knockout import calls_of, function_name, last_kind
from .lwe_layout import result_of
from .messages import Answer, Message, check_span
from .parameters import RuleParameters


def spans_of(parameters: Any, queries: int, size: int) -> list[range]:
    """Slices of a batch, in order.

    Args:
        parameters: of the rule, of any engine.
        queries: of the batch, at least 1.
        size: queries of a slice, at least 1; engine bgv rounds it up to whole sets.
    """
    if isinstance(parameters, BatchedParameters):
        size = parameters.sets(size) * parameters.degree
    return [range(first, min(first + size, queries)) for first in range(0, queries, size)]


def most_steps(parameters: Any, queries: int) -> int:
    """How often an evaluation of so many queries tells that a step is done, at most.

    Engine tfhe tells just as often; engine bgv less, where fewer processes share the work.
    """
    if not isinstance(parameters, BatchedParameters):
        return calls_of(parameters, queries)
    layout, contributors = parameters.layout, parameters.contributors
    halves = sum(half.rows * contributors + half.counted for half in (layout.high, layout.low))
    return parameters.sets(queries) * (halves + 2 * contributors)


def cut_batched(contribution: BatchedContribution, span: range) -> BatchedContribution:
    """The part of a contribution that a slice needs; its ciphertexts stay where they are.

    Raises:
        InputError: the slice is not of whole sets.
    """
    check_span(span, contribution.queries)
    if len(span) == contribution.queries:
        return contribution
    parameters: BatchedParameters = contribution.parameters
    degree, last = parameters.degree, span.stop == contribution.queries
    if span.start % degree or (span.stop % degree and not last):
        raise InputError(
            f"slice: queries {span.start} to {span.stop}; engine bgv takes whole sets of {degree}"
        )
    size, content = set_bytes(parameters), contribution.content
    start = span.start // degree * size
    part = Payload(content.source, content.start + start, parameters.sets(len(span)) * size)
    return attrs.evolve(contribution, content=part, queries=len(span))


def needed(contributions: Sequence[Any], span: range) -> tuple[list[Any], range]:
    """What another machine needs to answer a slice, and where the slice is in it.

    Of engine tfhe all that was sent, which is little and the same for every slice; of engine bgv
    the slice's sets alone.
    """
    if isinstance(contributions[0], BatchedContribution):
        return [cut_batched(each, span) for each in contributions], range(len(span))
    return list(contributions), span


def join_answers(parts: Sequence[Any], first: Message) -> Any:
    """The answer to a whole batch.

    Args:
        parts: answers to all slices, in order.
        first: a contribution to the whole batch.

    Raises:
        FormatError: the parts are not those of the batch, or no ciphertexts of its rule.
    """
    if sum(each.queries for each in parts) != first.queries:
        raise FormatError("slices: their answers are not to all queries of the batch")
    for each in parts:
        check_part(each, first, each.queries)
    facts = {
        name: getattr(first, name)
        for name in ("parameters", "key", "federation", "batch", "queries")
    }
    if isinstance(first, BatchedContribution):
        blocks = tuple(b for each in parts for b in cast(BatchedAnswer, each).blocks)
        return BatchedAnswer(**facts, blocks=blocks)
    rows = [_rows(each, first.parameters.numbers) for each in parts]
    return Answer(**facts, content=np.concatenate(rows, axis=1).tobytes())


def check_part(answer: Message, first: Message, queries: int) -> None:
    """Refuses what the querier could not decrypt, or an answer to something else than a slice.

    Raises:
        FormatError: so; names what differs.
    """
    for name in ("parameters", "key", "federation", "batch"):
        if getattr(answer, name) != getattr(first, name):
            raise FormatError(f"slices: an answer is of another {name} than its contributions")
    if answer.queries != queries:
        raise FormatError(f"slices: {answer.queries} answers to {queries} queries")
    if isinstance(answer, BatchedAnswer):
        chain = answer.parameters.chain
        for block in answer.blocks:
            refuse_zero(unpack(block, chain.primes(0), chain.degree, 2))
        return
    expected = queries * _answer_bytes(first.parameters)
    if len(cast(Answer, answer).content) != expected:
        raise FormatError(
            f"slices: {len(cast(Answer, answer).content)} bytes of answers to {queries} queries,"
            f" expected {expected}"
        )


def _answer_bytes(parameters: RuleParameters) -> int:
    """Of the ciphertexts that answer one query; compiles the circuit."""
    specs = compiled_rule(parameters).specs
    kind, shape = result_of(specs, function_name(last_kind(parameters), 1))
    return 8 * (kind.dimension + 1) * math.prod(shape) * parameters.numbers


def _rows(answer: Answer, numbers: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes of an answer, shape (integers of a query, queries, bytes)."""
    return np.frombuffer(answer.content, np.uint8).reshape(numbers, answer.queries, -1)
