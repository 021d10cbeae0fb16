"""One run of a method of the FedRCO tables, in a process of its own."""

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from benchmarks._data import Split, mnist
from benchmarks._federations import clients_of
from secure_fl.data import dirichlet, pathological
from secure_fl.federation import Federation, FixedProbability, QuorumError

PARTITIONS = ("Dirichlet 0.1", "2 classes")
CLIENTS = (10, 50)
TESTED = 1000
"""Test records of the accuracies: the first of the test set."""
EVERY = 5
"""Rounds between two measurements of the clients' own models."""
SEED = 0

FIRST = ("FedAvg", "FedAvgM", "FedAdam", "FedProx")
SECOND = ("LocalNewton", "FedPM", "FedRCO-ori", "FedRCO")
ABLATIONS: dict[str, dict[str, Any]] = {
    "FedRCO, no monitor": {"monitor": False},
    "FedRCO, T_inv 20": {"interval": 20},
    "FedRCO, T_inv 50": {"interval": 50},
    "FedRCO, T_inv 500": {"interval": 500},
}
"""Of FedRCO, which has the monitor and T_inv 200."""

Trainer: TypeAlias = Callable[[Federation], Iterator[Any]]


@dataclass(frozen=True)
class Task:
    """One run."""

    partition: str
    clients: int
    method: str
    rounds: int
    device: str
    rate: float
    trial: bool = False


@dataclass(frozen=True)
class Curve:
    """What a run found: accuracies in percent.

    Attributes:
        shared: of the global model, after every round; shorter where the handle refused the
            updates of all clients.
        seconds: spent until then in training, measuring left out.
        own: by round: of the personal models on all test records, of these on the client's mix of
            classes, and of the global model on it; means over the participants.
        counted: rollbacks, resets, inversions.
        inverting: share of the clients' time spent in inversions, in percent.
    """

    shared: list[float]
    seconds: list[float]
    own: dict[int, tuple[float, float, float]]
    counted: tuple[int, int, int]
    inverting: float


@functools.cache
def _data() -> Split:
    return mnist()


def measured(task: Task) -> Curve:
    """One run; its seconds are those of the processor, but of the clock on a graphics card."""
    import torch

    from secure_fl.networks import accuracy, events, personal_accuracy, seconds

    torch.set_num_threads(1)
    clock = time.process_time if task.device == "cpu" else time.perf_counter
    data, model, rng = _data(), _model(), np.random.default_rng(SEED)
    if task.partition == PARTITIONS[0]:
        parts = dirichlet(data.y_train, task.clients, 0.1, rng, min_records=32)
    else:
        parts = pathological(data.y_train, task.clients, 2, rng)
    members = clients_of(data.X_train, data.y_train, parts)
    fed = Federation(members, seed=SEED, participation=FixedProbability(0.8))
    X, y = (data.X_train, data.y_train) if task.trial else (data.X_test, data.y_test)
    test = X[:TESTED], y[:TESTED]
    shared: list[float] = []
    spent: list[float] = []
    own: dict[int, tuple[float, float, float]] = {}
    total, states = 0.0, _trainer(task, model)(fed)
    while True:
        began = clock()
        try:
            state = next(states, None)
        except QuorumError:
            break
        if state is None:
            break
        total += clock() - began
        shared.append(100 * accuracy(model, state.parameters, *test))
        spent.append(total)
        if not task.trial and (state.round % EVERY == 0 or state.round == task.rounds):
            found = fed.gather(personal_accuracy, model, state.parameters, *test)
            own[state.round] = _own(found)
        fed.close_round()
    everyone = Federation(members)
    counted, times = everyone.sum(events), everyone.sum(seconds)
    share = 100 * float(times["inverting"]) / max(float(times["training"]), 1e-9)
    rollbacks, resets, inversions = (
        int(counted[key]) for key in ("rollbacks", "resets", "inversions")
    )
    return Curve(shared, spent, own, (rollbacks, resets, inversions), share)


def _own(found: list[Any]) -> tuple[float, float, float]:
    personal, mix, shared = (
        100 * float(np.mean([each[key] for each in found]))
        for key in ("personal", "personal_mix", "global_mix")
    )
    return personal, mix, shared


def _model() -> Any:
    from secure_fl.networks import ConvNet

    return ConvNet(10, (1, 28, 28))


def _trainer(task: Task, model: Any) -> Trainer:
    from secure_fl.kfac import Curvature
    from secure_fl.networks import (
        LocalTraining,
        NetworkState,
        SecondOrder,
        Thresholds,
        fedavg,
        fedpm,
        fedrco,
    )
    from secure_fl.trainers.server import Adam, Momentum

    common: dict[str, Any] = {
        "start": NetworkState(model.initial(np.random.default_rng(SEED))),
        "rounds": task.rounds,
    }
    size: dict[str, Any] = {"steps": 20, "batch_size": 32, "device": task.device}
    local = LocalTraining(0.1 if task.method == "FedAdam" else task.rate, **size)

    def averaging(training: LocalTraining = local, server: Any = None) -> Trainer:
        return lambda fed: fedavg(fed, model, training=training, server=server, **common)

    def curved(
        interval: int = 200, monitor: bool = True, personal: bool = True, persistent: bool = True
    ) -> Trainer:
        options = SecondOrder(
            local,
            Curvature(interval=interval, persistent=persistent),
            Thresholds() if monitor else None,
            personal,
        )
        return lambda fed: fedrco(fed, model, options=options, **common)

    trainers: dict[str, Callable[[], Trainer]] = {
        "FedAvg": averaging,
        "FedAvgM": lambda: averaging(server=Momentum(0.9)),
        "FedAdam": lambda: averaging(server=Adam(task.rate)),
        "FedProx": lambda: averaging(replace(local, proximal=0.01)),
        "LocalNewton": lambda: curved(monitor=False, personal=False, persistent=False),
        "FedPM": lambda: lambda fed: fedpm(fed, model, training=local, **common),
        "FedRCO-ori": lambda: curved(personal=False),
        "FedRCO": curved,
    }
    if task.method in ABLATIONS:
        return curved(**ABLATIONS[task.method])
    return trainers[task.method]()
