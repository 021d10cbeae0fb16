"""Rounds until the objective of all clients stops falling: `--rounds auto`, the default."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from secure_fl.federation import Client, Federation, SecureAggregation, Tree

MOST_ROUNDS = 300
"""Where the objective goes on falling, however slowly."""
PATIENCE = 10
"""Rounds without progress after which a run ends: averaging on skewed clients has bad rounds, and
networks begin slowly."""
LEAST = 0.05
"""Part of the objective by which a round must be below the last progress to be one. Where classes
can be told apart the objective falls for ever, about as the inverse of the rounds."""


def until_settled(
    states: Iterator[Any], objective: Callable[[Any], float], notes: MutableMapping[str, float]
) -> Iterator[Any]:
    """The states of a trainer, up to PATIENCE rounds after its last progress.

    Args:
        states: a trainer's.
        objective: of a state, over all clients; numbers that are not finite are no progress.
        notes: of the run, see `Federation.notes`: a run that goes on from a checkpoint ends where
            it would have ended.
    """
    best, waited = notes.get(_BEST, float("inf")), notes.get(_WAITED, 0.0)
    while waited < PATIENCE and (state := next(states, None)) is not None:
        value = objective(state)
        if value < best - LEAST * abs(best) or best == float("inf"):
            best, waited = min(best, value), 0.0
        else:
            waited += 1
        # Before the state is kept, with which they belong.
        notes.update({_BEST: best, _WAITED: waited})
        yield state


_BEST, _WAITED = "least objective", "rounds without progress"


def objective_of(
    members: Sequence[Client], step: Callable[..., Tree], *broadcast: Any, secure: bool
) -> Callable[[Any], float]:
    """The mean over all clients' records of what a step gives, as a function of a model.

    It is one sum a round more, of a federation of its own, so that the run's own traffic stays
    what it is.

    Args:
        members: the clients.
        step: called as step(client, *broadcast, weights); returns the mean over its records.
        broadcast: what it needs beside the weights.
        secure: whether sums are masked.
    """
    fed = Federation(members, aggregation=SecureAggregation() if secure else None)
    return lambda weights: float(fed.mean(step, *broadcast, weights))
