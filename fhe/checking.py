"""A second pair of eyes: another evaluator's answer to the same contributions.

Whoever has the contributions and the evaluation key can evaluate again. Its ciphertexts cannot be
compared with the first's: when tried, those of two processes differed (those of one did not), and
the library computes in floating point, where one bit of rounding changes whole ciphertexts. What
holds between processes and processors is the class that both decrypt to, so the comparison is the
querier's.
"""

import numpy as np

from .code import Ints
from .errors import AnswerError, InputError
from .messages import Message


def check_same_batch(given: Message, second: Message, *, source: str) -> None:
    """Refuses answers that are not to the same queries.

    Raises:
        InputError: so; `source` names the second.
    """
    for name in ("parameters", "key", "federation", "batch", "queries"):
        found, expected = getattr(second, name), getattr(given, name)
        if found != expected:
            raise InputError(
                f"{source}: {name} {found!s:.80}, the first answer has {expected!s:.80}; take two"
                " answers to the same contributions"
            )


def check_agreement(given: Ints, second: Ints) -> None:
    """Compares the classes of two evaluators, shape (queries,) each.

    Raises:
        AnswerError: they differ.
    """
    wrong = np.flatnonzero(given != second)
    if len(wrong):
        raise AnswerError(
            f"answers: two evaluators differ at {len(wrong)} of {len(given)} queries, first at"
            f" query {wrong[0]}; one of them used other contributions or lied"
        )
