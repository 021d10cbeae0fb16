"""A second pair of eyes: whoever has the contributions and the evaluation key evaluates again.

The evaluation draws nothing, so the same contributions give the same ciphertexts, to the bit, in
any process of one machine. It takes Fourier transforms in floating point, whose last bits may
differ between kinds of processors: there a difference proves nothing, and equality everything.
"""

from .errors import AnswerError, InputError
from .messages import Answer


def compare(given: Answer, mine: Answer, *, source: str) -> None:
    """Compares an answer with one's own to the same contributions.

    Args:
        given: of an evaluator.
        mine: of `evaluate`, here.
        source: of the first, for messages.

    Raises:
        InputError: they are not of one batch.
        AnswerError: their ciphertexts differ.
    """
    for name in ("parameters", "key", "federation", "batch", "queries"):
        if getattr(given, name) != getattr(mine, name):
            raise InputError(
                f"{source}: {name} {getattr(given, name)!s:.80}, the contributions have"
                f" {getattr(mine, name)!s:.80}; take those that were answered"
            )
    differing = sum(a != b for a, b in zip(given.blocks, mine.blocks, strict=True))
    if differing or len(given.blocks) != len(mine.blocks):
        raise AnswerError(
            f"{source}: {differing} of {len(mine.blocks)} blocks differ from what these"
            " contributions give here; its evaluator used others or lied, or its processor is of"
            " another kind: evaluate once more on such a one"
        )
