"""What does a head cost that hides every whole record, not only one entry of it?

20 Newsgroups, MiniLM features at unit norm, delta 1e-5: ridge regression from one secure sum of
second moments, noised by the clients for record-level privacy (`private_ridge`). Nothing is tuned
on the records: neither norm nor ridge is a parameter.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks._federations import clients_of
from benchmarks._harness import Run, Split, benchmark, newsgroups, spread
from dp import Ledger
from secure_fl.data import dirichlet
from secure_fl.federation import Federation, SecureAggregation
from secure_fl.objectives import SquaredLoss
from secure_fl.trainers import AveragingState, PrivateRidgeState, krr, private_ridge

EPSILONS = (1.0, 3.0, 8.0)
CLIENTS = (10, 100)
ALPHA = 0.1
DELTA = 1e-5
FREE_RIDGE = 1e-4
"""Of the reference without privacy."""


def _accuracy(data: Split, state: PrivateRidgeState | AveragingState) -> float:
    predicted = np.argmax(data.X_test @ state.weights, axis=1)
    return 100.0 * float(np.mean(predicted == data.y_test))


def _private(data: Split, clients: int, epsilon: float, seed: int) -> float:
    parts = dirichlet(data.y_train, clients, ALPHA, np.random.default_rng(seed))
    members = clients_of(data.X_train.astype(np.float64), data.y_train, parts)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "ledger", "20 newsgroups")
        # All clients stay here; a run with drop-outs sizes the noise for a lower threshold.
        with Federation(
            members, seed=seed, aggregation=SecureAggregation(), threshold=clients
        ) as fed:
            (state,) = private_ridge(
                fed,
                features=data.X_train.shape[1],
                outputs=len(data.classes),
                norm=1.0,
                epsilon=epsilon,
                ledger=ledger,
                delta=DELTA,
            )
    return _accuracy(data, state)


@benchmark("how accurate is a head with record-level privacy on 20 Newsgroups?")
def main(run: Run) -> None:
    """One secure sum of noisy second moments; epsilon is per record replaced, label included."""
    data = newsgroups(scale=1.0)
    run.parameter(delta=DELTA, alpha=ALPHA, norm=1.0)
    seeds = run.seeds(0) if run.quick else run.seeds(0, 1, 2)
    table = run.table(
        "accuracy in percent", ["clients", "epsilon per record", "accuracy", "seconds of a release"]
    )
    for clients in CLIENTS[:1] if run.quick else CLIENTS:
        for epsilon in EPSILONS:
            run.progress(f"{clients} clients, epsilon {epsilon:g}")
            start = time.perf_counter()
            scores = [_private(data, clients, epsilon, seed) for seed in seeds]
            pace = (time.perf_counter() - start) / len(seeds)
            table.add(clients, f"{epsilon:g}", spread(scores), pace)
    parts = dirichlet(data.y_train, CLIENTS[0], ALPHA, np.random.default_rng(0))
    members = clients_of(data.X_train.astype(np.float64), data.y_train, parts)
    objective = SquaredLoss(FREE_RIDGE, len(data.classes))
    (free,) = krr(Federation(members), objective)
    table.add(CLIENTS[0], "none (no privacy)", f"{_accuracy(data, free):.1f}", None)
    run.note("epsilon is at delta 1e-5 and protects one whole record, its label included")


if __name__ == "__main__":
    main()
