"""A run of a method of the FedRCO benchmarks: what there is to choose, and its data."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from benchmarks._data import Split, cifar10_long_tail, digits, mnist
from benchmarks._federations import clients_of
from benchmarks._fedrco_curves import Curve
from benchmarks._fedrco_kept import Keep
from secure_fl.data import dirichlet, iid, pathological
from secure_fl.data.partition import Parts
from secure_fl.federation import Client

PARTITIONS = ("Dirichlet 0.1", "2 classes")
CLIENTS = (10, 50)
TESTED = 1000
"""Test records of the accuracies: the first of the test set."""
EVERY = 5
"""Rounds between two measurements of the clients' own models."""

STEPS, INTERVAL = 20, 200
"""Mini-batches of a round, and T_inv."""
WARM_UP = (10, 50)
ALONE = "local only"
TUNED = "FedAvg, tuned"
"""FedAvg's global model after one more round's steps at every client; not a run of its own."""
FIRST = ("FedAvg", "FedAvgM", "FedAdam", "FedProx", ALONE)
SECOND = ("LocalNewton", "FedPM", "FedRCO-ori", "FedRCO")
UNWATCHED = "FedRCO, no monitor"
ABLATIONS: dict[str, dict[str, Any]] = {
    UNWATCHED: {"monitor": False},
    "FedRCO, T_inv 20": {"interval": 20},
    "FedRCO, T_inv 50": {"interval": 50},
    "FedRCO, T_inv 500": {"interval": 500},
    "FedRCO, judged by a tenth held out": {"held_out": 0.1},
    "FedRCO, joint norm": {"joint": True},
}
"""Of FedRCO, which has the monitor and T_inv 200; on the first partition with 10 clients."""


@dataclass(frozen=True)
class Task:
    """One run; its seed is that of the partition, the initial weights and the batches.

    Attributes:
        partition: of `DIVISIONS`.
        clients: number of clients.
        method: of `FIRST`, `SECOND` or `ABLATIONS`.
        rounds: of the run.
        device: where to train.
        rate: learning rate; of FedAdam the server's.
        seed: see above.
        trial: judged by training records.
        warm_up: the factors are inverted at `WARM_UP` too.
        data: of `DATA`.
        participation: chance of a client to take part in a round, in (0, 1].
        traced: whether the clients keep the trajectories of their steps.
    """

    partition: str
    clients: int
    method: str
    rounds: int
    device: str
    rate: float
    seed: int = 0
    trial: bool = False
    warm_up: bool = False
    data: str = "mnist"
    participation: float = 0.8
    traced: bool = False


def measured(task: Task, keep: Keep | None = None) -> Curve:
    """One run; its seconds are those of the processor, but of the clock on a graphics card.

    Args:
        task: what to run.
        keep: where finished runs and checkpoints are; a run that is left off because the time is
            over has fewer rounds than its task. None keeps nothing.
    """
    from benchmarks._fedrco_run import run

    return run(task, keep)


# ------------------------------------------------------------------------------------------- data

DATA: dict[str, Callable[[], Split]] = {
    "mnist": mnist,
    "cifar10": lambda: _mixed(cifar10_long_tail(10.0)),
    "digits": lambda: digits(np.random.default_rng(0)),
}
"""CIFAR-10's are features of the long-tailed set; its test records come class by class."""


def _mixed(data: Split) -> Split:
    """Its records in another order: the first test records are to be of all classes."""
    rng = np.random.default_rng(0)
    train, test = (rng.permutation(len(y)) for y in (data.y_train, data.y_test))
    return data.rows(train, test)


def _dirichlet(y: Any, clients: int, rng: np.random.Generator, *, alpha: float) -> Parts:
    return dirichlet(y, clients, alpha, rng, min_records=32)


def _pathological(y: Any, clients: int, rng: np.random.Generator, *, kept: int) -> Parts:
    return pathological(y, clients, kept, rng)


def _iid(y: Any, clients: int, rng: np.random.Generator) -> Parts:
    return iid(len(y), clients, rng)


Division: TypeAlias = Callable[[Any, int, np.random.Generator], Parts]
DIVISIONS: dict[str, Division] = {
    "Dirichlet 0.1": functools.partial(_dirichlet, alpha=0.1),
    "Dirichlet 0.5": functools.partial(_dirichlet, alpha=0.5),
    "Dirichlet 1": functools.partial(_dirichlet, alpha=1.0),
    "IID": _iid,
    "2 classes": functools.partial(_pathological, kept=2),
    "5 classes": functools.partial(_pathological, kept=5),
}
"""Of fedrco.txt, E.2, by name."""


@functools.cache
def split_of(data: str) -> Split:
    """The records of `DATA`, read once a process."""
    return DATA[data]()


@functools.lru_cache(maxsize=2)
def parts_of(data: str, partition: str, clients: int, seed: int) -> list[Client]:
    """The records of the clients; a run makes clients of its own of them."""
    split, rng = split_of(data), np.random.default_rng(seed)
    parts = DIVISIONS[partition](split.y_train, clients, rng)
    return clients_of(split.X_train, split.y_train, parts)
