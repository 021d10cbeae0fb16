"""What do networks lose when every record of every client is hidden?

MNIST in label shards (10 clients, 2 shards each), random Fourier features that learn: FedAvg and
FedAvgR, by DP-SGD with each client's own books, and without privacy by as many steps on batches of
the same size. Nothing is fitted to the records: scale, clip and weights of the regularisers are
constants, the latter from the middle of the paper's grids.
"""

import functools
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks._data import mnist
from benchmarks._federations import clients_of
from benchmarks._harness import COUNT, Run, Split, benchmark, spread
from dp import Ledger
from secure_fl.data import shards
from secure_fl.federation import Federation

EPSILONS = (1.0, 3.0, 8.0, None)
METHODS = ("FedAvg", "FedAvgR")
DELTA = 1e-5
CLIENTS = 10
WIDTH = 30
SCALE = 1 / 7
"""Of pixels in [0, 1]: images then have about unit length around their mean."""
STEPS, BATCH = 10, 128
RATE, MOMENTUM, CLIP = 8.0, 0.5, 1.0
WEIGHTS = {"mmd": 1e-2 * WIDTH, "features": 1e-4 * WIDTH**0.5, "trace": 1e-6 * WIDTH**-0.5}
"""Of the paper's grids (fedavgr.txt, 5.3), for features that are shorter by sqrt(WIDTH)."""


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        accuracy: on the test records, in percent.
        spent: largest epsilon in a client's books; 0 without privacy.
        multiplier: largest noise multiplier of a client; 0 without privacy.
        seconds: of a round.
    """

    accuracy: float
    spent: float
    multiplier: float
    seconds: float


@benchmark("how accurate are federated networks with record-level privacy on MNIST?")
@click.option(
    "--rounds", type=COUNT, default=10, show_default=True, help=f"Of {STEPS} local steps."
)
@click.option(
    "--seeds", type=COUNT, default=2, show_default=True, help="Partitions and initial weights."
)
@click.option("--workers", type=COUNT, default=2, show_default=True, help="Processes.")
def main(run: Run, rounds: int, seeds: int, workers: int) -> None:
    """Trains both methods at every epsilon and without privacy."""
    epsilons: tuple[float | None, ...] = EPSILONS
    if run.quick:
        rounds, seeds, epsilons = min(rounds, 2), 1, (8.0, None)
    run.parameter(rounds=rounds, clients=CLIENTS, steps=STEPS, batch=BATCH, width=WIDTH)
    run.parameter(learning_rate=RATE, momentum=MOMENTUM, clip=CLIP, delta=DELTA)
    tasks = [
        (method, epsilon, seed)
        for epsilon in epsilons
        for seed in run.seeds(*range(seeds))
        for method in METHODS
    ]
    found: dict[tuple[str, float | None], list[Trial]] = {}
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        running = [pool.submit(_trial, *task, rounds) for task in tasks]
        for (method, epsilon, seed), future in zip(tasks, running, strict=True):
            found.setdefault((method, epsilon), []).append(future.result())
            run.progress(f"{method}, epsilon {epsilon}, seed {seed}")
    _show(run, found, epsilons)


@functools.cache
def _images() -> Split:
    data = mnist()
    scale = np.float32(SCALE)
    return replace(data, X_train=data.X_train * scale, X_test=data.X_test * scale)


def _trial(method: str, epsilon: float | None, seed: int, rounds: int) -> Trial:
    import torch

    from secure_fl.trainers.networks import (
        DPSGD,
        FourierModel,
        LocalTraining,
        NetworkState,
        Regularization,
        accuracy,
        fedavg,
        fedavgr,
    )

    torch.set_num_threads(1)
    data, rng = _images(), np.random.default_rng(seed)
    parts = shards(data.y_train, CLIENTS, 2, rng)
    model = FourierModel(len(data.classes), data.X_train.shape[1], WIDTH)
    promise = None if epsilon is None else DPSGD(epsilon, DELTA, rounds, clip=CLIP)
    training = LocalTraining(
        RATE, steps=STEPS, batch_size=BATCH, momentum=MOMENTUM, privacy=promise
    )
    options: dict[str, Any] = {
        "start": NetworkState(model.initial(rng)),
        "rounds": rounds,
        "training": training,
    }
    if method == "FedAvgR":
        options["regularization"] = Regularization(**WEIGHTS)
    with tempfile.TemporaryDirectory() as folder:
        clients = clients_of(data.X_train, data.y_train, parts)
        ledgers = [Ledger.create(Path(folder) / f"{c.name}.jsonl", c.name) for c in clients]
        for client, ledger in zip(clients, ledgers, strict=True):
            client.ledger = ledger
        fed = Federation(clients, seed=seed)
        trainer = fedavgr if method == "FedAvgR" else fedavg
        started = time.perf_counter()
        for state in fed.rounds(trainer(fed, model, **options)):
            last = state
        seconds = (time.perf_counter() - started) / rounds
        spent = max(ledger.get_epsilon(DELTA).epsilon for ledger in ledgers)
        noises = [event.gaussian for ledger in ledgers for event in ledger.events]
    sampled = [n.noise_multiplier for n in noises if n is not None and n.sample_rate < 1]
    percent = 100.0 * accuracy(model, last.parameters, data.X_test, data.y_test)
    return Trial(percent, spent, max(sampled, default=0.0), seconds)


def _show(
    run: Run,
    found: dict[tuple[str, float | None], list[Trial]],
    epsilons: tuple[float | None, ...],
) -> None:
    table = run.table(
        "test accuracy in percent",
        ["epsilon per record", *METHODS, "FedAvgR less FedAvg", "spent", "noise", "s a round"],
    )
    for epsilon in epsilons:
        plain, regular = (found[method, epsilon] for method in METHODS)
        gain = [b.accuracy - a.accuracy for a, b in zip(plain, regular, strict=True)]
        both = plain + regular
        table.add(
            "none (no privacy)" if epsilon is None else f"{epsilon:g}",
            *(spread([t.accuracy for t in each], 2) for each in (plain, regular)),
            spread(gain, 2),
            max(t.spent for t in both),
            max(t.multiplier for t in both),
            float(np.mean([t.seconds for t in both])),
        )
    run.note(
        f"epsilon at delta {DELTA:g} per record (its contribution added or removed, how many there"
        " are is public); spent: the largest of a client's books; noise: largest multiplier"
    )
    run.note("a round's seconds are those of all clients one after the other, calibration included")
    run.note(
        "learning rate, clip and batch size were picked by a few runs on seed 100; that choice"
        " is not in epsilon"
    )


if __name__ == "__main__":
    main()
