"""FedRCO on MNIST beside first-order peers: accuracy by round and second, and the monitor's events.

After fedrco.txt, section 6 and E.3: the paper's CNN, 20 mini-batches of 32 a round, participation
0.8, damping 0.03, moving average 0.95, learning rate 0.00625. First-order peers take rate 0.05.
Personal accuracy is that of the clients' own models, averaged over
the clients drawn after the last round, whose events are the ones counted.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np

from benchmarks._data import mnist
from benchmarks._federations import clients_of
from benchmarks._harness import Run, benchmark
from secure_fl.data import dirichlet, pathological
from secure_fl.federation import Federation, FixedProbability

INTERVALS = (20, 50, 500)
TESTED = 2000
"""Test records of the accuracies: the first of the test set."""


@benchmark("does curvature pay in federated MNIST?")
@click.option("--rounds", default=50, show_default=True, help="Rounds of every method.")
@click.option("--clients", default=10, show_default=True, help="Number of clients.")
@click.option(
    "--partition",
    type=click.Choice(["dirichlet", "pathological"]),
    default="dirichlet",
    show_default=True,
    help="Dirichlet of 0.1, or 2 classes a client.",
)
def main(run: Run, rounds: int, clients: int, partition: str) -> None:
    """Trains every method for the same rounds on the same partition."""
    import torch

    torch.set_num_threads(1)
    if run.quick:
        rounds = min(rounds, 2)
    (seed,) = run.seeds(0)
    run.parameter(rounds=rounds, clients=clients, partition=partition)
    data = mnist()
    rng = np.random.default_rng(seed)
    if partition == "dirichlet":
        parts = dirichlet(data.y_train, clients, 0.1, rng, min_records=32)
    else:
        parts = pathological(data.y_train, clients, 2, rng)
    X, y = data.X_test[:TESTED], data.y_test[:TESTED]
    table = run.table(
        "accuracy in percent",
        ["method", "global", "personal", "seconds", "rollbacks", "resets", "inversions"],
    )

    def fed() -> Federation:
        own = clients_of(data.X_train, data.y_train, parts)
        return Federation(own, seed=seed, participation=FixedProbability(0.8))

    for method, train, personal in _methods(rounds, seed, 3 if run.quick else None):
        run.progress(method)
        table.add(method, *_measured(fed(), train, personal, X, y))
    run.note(f"accuracies on the first {TESTED} test records; one seed")


Trainer = Callable[[Federation], Iterator[Any]]


def _methods(rounds: int, seed: int, most: int | None) -> list[tuple[str, Trainer, bool]]:
    from secure_fl.kfac import Curvature
    from secure_fl.networks import (
        LocalTraining,
        NetworkState,
        SecondOrder,
        Thresholds,
        fedavg,
        fedrco,
    )
    from secure_fl.trainers.server import Adam, Momentum

    model = _model()
    start = NetworkState(model.initial(np.random.default_rng(seed)))
    first = LocalTraining(0.05, steps=20, batch_size=32)
    prox = LocalTraining(0.05, steps=20, batch_size=32, proximal=0.01)
    second = LocalTraining(0.00625, steps=20, batch_size=32)

    def averaging(training: LocalTraining, server: Any = None) -> Trainer:
        return lambda fed: fedavg(
            fed, model, start=start, rounds=rounds, training=training, server=server
        )

    def curved(interval: int = 200, monitor: bool = True, **more: Any) -> Trainer:
        persistent = more.pop("persistent", True)
        options = SecondOrder(
            second,
            Curvature(interval=interval, persistent=persistent),
            Thresholds() if monitor else None,
            **more,
        )
        return lambda fed: fedrco(fed, model, start=start, rounds=rounds, options=options)

    found = [
        ("FedAvg", averaging(first), False),
        ("FedRCO, T_inv 200", curved(), True),
        ("FedRCO-ori, T_inv 200", curved(personal=False), False),
        ("FedRCO, no monitor", curved(monitor=False), True),
        ("FedAvgM", averaging(first, Momentum(0.9)), False),
        ("FedAdam", averaging(first, Adam(0.003)), False),
        ("FedProx", averaging(prox), False),
        (
            "fresh factors every round, averaged",
            curved(monitor=False, personal=False, persistent=False),
            False,
        ),
        *((f"FedRCO, T_inv {n}", curved(interval=n), True) for n in INTERVALS),
    ]
    return found[:most]


def _model() -> Any:
    from secure_fl.networks import ConvNet

    return ConvNet(10, (1, 28, 28))


def _measured(fed: Federation, train: Trainer, personal: bool, X: Any, y: Any) -> list[Any]:
    from secure_fl.networks import accuracy, events, personal_accuracy

    began = time.perf_counter()
    for state in fed.rounds(train(fed)):
        last = state
    seconds = time.perf_counter() - began
    shared = 100 * accuracy(_model(), last.parameters, X, y)
    counted = fed.sum(events)
    own = None
    if personal:
        scores = fed.gather(personal_accuracy, _model(), last.parameters, X, y)
        own = 100 * float(np.mean(scores))
    return [
        shared,
        own,
        seconds,
        *(int(counted[key]) for key in ("rollbacks", "resets", "inversions")),
    ]


if __name__ == "__main__":
    main()
