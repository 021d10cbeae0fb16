"""The querier: the only one who reads answers."""

import numpy as np

from .code import Ints
from .errors import AnswerError, InputError
from .keys import SecretKeys
from .knockout import function_name, last_kind
from .messages import Answer


def read_answer(answer: Answer, keys: SecretKeys) -> Ints:
    """Decrypts the classes, shape (queries,).

    Raises:
        InputError: the answer is under other keys.
        AnswerError: a class that does not exist: the evaluator or the noise was wrong.
    """
    if answer.key != keys.evaluation.fingerprint:
        raise InputError(
            f"answer: under key {answer.key[:16]}, these keys are"
            f" {keys.evaluation.fingerprint[:16]}; use the keys that the batch was encrypted with"
        )
    kind = last_kind(keys.parameters)
    outputs = [
        np.asarray(keys.client.decrypt(value, function_name=function_name(kind, size)))
        for value, size in zip(answer.library_values(), answer.block_sizes, strict=True)
    ]
    classes = keys.parameters.decode(outputs, answer.queries)
    wrong = np.flatnonzero((classes < 0) | (classes >= keys.parameters.classes))
    if len(wrong):
        raise AnswerError(
            f"answer: query {wrong[0]} has class {classes[wrong[0]]}, there are"
            f" {keys.parameters.classes}; trust no answer of this batch"
        )
    return classes
