"""Rounds until the objective of all clients stops falling: `--rounds auto`, the default."""

import math
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, NoReturn, TypeVar

import attrs

from secure_fl.errors import InputError
from secure_fl.federation import Federation, Tree
from secure_fl.trainers.settings import Settings

S = TypeVar("S", bound=Settings)

MOST_ROUNDS = 300
"""Where the objective goes on falling, however slowly."""
PATIENCE = 10
"""Rounds without progress after which a run ends: averaging on skewed clients has bad rounds, and
networks begin slowly."""
LEAST = 0.05
"""Part of the objective by which a round must be below the last progress to be one. Where classes
can be told apart the objective falls for ever, about as the inverse of the rounds."""


def open_ended(method: S) -> S:
    """The method with the most rounds that it may take, where it has rounds."""
    if not method.by_rounds():
        return method
    changed: S = attrs.evolve(method, rounds=MOST_ROUNDS)  # type: ignore[misc]  # an attrs class
    return changed


def until_settled(
    states: Iterator[Any],
    objective: Callable[[Any], float],
    notes: MutableMapping[str, float],
    *,
    window: int = 1,
) -> Iterator[Any]:
    """The states of a trainer, up to PATIENCE rounds after its last progress.

    Args:
        states: a trainer's.
        objective: of a state, over a round's clients; numbers that are not finite are no progress.
        notes: of the run, see `Federation.notes`: a run that goes on from a checkpoint ends where
            it would have ended.
        window: rounds that one must take the mean of, for all clients to be heard; >= 1.
    """
    best, waited = notes.get(_BEST, float("inf")), notes.get(_WAITED, 0.0)
    places = [f"objective {i} rounds ago" for i in range(window)]
    seen = [notes[name] for name in places if name in notes]
    while waited < PATIENCE and (state := next(states, None)) is not None:
        seen = [objective(state), *seen][:window]
        value = sum(seen) / window
        if len(seen) < window:
            pass  # not all clients were heard
        elif value < best - LEAST * abs(best) or best == float("inf"):
            best, waited = min(best, value), 0.0
        else:
            waited += 1
        # Before the state is kept, with which they belong.
        notes.update({_BEST: best, _WAITED: waited, **dict(zip(places, seen, strict=False))})
        yield state


_BEST, _WAITED = "least objective", "rounds without progress"


def window_of(clients: int, drawn: int | None) -> int:
    """Rounds in which about all clients take part once; `drawn` of them do in one, None for all."""
    return 1 if drawn is None else math.ceil(clients / drawn)


def settled(
    states: Iterator[Any],
    fed: Federation,
    step: Callable[..., Tree],
    told: Any,
    *,
    weights: Callable[[Any], Any],
    drawn: int | None,
) -> Iterator[Any]:
    """The states of a trainer until the objective of its clients stops falling.

    Args:
        states: the trainer's, over the federation.
        fed: the clients.
        step: called as step(client, told, weights); returns the mean over its records.
        told: objective or network.
        weights: of a state.
        drawn: clients of a round, None for all.
    """
    value, window = objective_of(fed, step, told), window_of(len(fed), drawn)
    return until_settled(states, lambda at: value(weights(at)), fed.notes, window=window)


def refuse_settling() -> NoReturn:
    """Raises because privacy is promised.

    Raises:
        InputError: always.
    """
    raise InputError(
        "rounds: auto looks at the clients' objective, and the number of rounds must be known"
        " before privacy is promised; give a number"
    )


def objective_of(
    fed: Federation, step: Callable[..., Tree], *broadcast: Any
) -> Callable[[Any], float]:
    """The mean over the participants' records of what a step gives, as a function of a model.

    It is one sum a round more.

    Args:
        fed: the clients.
        step: called as step(client, *broadcast, weights); returns the mean over its records.
        broadcast: what it needs beside the weights.
    """
    return lambda weights: float(fed.mean(step, *broadcast, weights))
