"""Networks of `securefl train --model`: what they promise every record, and how they run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secure_fl.trainers.network_settings import NetworkSettings

if TYPE_CHECKING:
    from secure_fl.data import Dataset
    from secure_fl.federation import ClientPrivacy
    from secure_fl.training.outcome import Trained


@dataclass(frozen=True)
class RecordPromise:
    """--epsilon, --delta, --norm, --ledgers and --budget of a method that hides single records."""

    epsilon: float
    delta: float
    norm: float | None
    ledgers: Path | None
    budget: float | None


def train_network(
    clients: Sequence["Dataset"],
    settings: NetworkSettings,
    record: RecordPromise | None,
    noise: "ClientPrivacy | None",
    ledgers: Any,
    clip: float | None,
    options: dict[str, Any],
) -> "Trained":
    """Runs the method, with what every record is promised, if anything."""
    from secure_fl.errors import InputError
    from secure_fl.trainers.networks import DPSGD
    from secure_fl.training.networks import train_network as run

    promise = None
    if record is not None:
        gradient = 1.0 if clip is None else clip
        try:
            promise = DPSGD(record.epsilon, record.delta, settings.rounds, clip=gradient)
        except ValueError as error:
            raise InputError(str(error)) from None
        options = options | {"ledgers": ledgers, "budget": record.budget}
    return run(clients, settings, client_level=noise, record_level=promise, **options)
