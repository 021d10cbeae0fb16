"""The querier: the only one who reads answers."""

import numpy as np

from .code import Ints
from .errors import AnswerError, InputError
from .keys import SecretKeys
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
    values = answer.library_values()
    blocks = [keys.parameters.decode(np.asarray(keys.client.decrypt(value))) for value in values]
    classes = np.concatenate(blocks)[: answer.queries]
    wrong = np.flatnonzero((classes < 0) | (classes >= keys.parameters.classes))
    if len(wrong):
        raise AnswerError(
            f"answer: query {wrong[0]} has class {classes[wrong[0]]}, there are"
            f" {keys.parameters.classes}; trust no answer of this batch"
        )
    return classes
