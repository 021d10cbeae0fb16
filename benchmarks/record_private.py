"""What does a head cost that hides every whole record, not only one entry of it?

20 Newsgroups, MiniLM features at unit norm, delta 1e-5, noise of the clients in masked sums:

- `private_ridge`: ridge regression from one sum of second moments; neither norm nor ridge is tuned;
- its class sums alone, the nearest direction deciding;
- `kahm_record_private`: discriminants of moments and two sums of residuals within the same epsilon,
  and the kernel affine hull machines of synthetic records that decide as they do, also by codes of
  8 bits over a range that follows from the release. Its constants were chosen on a split of the
  training records, not on the test records.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._federations import clients_of
from benchmarks._harness import Run, Split, benchmark, newsgroups, spread
from dp import Ledger
from fhe.code import CodeRange, encode_measures
from secure_fl.data import dirichlet
from secure_fl.federation import Federation, SecureAggregation
from secure_fl.heads.record_private import released_range
from secure_fl.objectives import SquaredLoss
from secure_fl.trainers.linear import (
    discriminant_machines,
    kahm_record_private,
    krr,
    private_ridge,
)

EPSILONS = (1.0, 3.0, 8.0)
CLIENTS = (10, 100)
ALPHA = 0.1
DELTA = 1e-5
FREE_RIDGE = 1e-4
"""Of the reference without privacy."""


BITS = 8
KINDS = ("mean", "ridge", "discriminants", "machines", "codes")
COLUMNS = (
    "clients",
    "epsilon per record",
    "nearest class mean",
    "private_ridge",
    "kahm_record_private: discriminants",
    "machines",
    f"machines, {BITS}-bit codes",
    "seconds of both releases",
)


@dataclass
class Found:
    """Accuracies of one release of each kind, and seconds of both."""

    mean: float
    ridge: float
    discriminants: float
    machines: float
    codes: float
    seconds: float


def _accuracy(data: Split, weights: Any) -> float:
    return _share(data, np.argmax(data.X_test @ weights, axis=1))


def _share(data: Split, predicted: Any) -> float:
    return 100.0 * float(np.mean(predicted == data.y_test))


def _released(data: Split, trainer: Any, clients: int, epsilon: float, seed: int) -> Any:
    parts = dirichlet(data.y_train, clients, ALPHA, np.random.default_rng(seed))
    members = clients_of(data.X_train.astype(np.float64), data.y_train, parts)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "ledger", "20 newsgroups")
        # All clients stay here; a run with drop-outs sizes the noise for a lower threshold.
        with Federation(
            members, seed=seed, aggregation=SecureAggregation(), threshold=clients
        ) as fed:
            (state,) = trainer(
                fed,
                features=data.X_train.shape[1],
                outputs=len(data.classes),
                norm=1.0,
                epsilon=epsilon,
                ledger=ledger,
                delta=DELTA,
            )
    return state


def _private(data: Split, clients: int, epsilon: float, seed: int) -> Found:
    start = time.perf_counter()
    ridge = _released(data, private_ridge, clients, epsilon, seed)
    state = _released(data, kahm_record_private, clients, epsilon, seed)
    seconds = time.perf_counter() - start
    rng = np.random.default_rng(seed)
    bank = discriminant_machines(state.weights, state.norm, rng)
    measures = bank.measures(data.X_test)
    span = CodeRange(*released_range(bank, state, rng))
    return Found(
        _accuracy(data, ridge.cross / np.linalg.norm(ridge.cross, axis=0)),
        _accuracy(data, ridge.weights),
        _accuracy(data, state.weights),
        _share(data, np.argmin(measures, axis=1)),
        _share(data, np.argmin(encode_measures(measures, BITS, span), axis=1)),
        seconds,
    )


@benchmark("how accurate is a head with record-level privacy on 20 Newsgroups?")
def main(run: Run) -> None:
    """Masked sums under the clients' noise; epsilon is per record replaced, label included."""
    data = newsgroups(scale=1.0)
    run.parameter(delta=DELTA, alpha=ALPHA, norm=1.0)
    seeds = run.seeds(0) if run.quick else run.seeds(0, 1, 2)
    table = run.table("accuracy in percent", COLUMNS)
    for clients in CLIENTS[:1] if run.quick else CLIENTS:
        for epsilon in EPSILONS:
            run.progress(f"{clients} clients, epsilon {epsilon:g}")
            found = [_private(data, clients, epsilon, seed) for seed in seeds]
            cells = (spread([getattr(each, name) for each in found]) for name in KINDS)
            pace = sum(each.seconds for each in found) / len(found)
            table.add(clients, f"{epsilon:g}", *cells, pace)
    parts = dirichlet(data.y_train, CLIENTS[0], ALPHA, np.random.default_rng(0))
    members = clients_of(data.X_train.astype(np.float64), data.y_train, parts)
    objective = SquaredLoss(FREE_RIDGE, len(data.classes))
    (free,) = krr(Federation(members), objective)
    table.add(
        CLIENTS[0], "none (no privacy)", None, f"{_accuracy(data, free.weights):.1f}", *[None] * 4
    )
    run.note("epsilon is at delta 1e-5 and protects one whole record, its label included")


if __name__ == "__main__":
    main()
