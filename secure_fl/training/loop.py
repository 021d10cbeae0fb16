"""What running a recipe takes, whatever it trains: its federation, its rounds, its traffic."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from secure_fl.federation import (
    AllClients,
    Client,
    ClientPrivacy,
    Federation,
    FixedNumber,
    SecureAggregation,
)

States = Iterator[Any]


def federation_of(
    clients: Sequence[Client],
    *,
    participants: int | None,
    secure: bool,
    privacy: ClientPrivacy | None,
    seed: int,
) -> Federation:
    """The clients as a recipe wants them asked.

    Args:
        clients: all of them.
        participants: of a round; None takes all.
        secure: whether sums are masked.
        privacy: client-level noise, if any.
        seed: of the experiment's randomness.
    """
    return Federation(
        clients,
        seed=seed,
        participation=AllClients() if participants is None else FixedNumber(participants),
        aggregation=SecureAggregation() if secure else None,
        privacy=privacy,
    )


def last_state(
    fed: Federation,
    states: Callable[[Any], States],
    measure: Callable[[Any], Mapping[str, float]],
    *,
    checkpoint: Path | None,
    metrics: Path | None,
    progress: Callable[[str], None] | None,
) -> Any:
    """Runs a trainer to its end, from the checkpoint where there is one, and measures the end.

    Args:
        fed: the clients.
        states: the trainer's, of at least one round, given the state to go on from or None.
        measure: figures of a state.
        checkpoint: replaced after every round.
        metrics: a file of JSON lines, one a round.
        progress: receives one line a round.
    """
    state = None if checkpoint is None else fed.resume(checkpoint)
    driven = fed.rounds(
        states(state), checkpoint=checkpoint, metrics=metrics, progress=progress, measure=measure
    )
    for each in driven:
        state = each
    # A run that was already at its end has measured nothing.
    measure(state)
    return state


def traffic_of(fed: Federation) -> dict[str, tuple[int, int]]:
    """Bytes that each client sent and received so far, by name."""
    totals = {name: fed.meter.total(name) for name in fed.names}
    return {name: (each.bytes_up, each.bytes_down) for name, each in totals.items()}
