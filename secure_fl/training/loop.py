"""What running a method takes, whatever it trains: its federation, its rounds, its traffic."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from secure_fl.errors import InputError
from secure_fl.federation import (
    AllClients,
    Client,
    ClientPrivacy,
    DivergedError,
    Federation,
    FixedNumber,
    QuorumError,
    SecureAggregation,
)
from secure_fl.federation.divergence import Excess, require_sound
from secure_fl.files import prove_writable
from secure_fl.trainers.settings import Settings

States = Iterator[Any]


def federation_of(
    clients: Sequence[Client],
    *,
    participants: int | None,
    secure: bool,
    privacy: ClientPrivacy | None,
    seed: int,
) -> Federation:
    """The clients as a method wants them asked.

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
    settings: Settings,
    checkpoint: Path | None,
    metrics: Path | None,
    progress: Callable[[str], None] | None,
    excess: Excess | None = None,
) -> Any:
    """Runs a trainer to its end, from the checkpoint where there is one, and measures the end.

    Args:
        fed: the clients.
        states: the trainer's, of at least one round, given the state to go on from or None.
        measure: figures of a state.
        settings: the method.
        checkpoint: replaced after every round.
        metrics: a file of JSON lines, one a round.
        progress: receives one line a round.
        excess: of a model, the bound by which divergence is noticed; None for finite numbers alone.

    Raises:
        DivergedError: a model, or every client's update, is not finite or outside the bound.
        FederationError: a checkpoint of another method or setting.
    """
    state = None if checkpoint is None else resumed(fed, checkpoint, settings)
    watched = _watched(fed, states(state), settings, excess)
    driven = fed.rounds(
        watched, checkpoint=checkpoint, metrics=metrics, progress=progress, measure=measure
    )
    for each in driven:
        state = each
    # A run that was already at its end has measured nothing.
    measure(state)
    return state


def resumed(fed: Federation, checkpoint: Path, settings: Settings) -> Any:
    """The state of a checkpoint to go on from; None where there is no such file.

    Args:
        fed: of the same clients, seed, aggregation and privacy.
        checkpoint: the file.
        settings: the method, as it was then but for the number of rounds.

    Raises:
        FederationError: a checkpoint of another method, or of other settings.
    """
    return fed.resume(
        checkpoint, method=settings.method, settings=settings.lasting(), moved=settings.moved()
    )


LARGEST_RATIO = 10.0
"""Divergence is stated from this objective on, in units of that of a model without weights."""


_REMEDIES = {
    "learning_rate": "lower the learning rate",
    "step_size": "lower the step size",
    "damping": "raise the damping",
    "safeguard": "keep the safeguard",
    "ridge": "raise the ridge",
}


def remedy_of(settings: Settings) -> str:
    """What to do about a run that diverged, by the options that its method has."""
    own = {declared.name for declared in settings.declared()}
    if "learning_rate" in own:
        cause, names = "steps that are too long for these features are", ["learning_rate"]
    else:
        cause, names = "a curvature that is too small is", [n for n in _REMEDIES if n in own]
    ways = [*(_REMEDIES[name] for name in names), "scale the features down"]
    return f"{cause} the likely cause: {', '.join(ways[:-1])} or {ways[-1]}"


def _watched(fed: Federation, states: States, settings: Settings, excess: Excess | None) -> States:
    """The states, up to the first one that diverged."""
    method = settings.method
    remedy = remedy_of(settings)
    try:
        for state in states:
            who = f"{method}, round {fed.round}"
            require_sound(state, who=who, remedy=remedy, excess=excess)
            yield state
    except QuorumError as error:
        if not fed.refused:
            raise
        raise DivergedError(
            f"{method}, round {fed.round}: training diverged, the updates of"
            f" {len(set(fed.refused))} of {len(fed.participants)} clients are not finite"
            f" ({error}); {remedy}"
        ) from error


def check_cohort(method: Settings, clients: int, *, secure: bool) -> None:
    """Refuses before anything is booked what the first round would refuse after it.

    Args:
        method: with the clients that it draws for a round, if it does.
        clients: of the federation.
        secure: whether sums are masked.

    Raises:
        InputError: more clients a round than there are, or masks for one.
    """
    drawn = getattr(method, "drawn", None)
    if drawn is not None and drawn > clients:
        raise InputError(
            f"participation: {drawn} clients a round of a federation of {clients}; ask for fewer"
        )
    if secure and (drawn or clients) < 2:
        raise InputError(
            "secure aggregation: 1 client takes part, at least 2 are needed, for a sum of one is"
            " that one; add clients, or leave out --aggregate secure"
        )


def traffic_of(fed: Federation) -> dict[str, tuple[int, int]]:
    """Bytes that each client sent and received so far, by name."""
    totals = {name: fed.meter.total(name) for name in fed.names}
    return {name: (each.bytes_up, each.bytes_down) for name, each in totals.items()}


def files_room(numbers: int, *, rounds: int, clients: int, personal: bool = False) -> list[int]:
    """Bytes that a run's files have at most, for `secure_fl.files.reserve`.

    Args:
        numbers: of the model, 8 bytes each at most.
        rounds: in the log.
        clients: in every line of the log.
        personal: whether every client may get a model of its own.
    """
    model = (1 << 20) + 8 * numbers
    return [model] * (1 + clients * personal) + [rounds * (1024 + 512 * clients)]


def prove_checkpoint(checkpoint: Path | None, size: int) -> None:
    """Raises what keeping a checkpoint and its log of rounds would, before anything is spent.

    Args:
        checkpoint: the file, or None.
        size: bytes of the model and of the log together.

    Raises:
        InputError: a file cannot be written there.
        StorageError: there is no room.
    """
    if checkpoint is not None:
        prove_writable(checkpoint, size)
        prove_writable(Path(f"{checkpoint}.jsonl"), size)
