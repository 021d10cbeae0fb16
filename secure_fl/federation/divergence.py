"""Whether a trainer's model is still one: finite, and inside the bound stated for it."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from secure_fl.errors import DivergedError
from secure_fl.federation.trees import Array

Excess: TypeAlias = Callable[[Array], str | None]
"""Given a model, what is too large about it, in words; None while it is inside its bound."""

_MODELS = ("weights", "parameters")
"""What states call the model that the server carries."""


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
    for name in _MODELS:
        model = getattr(state, name, None)
        if model is None:
            continue
        values = np.asarray(model)
        found = "the model holds a number that is not finite"
        if np.isfinite(values).all():
            large = None if excess is None else excess(values)
            if large is None:
                continue
            found = large
        raise DivergedError(
            f"{who}: training diverged, {found}; {remedy}. Nothing of this round was kept: a"
            " checkpoint holds the last state before it"
        )
