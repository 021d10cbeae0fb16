"""Methods for two classes on many: one model a class, which tells it from all others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from secure_fl.federation import broadcastable
from secure_fl.trainers.fednl.problem import LogisticRidge
from secure_fl.trainers.fednl.states import Array


@broadcastable
@dataclass(frozen=True)
class OneAgainstRestState:
    """The states of the classes' own runs, all of one round.

    Attributes:
        states: of the classes in order; with two classes of the second one alone.
    """

    states: tuple[Any, ...]

    @property
    def round(self) -> int:
        """Rounds finished."""
        return int(self.states[0].round)

    @property
    def weights(self) -> Array:
        """Shape (d, C); the class of the largest margin wins."""
        columns = [state.weights for state in self.states]
        if len(columns) == 1:
            columns = [np.zeros_like(columns[0]), *columns]
        return np.column_stack(columns)


def one_against_rest(
    trainer: Callable[[LogisticRidge, Any], Iterator[Any]],
    penalty: float,
    classes: int,
    start: OneAgainstRestState | None = None,
) -> Iterator[OneAgainstRestState]:
    """Runs a trainer for every class side by side, a round of each at a time.

    The clients' targets are class codes. Two classes need one run: their models mirror each other.

    Args:
        trainer: makes the states of one class's run, given its objective and what it starts from.
        penalty: lambda of every class.
        classes: C, at least 2.
        start: a state to go on from.
    """
    codes = range(1, 2) if classes == 2 else range(classes)
    starts = (None,) * len(codes) if start is None else start.states
    runs = [
        trainer(LogisticRidge(penalty, code), begin)
        for code, begin in zip(codes, starts, strict=True)
    ]
    for states in zip(*runs, strict=True):
        yield OneAgainstRestState(states)
