"""A training run in a process of its own, which can kill itself at a given point.

python -m tests.secure_fl.federation.killed_run FOLDER ROUNDS SETTING WORKERS POINT COUNT
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dp import Budget, Gaussian, Ledger, compose
from secure_fl.federation import (
    Client,
    ClientPrivacy,
    Federation,
    FixedNumber,
    RandomDropOuts,
    SecureAggregation,
    broadcastable,
    checkpoint,
    client_step,
)
from secure_fl.federation.privacy import UNIT, NoiseSource
from tests.secure_fl.federation.conftest import make_clients

NOISE, EXACT = 2.0, 4
"""Of the private runs; sums of the one whose budget has room for no more: two rounds."""


@broadcastable
@dataclass(frozen=True)
class State:
    """What the trainer carries."""

    weights: np.ndarray
    round: int = 0


@client_step
def step(client: Client, weights: np.ndarray) -> np.ndarray:
    """Uses everything that a resumed run must restore: own state, and randomness of the round."""
    momentum = client.state.get("momentum", np.zeros(4))
    rows = client.rng.integers(0, len(client), 3)
    gradient = client.features[rows].T @ (client.features[rows] @ weights - client.targets[rows])
    client.state["momentum"] = 0.9 * momentum + gradient
    return client.state["momentum"]


@client_step
def loss(client: Client, weights: np.ndarray) -> np.ndarray:
    return np.array(np.mean((client.features @ weights - client.targets) ** 2))


def trainer(fed: Federation, rounds: int, start: State | None) -> Iterator[State]:
    state = start or State(np.zeros(4))
    while state.round < rounds:
        weights = state.weights - 0.05 * fed.mean(step, state.weights)
        fed.mean(loss, weights)
        state = State(weights, state.round + 1)
        yield state


def kill_at(point: str, count: int) -> None:
    """Ends the process like a power cut, at the count-th passage of a point."""
    passed = 0

    def dying(function: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal passed
            result = function(*arguments, **options) if after else None
            passed += 1
            if passed == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return result if after else function(*arguments, **options)

        return call

    match point:
        case "noise":
            NoiseSource.draw = dying(NoiseSource.draw, after=False)  # type: ignore[method-assign]
        case "booked":
            Ledger.spend = dying(Ledger.spend, after=True)  # type: ignore[method-assign]
        case "sum":
            Federation.mean = dying(Federation.mean, after=True)  # type: ignore[method-assign]
        case "before checkpoint":
            checkpoint.write_atomic = dying(checkpoint.write_atomic, after=False)
        case "after checkpoint":
            checkpoint.write_atomic = dying(checkpoint.write_atomic, after=True)
        case "rename":
            Path.replace = dying(Path.replace, after=False)  # type: ignore[method-assign]


def _books(path: Path, exact: bool) -> Ledger:
    if not exact:
        return Ledger.create(path, "trial")
    plan = compose([], [Gaussian(NOISE, steps=EXACT)], 1e-5)
    return Ledger.create(path, "trial", Budget(plan.epsilon * (1 + 1e-6), 1e-5, UNIT))


def main() -> None:
    folder, rounds, setting, workers = Path(sys.argv[1]), *sys.argv[2:5]
    kill_at(sys.argv[5], int(sys.argv[6]))
    options: dict[str, Any] = {"participation": FixedNumber(5)}
    if setting in ("private", "exact"):
        path, exact = folder / "ledger.jsonl", setting == "exact"
        ledger = Ledger.open(path) if path.exists() else _books(path, exact)
        options = {
            "aggregation": SecureAggregation(),
            "privacy": ClientPrivacy(1.0, NOISE, EXACT if exact else 100, ledger),
            "drop_outs": RandomDropOuts(0.05),
            "threshold": 4,
        }
    with Federation(make_clients(7), seed=3, workers=int(workers), **options) as fed:
        start = fed.resume(folder / "checkpoint")
        states = trainer(fed, int(rounds), start)
        files = {"checkpoint": folder / "checkpoint", "metrics": folder / "rounds.jsonl"}
        *_, last = [start, *fed.rounds(states, **files)]
        (folder / "weights").write_bytes(last.weights.tobytes())


if __name__ == "__main__":
    main()
