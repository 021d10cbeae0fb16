"""The querier of a batched rule: the only one who reads answers."""

import numpy as np

from fhe.code import Ints
from fhe.errors import AnswerError, FormatError, InputError

from .keys import BatchedSecretKeys
from .messages import BatchedAnswer
from .packing import unpack
from .scheme import refuse_zero, scheme_of


def read_batched_answer(
    answer: BatchedAnswer, keys: BatchedSecretKeys, *, queries: int | None = None
) -> Ints:
    """Decrypts the classes, shape (queries,).

    Args:
        answer: of the evaluator.
        keys: of the querier.
        queries: that were asked; None takes the answer's word.

    Raises:
        InputError: the answer is under other keys.
        FormatError: another number of queries, or bytes that are no ciphertext.
        AnswerError: a class that does not exist: the evaluator is wrong, or a contributor sent
            thermometers that are none.
    """
    if answer.key != keys.evaluation.fingerprint:
        raise InputError(
            f"answer: under key {answer.key[:16]}, these keys are"
            f" {keys.evaluation.fingerprint[:16]}; use the keys that the batch was encrypted with"
        )
    if queries is not None and answer.queries != queries:
        raise FormatError(
            f"answer: {answer.queries} answers to {queries} queries; trust none of this batch"
        )
    parameters = keys.parameters
    slots = np.concatenate([_slots(block, keys) for block in answer.blocks])
    classes = parameters.decode(slots[: answer.queries])
    wrong = np.flatnonzero(classes >= parameters.classes)
    if len(wrong):
        raise AnswerError(
            f"answer: query {wrong[0]} has class {classes[wrong[0]]}, there are"
            f" {parameters.classes} ({len(wrong)} of {len(classes)} queries): the evaluator or a"
            " contributor did not compute the rule; trust no answer of this batch"
        )
    return classes


def _slots(block: bytes, keys: BatchedSecretKeys) -> Ints:
    chain = keys.parameters.chain
    scheme = scheme_of(chain)
    try:
        residues = unpack(block, chain.primes(0), chain.degree, 2)
        refuse_zero(residues)
    except FormatError as error:
        raise FormatError(f"answer: {error}; get it again") from None
    plain = keys.decryptor.decrypt(scheme.ciphertext(residues, 0))
    return scheme.encoder.decode_uint64(plain).astype(np.int64)
