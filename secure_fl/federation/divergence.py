"""Whether a trainer's model is still one: finite, and inside the bound stated for it."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from secure_fl.errors import DivergedError
from secure_fl.federation.trees import Array

Excess: TypeAlias = Callable[[Array], str | None]
"""Given a model, what is too large about it, in words; None while it is inside its bound."""

_MODEL, _CHANGE = "the model", "the clients' mean change"


def _carried(state: Any) -> Iterator[tuple[str, Array]]:
    """What the server carries of the clients' work: the model, and the mean of their changes.

    An optimiser that normalises (Adam) keeps the model small whatever the clients send; what they
    send is in its first moment.
    """
    for name in ("weights", "parameters"):
        model = getattr(state, name, None)
        if model is not None:
            yield _MODEL, model
    moments = getattr(state, "moments", ())
    if moments:
        yield _CHANGE, moments[0]


def require_sound(state: Any, *, who: str, remedy: str, excess: Excess | None = None) -> None:
    """Refuses a diverged state, before its round is closed, kept or followed by another.

    Args:
        state: what a trainer yielded; one without `weights` or `parameters` passes.
        who: method and round, the beginning of the message.
        remedy: what to do, its end.
        excess: of the model, where a bound is stated.

    Raises:
        DivergedError: a number is not finite, or outside the bound.
    """
    for what, model in _carried(state):
        values = np.asarray(model)
        found = f"{what} holds a number that is not finite"
        if np.isfinite(values).all():
            large = None if excess is None else excess(values)
            if large is None:
                continue
            found = large if what == _MODEL else f"in {what} {large}"
        raise DivergedError(
            f"{who}: training diverged, {found}; {remedy}. Nothing of this round was kept: a"
            " checkpoint holds the last state before it"
        )
