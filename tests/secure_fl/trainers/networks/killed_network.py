"""A run of networks in a process of its own, which can kill itself at a given point.

python -m tests.secure_fl.trainers.networks.killed_network FOLDER ROUNDS SETTING WORKERS POINT COUNT
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from dp import Budget, Gaussian, Ledger, compose
from secure_fl.federation import Client, ClientPrivacy, Federation, FixedNumber, SecureAggregation
from secure_fl.federation import privacy as of_clients
from secure_fl.trainers.networks import (
    DPSGD,
    FourierModel,
    LocalTraining,
    NetworkState,
    Perceptron,
    Regularization,
    SecondOrder,
    fedavg,
    fedavgr,
    fedrco,
    make_plan,
)
from secure_fl.trainers.networks.record_privacy import UNIT
from tests.secure_fl.federation.killed_run import kill_at

ROUNDS, RECORDS = 3, 40
PRIVATE = LocalTraining(0.2, steps=3, batch_size=8, privacy=DPSGD(3.0, 1e-4, rounds=ROUNDS))
PENALTIES = Regularization(1e-3, 1e-3, 0.1, samples=5)
NOISE = 1.0


def exact_ledger(path: Path, unit: Any, plan: list[Gaussian]) -> Ledger:
    """The books at that path; new ones have room for the plan and not for an event more."""
    if path.exists():
        return Ledger.open(path)
    budget = Budget(compose([], plan, 1e-4).epsilon * (1 + 1e-6), 1e-4, unit)
    return Ledger.create(path, path.stem, budget)


def make_clients(folder: Path, *, private: bool) -> list[Client]:
    rng = np.random.default_rng(3)
    centres = 2.0 * rng.normal(size=(3, 5))
    plan = make_plan(RECORDS, PRIVATE, features=True).of(ROUNDS) if private else []
    found = []
    for k in range(4):
        y = rng.choice([k % 3, (k + 1) % 3], size=RECORDS)
        X = centres[y] + rng.normal(size=(RECORDS, 5))
        ledger = exact_ledger(folder / f"c{k}.jsonl", UNIT, plan) if private else None
        found.append(Client(f"c{k}", X, y, ledger=ledger))
    return found


def main() -> None:
    folder, rounds, setting, workers = Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5]
    kill_at(sys.argv[5], int(sys.argv[6]))
    options: dict[str, Any] = {}
    if setting == "record":
        options = {"participation": FixedNumber(3), "aggregation": SecureAggregation()}
    if setting == "client":
        plan = [Gaussian(NOISE, steps=ROUNDS)]
        books = exact_ledger(folder / "ledger.jsonl", of_clients.UNIT, plan)
        options = {"aggregation": SecureAggregation()}
        options["privacy"] = ClientPrivacy(1.0, NOISE, ROUNDS, books)
    clients = make_clients(folder, private=setting == "record")
    with Federation(clients, seed=3, workers=int(workers), **options) as fed:
        start = fed.resume(folder / "checkpoint")
        model: Any = FourierModel(3, 5, 12) if setting == "record" else Perceptron(3, 5, (6,))
        first = NetworkState(model.initial(np.random.default_rng(0)))
        common = {"start": start or first, "rounds": rounds}
        if setting == "record":
            states = fedavgr(fed, model, **common, training=PRIVATE, regularization=PENALTIES)
        elif setting == "client":
            states = fedavg(fed, model, **common, training=LocalTraining(0.1))
        else:
            steps = LocalTraining(0.05, steps=3, batch_size=8)
            states = fedrco(fed, model, **common, options=SecondOrder(steps))
        *_, last = [start, *fed.rounds(states, checkpoint=folder / "checkpoint")]
        (folder / "parameters").write_bytes(last.parameters.tobytes())


if __name__ == "__main__":
    main()
