"""One run of a method of the FedRCO tables, in a process of its own."""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from benchmarks._data import Split, mnist
from benchmarks._federations import clients_of
from secure_fl.data import dirichlet, pathological
from secure_fl.federation import Client, Federation, FixedProbability, QuorumError

PARTITIONS = ("Dirichlet 0.1", "2 classes")
CLIENTS = (10, 50)
TESTED = 1000
"""Test records of the accuracies: the first of the test set."""
EVERY = 5
"""Rounds between two measurements of the clients' own models."""

START = {
    "FedAvg": 0.1,
    "FedAvgM": 0.05,
    "FedAdam": 0.01,
    "FedProx": 0.1,
    "local only": 0.1,
    **dict.fromkeys(("LocalNewton", "FedPM", "FedRCO-ori", "FedRCO"), 0.025),
}
"""Learning rates that a search begins at: the server's of FedAdam, whose clients take 0.1."""
FACTOR, MOST = 2.0, 7
"""Between neighbouring rates; the most that a search tries."""
STEPS, INTERVAL = 20, 200
"""Mini-batches of a round, and T_inv."""
TRIED = {"intervals": 25, "warm-up": 8}
"""Rounds of a trial: 2.5 T_inv, or enough where the factors are inverted at steps 1, 10 and 50 too.
Before its second inversion a method shows what the first batch at random weights is worth."""
WARM_UP = (10, 50)
LAST = 3
"""Rounds at the end of a trial that count for its accuracy."""

ALONE = "local only"
TUNED = "FedAvg, tuned"
"""FedAvg's global model after one more round's steps at every client; not a run of its own."""
FIRST = ("FedAvg", "FedAvgM", "FedAdam", "FedProx", ALONE)
SECOND = ("LocalNewton", "FedPM", "FedRCO-ori", "FedRCO")
ABLATIONS: dict[str, dict[str, Any]] = {
    "FedRCO, no monitor": {"monitor": False},
    "FedRCO, T_inv 20": {"interval": 20},
    "FedRCO, T_inv 50": {"interval": 50},
    "FedRCO, T_inv 500": {"interval": 500},
    "FedRCO, judged by a tenth held out": {"held_out": 0.1},
    "FedRCO, joint norm": {"joint": True},
}
"""Of FedRCO, which has the monitor and T_inv 200; on the first partition with 10 clients."""

Trainer: TypeAlias = Callable[[Federation], Iterator[Any]]


@dataclass(frozen=True)
class Task:
    """One run; its seed is that of the partition, the initial weights and the batches."""

    partition: str
    clients: int
    method: str
    rounds: int
    device: str
    rate: float
    seed: int = 0
    trial: bool = False
    warm_up: bool = False


@dataclass(frozen=True)
class Curve:
    """What a run found: accuracies in percent.

    Attributes:
        shared: of the global model, after every round; shorter where the handle refused the
            updates of all clients.
        seconds: spent until then in training, measuring left out.
        own: by round: of the personal models on all test records, of these on the client's mix of
            classes, and of the global model on it; means over the participants.
        counted: rollbacks, resets, inversions; a mean over seeds need not be whole.
        inverting: share of the clients' time spent in inversions, in percent.
        tuned: after the last round of FedAvg, what `own` is with models tuned at the clients.
    """

    shared: list[float]
    seconds: list[float]
    own: dict[int, tuple[float, float, float]]
    counted: tuple[float, float, float]
    inverting: float
    tuned: tuple[float, float, float] | None = None

    def reached(self, percent: float) -> int | None:
        """The first round after which the global model has that accuracy; None if it never has."""
        return next((n for n, a in enumerate(self.shared, 1) if a >= percent), None)


def averaged(curves: Sequence[Curve]) -> Curve:
    """The mean of one setting's runs, as far as all of them went."""

    def mean(rows: Iterable[Sequence[float]]) -> list[float]:
        return [float(value) for value in np.mean(list(zip(*rows, strict=False)), axis=1)]

    numbers = [n for n in curves[0].own if all(n in each.own for each in curves)]
    reached = all(each.shared for each in curves)
    personal, personal_mix, global_mix = (
        {n: float(np.mean([each.own[n][i] for each in curves])) for n in numbers} for i in range(3)
    )
    rollbacks, resets, inversions = mean(each.counted for each in curves)
    return Curve(
        mean(each.shared for each in curves) if reached else [],
        mean(each.seconds for each in curves) if reached else [],
        {n: (personal[n], personal_mix[n], global_mix[n]) for n in numbers},
        (rollbacks, resets, inversions),
        float(np.mean([each.inverting for each in curves])),
        _mean_of([each.tuned for each in curves if each.tuned is not None]),
    )


def _mean_of(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float, float] | None:
    if not rows:
        return None
    first, second, third = (float(value) for value in np.mean(rows, axis=0))
    return first, second, third


@dataclass(frozen=True)
class Search:
    """What a search for a learning rate found.

    Attributes:
        scores: training accuracy in percent by rate, mean of a trial's last rounds; 0 where the
            handle refused all updates.
        seconds: a round takes, measuring left out; mean over the trials.
    """

    scores: dict[float, float]
    seconds: float

    @property
    def best(self) -> float:
        """The rate of the highest score; of equal ones the smallest."""
        return max(self.scores, key=lambda rate: (self.scores[rate], -rate))

    @property
    def inside(self) -> bool:
        """Whether a smaller and a larger rate than the best were tried."""
        return min(self.scores) < self.best < max(self.scores)


def climbed(score: Callable[[float], float], start: float) -> dict[float, float]:
    """Scores of a rate and its neighbours, and of more where the best is the last in the row.

    Args:
        score: of a rate; larger is better.
        start: the first rate; its neighbours are `FACTOR` away.

    Returns:
        Scores by rate, at most `MOST`.
    """
    rates = (start / FACTOR, start, start * FACTOR)
    found = {rate: score(rate) for rate in rates}
    while len(found) < MOST:
        best = max(found, key=lambda rate: (found[rate], -rate))
        if best == max(found):
            more = best * FACTOR
        elif best == min(found):
            more = best / FACTOR
        else:
            break
        found[more] = score(more)
    return found


def searched(method: str, clients: int, device: str, kind: str) -> Search:
    """Searches a method's rate by trials on the first partition with that many clients.

    Training alone is judged by the own models on the clients' mixes of classes, all others by the
    global model.

    Args:
        method: of `START`.
        clients: number of clients.
        device: where to train.
        kind: of `TRIED`.
    """
    spent = []
    rounds = TRIED[kind]

    def score(rate: float) -> float:
        task = Task(
            PARTITIONS[0], clients, method, rounds, device, rate, trial=True,
            warm_up=kind == "warm-up",
        )  # fmt: skip
        curve = measured(task)
        spent.extend(np.diff(curve.seconds, prepend=0.0).tolist())
        if len(curve.shared) < rounds:
            return 0.0
        if method == ALONE:
            return curve.own[rounds][1]
        return float(np.mean(curve.shared[-LAST:]))

    scores = climbed(score, START[method])
    return Search(scores, float(np.mean(spent or [0.0])))


@functools.cache
def _data() -> Split:
    return mnist()


@functools.lru_cache(maxsize=2)
def _parts(partition: str, clients: int, seed: int) -> list[Client]:
    """The records of the clients; a run makes clients of its own of them."""
    data, rng = _data(), np.random.default_rng(seed)
    if partition == PARTITIONS[0]:
        parts = dirichlet(data.y_train, clients, 0.1, rng, min_records=32)
    else:
        parts = pathological(data.y_train, clients, 2, rng)
    return clients_of(data.X_train, data.y_train, parts)


def measured(task: Task) -> Curve:
    """One run; its seconds are those of the processor, but of the clock on a graphics card."""
    import torch

    from secure_fl.trainers.networks import (
        accuracy,
        events,
        fine_tuned,
        personal_accuracy,
        seconds,
    )

    torch.set_num_threads(1)
    clock = time.process_time if task.device == "cpu" else time.perf_counter
    data, model = _data(), _model()
    members = [
        Client(each.name, each.features, each.targets)
        for each in _parts(task.partition, task.clients, task.seed)
    ]
    fed = Federation(members, seed=task.seed, participation=FixedProbability(0.8))
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
        final = state.parameters
        shared.append(100 * accuracy(model, final, *test))
        spent.append(total)
        last = state.round == task.rounds
        if (last and task.method == ALONE) or (
            not task.trial and (last or not state.round % EVERY)
        ):
            found = fed.gather(personal_accuracy, model, state.parameters, *test)
            own[state.round] = _own(found)
        fed.close_round()
    tuned = None
    if task.method == "FedAvg" and not task.trial and len(shared) == task.rounds:
        fine_tuned(fed, model, final, _local(task))
        tuned = _own(fed.gather(personal_accuracy, model, final, *test))
    everyone = Federation(members)
    counted, times = everyone.sum(events), everyone.sum(seconds)
    share = 100 * float(times["inverting"]) / max(float(times["training"]), 1e-9)
    rollbacks, resets, inversions = (
        int(counted[key]) for key in ("rollbacks", "resets", "inversions")
    )
    return Curve(shared, spent, own, (rollbacks, resets, inversions), share, tuned)


def _own(found: list[Any]) -> tuple[float, float, float]:
    personal, mix, shared = (
        100 * float(np.mean([each[key] for each in found]))
        for key in ("personal", "personal_mix", "global_mix")
    )
    return personal, mix, shared


def _model() -> Any:
    from secure_fl.trainers.networks import ConvNet

    return ConvNet(10, (1, 28, 28))


def _local(task: Task) -> Any:
    """A client's part of a round."""
    from secure_fl.trainers.networks import LocalTraining

    rate = 0.1 if task.method == "FedAdam" else task.rate
    return LocalTraining(rate, steps=STEPS, batch_size=32, device=task.device)


def _trainer(task: Task, model: Any) -> Trainer:
    from secure_fl.trainers.linear.server import Adam, Momentum
    from secure_fl.trainers.networks import (
        LocalTraining,
        NetworkState,
        SecondOrder,
        Thresholds,
        fedavg,
        fedpm,
        fedrco,
        local_only,
    )
    from secure_fl.trainers.networks.kfac import Curvature

    common: dict[str, Any] = {
        "start": NetworkState(model.initial(np.random.default_rng(task.seed))),
        "rounds": task.rounds,
    }
    local = _local(task)

    def averaging(training: LocalTraining = local, server: Any = None) -> Trainer:
        return lambda fed: fedavg(fed, model, training=training, server=server, **common)

    def curved(
        interval: int = INTERVAL,
        monitor: bool = True,
        personal: bool = True,
        persistent: bool = True,
        held_out: float = 0.0,
        joint: bool = False,
    ) -> Trainer:
        warm_up = WARM_UP if task.warm_up else ()
        options = SecondOrder(
            local,
            Curvature(interval=interval, persistent=persistent, warm_up=warm_up),
            Thresholds(joint=joint) if monitor else None,
            personal,
            held_out=held_out,
        )
        return lambda fed: fedrco(fed, model, options=options, **common)

    trainers: dict[str, Callable[[], Trainer]] = {
        "FedAvg": averaging,
        "FedAvgM": lambda: averaging(server=Momentum(0.9)),
        "FedAdam": lambda: averaging(server=Adam(task.rate)),
        "FedProx": lambda: averaging(replace(local, proximal=0.01)),
        ALONE: lambda: lambda fed: local_only(fed, model, training=local, **common),
        "LocalNewton": lambda: curved(monitor=False, personal=False, persistent=False),
        "FedPM": lambda: lambda fed: fedpm(fed, model, training=local, **common),
        "FedRCO-ori": lambda: curved(personal=False),
        "FedRCO": curved,
    }
    if task.method in ABLATIONS:
        return curved(**ABLATIONS[task.method])
    return trainers[task.method]()
