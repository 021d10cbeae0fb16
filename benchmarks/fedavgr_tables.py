"""FedAvgR beside averaging, its proximal and one-shot forms, and its regularisers one by one.

After tables 2 and 3 of fedavgr.txt: 10 clients, 2 label shards each, 100 trainable random Fourier
features, momentum 0.9, batches of 10. The regularisers' weights are fixed numbers inside the
paper's grids, not chosen by cross-validation, and by default there are fewer rounds and local
epochs than the paper's 300 and 10: the figures are comparable with each other, not with the paper.
"""

from collections.abc import Iterator
from dataclasses import replace

import click
import numpy as np

from benchmarks._data import libsvm
from benchmarks._federations import clients_of
from benchmarks._harness import Run, Split, benchmark, spread
from secure_fl.data import shards
from secure_fl.federation import Federation

DATA = ("dna", "satimage", "pendigits", "usps")
CLIENTS = 10
WIDTH = 100
TRACE, FEATURES, MMD, PROXIMAL = 1e-5, 1e-4, 1e-2, 1e-3
RATE = 0.2
"""Features have norm 1 here; those of the paper are larger by the root of their number."""


@benchmark("what are FedAvgR's regularisers worth on label shards?")
@click.option("--rounds", default=30, show_default=True, help="Rounds; the paper has 300.")
@click.option("--epochs", default=1, show_default=True, help="Local epochs; the paper has 10.")
@click.option("--data", default=",".join(DATA), show_default=True, help="Data sets, by comma.")
def main(run: Run, rounds: int, epochs: int, data: str) -> None:
    """Trains every method on every data set and seed."""
    import torch

    torch.set_num_threads(1)
    if run.quick:
        rounds, data = min(rounds, 10), "dna"
    seeds = run.seeds(0, 1, 2)
    run.parameter(rounds=rounds, epochs=epochs, clients=CLIENTS, width=WIDTH, trace=TRACE)
    run.parameter(features=FEATURES, mmd=MMD, proximal=PROXIMAL, learning_rate=RATE)
    table = run.table(
        "test accuracy in percent", ["data", "method", "accuracy", "p against FedAvg"]
    )
    for name in data.split(","):
        split = libsvm(name)
        found: dict[str, list[float]] = {}
        for seed in seeds:
            run.progress(f"{name}, seed {seed}")
            for method, accuracy in _trial(split, seed, rounds, epochs):
                found.setdefault(method, []).append(accuracy)
        for method, values in found.items():
            table.add(name, method, spread(values, 2), _paired(values, found["FedAvg"]))
    run.note("p: two-sided paired t-test over the seeds; empty where all differences are equal")


def _trial(data: Split, seed: int, rounds: int, epochs: int) -> Iterator[tuple[str, float]]:
    """Every method on one partition and one draw of the initial features."""
    from secure_fl.networks import (
        FourierModel,
        LocalTraining,
        NetworkState,
        Regularization,
        accuracy,
        fedavg,
        fedavgr,
    )

    rng = np.random.default_rng(seed)
    parts = shards(data.y_train, CLIENTS, 2, rng)
    # Frequencies of deviation 1/sqrt(d) over the features' own spread: products of order 1.
    scale = 1.0 / float(np.linalg.norm(data.X_train.std(axis=0)))
    model = FourierModel(len(data.classes), data.X_train.shape[1], WIDTH, scale)
    start = NetworkState(model.initial(rng))
    training = LocalTraining(RATE, epochs=epochs, momentum=0.9)

    def fed() -> Federation:
        return Federation(clients_of(data.X_train, data.y_train, parts), seed=seed)

    def score(states: Iterator[NetworkState]) -> float:
        for state in states:
            parameters = state.parameters
        return 100.0 * accuracy(model, parameters, data.X_test, data.y_test)

    def averaged(own: LocalTraining, count: int) -> float:
        return score(fedavg(fed(), model, start=start, rounds=count, training=own))

    def regularised(terms: Regularization) -> float:
        return score(
            fedavgr(
                fed(), model, start=start, rounds=rounds, training=training, regularization=terms
            )
        )

    yield "OneShot", averaged(replace(training, epochs=rounds * epochs), 1)
    yield "FedAvg", averaged(training, rounds)
    yield "FedProx", averaged(replace(training, proximal=PROXIMAL), rounds)
    yield "trace norm only", regularised(Regularization(trace=TRACE))
    yield "feature norm only", regularised(Regularization(features=FEATURES))
    yield "MMD only", regularised(Regularization(mmd=MMD))
    yield "FedAvgR", regularised(Regularization(TRACE, FEATURES, MMD))


def _paired(values: list[float], other: list[float]) -> float | None:
    from scipy.stats import ttest_rel

    if len(values) < 2 or len({a - b for a, b in zip(values, other, strict=True)}) < 2:
        return None
    return float(ttest_rel(values, other).pvalue)


if __name__ == "__main__":
    main()
