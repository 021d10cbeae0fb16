"""The querier: the only one who reads answers."""

import numpy as np

from .code import Ints
from .errors import AnswerError, FormatError, InputError
from .keys import SecretKeys
from .messages import Answer


def read_answer(answer: Answer, keys: SecretKeys, *, queries: int | None = None) -> Ints:
    """Decrypts the classes, shape (queries,).

    Nothing that the evaluator sent is parsed: the words are taken as those of as many ciphertexts
    as the queries need, of the type that the querier's own circuit gives.

    Args:
        answer: of the evaluator.
        keys: of the querier.
        queries: how many were asked; None takes the answer's word for it.

    Raises:
        InputError: the answer is under other keys.
        FormatError: answers to more or fewer queries, or not as many words as they need.
        AnswerError: a class that does not exist: the evaluator or the noise was wrong.
    """
    parameters = keys.parameters
    if answer.key != keys.evaluation.fingerprint:
        raise InputError(
            f"answer: under key {answer.key[:16]}, these keys are"
            f" {keys.evaluation.fingerprint[:16]}; use the keys that the batch was encrypted with"
        )
    if answer.parameters != parameters:
        raise InputError("answer: of another rule than the keys; use the batch's own keys")
    if queries is not None and answer.queries != queries:
        raise FormatError(
            f"answer: to {answer.queries} queries, {queries} were asked; trust no answer of it"
        )
    classes = parameters.decode(_results(answer, keys), answer.queries)
    wrong = np.flatnonzero((classes < 0) | (classes >= parameters.classes))
    if len(wrong):
        raise AnswerError(
            f"answer: query {wrong[0]} has class {classes[wrong[0]]}, there are"
            f" {parameters.classes}; trust no answer of this batch"
        )
    return classes


def _results(answer: Answer, keys: SecretKeys) -> list[Ints]:
    """The results of the last function, a block each."""
    reader, rows = keys.results, keys.parameters.numbers * answer.queries
    # Before the blocks, whose number an evaluator could choose.
    expected = rows * reader.size
    if len(answer.content) != expected:
        raise FormatError(
            f"answer: {len(answer.content)} bytes of ciphertexts for {answer.queries} queries,"
            f" expected {expected}; get it again"
        )
    return [reader.read(answer.content).astype(np.int64)]
