"""FedRCO on MNIST beside first- and second-order peers: accuracy by round and by second.

After fedrco.txt, section 6 and E.3: the paper's CNN, 20 mini-batches of 32 a round, participation
0.8, damping 0.03, moving average 0.95, Dirichlet 0.1 and 2 classes a client, 10 and 50 clients. The
monitor and T_inv are varied with 10 clients. Every method gets the learning rate of its grid that
is best on training records after a few rounds; 0.00625, the paper's, is one of them. Fewer rounds
than the paper's 1600, one seed.
"""

import functools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np

from benchmarks._data import REPOSITORY, Split, mnist
from benchmarks._federations import clients_of
from benchmarks._harness import Run, benchmark
from secure_fl.data import dirichlet, pathological
from secure_fl.federation import Federation, FixedProbability, QuorumError
from secure_fl.report import figures

FIGURE = REPOSITORY / "docs" / "fedrco.svg"
PARTITIONS = ("Dirichlet 0.1", "2 classes")
CLIENTS = (10, 50)
SLOWER = 5
"""50 clients get a fifth of the rounds: their rounds cost five times as much."""
TESTED = 1000
"""Test records of the accuracies: the first of the test set."""
EVERY = 5
"""Rounds between two measurements of the clients' own models."""
SEED = 0

RATES = {
    **dict.fromkeys(("FedAvg", "FedAvgM"), (0.05, 0.1, 0.2)),
    "FedAdam": (0.003, 0.01, 0.03),
    **dict.fromkeys(("LocalNewton", "FedPM", "FedRCO-ori"), (0.00625, 0.02, 0.05)),
}
"""Rates tried for each method: the server's of FedAdam, whose clients take 0.1."""
SAME_RATE = {"FedProx": "FedAvg", "FedRCO": "FedRCO-ori"}
TRIED, LAST = 8, 3
"""Rounds of a trial, and how many of the last ones count for its accuracy."""

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


@benchmark("does curvature pay in federated MNIST?")
@click.option(
    "--rounds",
    default=40,
    show_default=True,
    help=f"Rounds with 10 clients; with 50 one in {SLOWER} of them.",
)
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:N or auto.")
def main(run: Run, rounds: int, workers: int, device: str) -> None:
    """Trains every method for the same rounds on the same partitions."""
    from secure_fl.networks import choose_device

    run.seeds(SEED)
    device = choose_device(device)
    partitions, clients = (PARTITIONS[:1], CLIENTS[:1]) if run.quick else (PARTITIONS, CLIENTS)
    rounds = 2 if run.quick else rounds
    run.parameter(rounds=rounds, rounds_of_50=rounds // SLOWER, device=device, tested=TESTED)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        rates = {} if run.quick else _rates(run, pool, device)
        tasks = [
            Task(partition, count, method, length, device, _rate(rates, method))
            for count, length in zip(clients, (rounds, rounds // SLOWER), strict=False)
            for partition in partitions
            for method in _named(run.quick, count)
        ]
        # The longest first, so that no process is left with one of them at the end.
        order = sorted(tasks, key=lambda t: (-t.clients, t.method in FIRST))
        curves = {}
        for task, curve in zip(order, pool.map(_measured, order), strict=True):
            run.progress(f"{task.partition}, {task.clients} clients, {task.method}")
            curves[task] = curve
    _show(run, {task: curves[task] for task in tasks})
    if not run.quick:
        drawn = _draw(curves)
        run.note(f"plot: {'not drawn: no matplotlib' if drawn is None else drawn.name}")


def _rates(run: Run, pool: ProcessPoolExecutor, device: str) -> dict[str, float]:
    """The best of every grid on training records, Dirichlet 0.1, 10 clients."""
    trials = [
        Task(PARTITIONS[0], CLIENTS[0], method, TRIED, device, rate, trial=True)
        for method, rates in RATES.items()
        for rate in rates
    ]
    table = run.table(
        "learning rates tried, training accuracy in percent", ["method", "rate", "accuracy"]
    )
    best: dict[str, tuple[float, float]] = {}
    for task, curve in zip(trials, pool.map(_measured, trials), strict=True):
        finished = len(curve.shared) == TRIED
        score = float(np.mean(curve.shared[-LAST:])) if finished else 0.0
        table.add(task.method, task.rate, score)
        best[task.method] = max(best.get(task.method, (-1.0, 0.0)), (score, -task.rate))
        run.progress(f"{task.method} at rate {task.rate:g}: {score:.1f}")
    return {method: -negative for method, (_, negative) in best.items()}


def _rate(rates: dict[str, float], method: str) -> float:
    group = "FedRCO" if method in ABLATIONS else method
    group = SAME_RATE.get(group, group)
    return rates.get(group, RATES[group][0])


def _named(quick: bool, clients: int) -> list[str]:
    if quick:
        return ["FedAvg", "FedPM", "FedRCO"]
    return [*FIRST, *SECOND, *(ABLATIONS if clients == CLIENTS[0] else ())]


# ------------------------------------------------------------------------------------ one process


@functools.cache
def _data() -> Split:
    return mnist()


def _measured(task: Task) -> Curve:
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


# ---------------------------------------------------------------------------------------- results


def _show(run: Run, curves: dict[Task, Curve]) -> None:
    table = run.table(
        "accuracy in percent after the last round",
        [
            "partition",
            "clients",
            "method",
            "rate",
            "rounds",
            "global",
            "personal",
            "global, own mix",
            "personal, own mix",
            "seconds",
            "inverting %",
            "rollbacks",
            "resets",
            "inversions",
        ],
    )
    steps = run.table(
        "accuracy by round and second",
        ["partition", "clients", "method", "round", "seconds", "global", "personal"],
    )
    for task, curve in curves.items():
        setting = (task.partition, task.clients, task.method)
        personal, personal_mix, global_mix = curve.own.get(task.rounds, (None, None, None))
        has_own = task.method in ("FedRCO", *ABLATIONS)
        table.add(
            *setting,
            task.rate,
            len(curve.shared),
            curve.shared[-1],
            personal if has_own else None,
            global_mix,
            personal_mix if has_own else None,
            curve.seconds[-1],
            curve.inverting if task.method not in FIRST else None,
            *curve.counted,
        )
        for number, (own, _, _) in curve.own.items():
            place = number - 1
            steps.add(
                *setting,
                number,
                curve.seconds[place],
                curve.shared[place],
                own if has_own else None,
            )
    run.note(f"accuracies on the first {TESTED} test records; one seed")
    run.note(
        f"rates: best mean training accuracy of the last {LAST} of {TRIED} rounds, Dirichlet 0.1,"
        " 10 clients; FedProx takes FedAvg's, FedRCO and its variants FedRCO-ori's"
    )
    run.note(
        "own mix: test records weighted to the client's mix of classes; personal accuracies and"
        " those on the own mix are means over the participants of the round"
    )
    run.note("seconds: of the processor (on a graphics card: of the clock), measuring left out")
    run.note(
        "only FedRCO has personal models; LocalNewton: fresh factors every round, no monitor; FedPM"
        " preconditions by input factors alone"
    )


def _draw(curves: dict[Task, Curve]) -> Path | None:
    """Global accuracy with 10 clients against rounds and seconds; None without matplotlib."""
    shown = (*FIRST[:1], "FedAdam", *SECOND)

    def draw(axes: Any) -> None:
        panels = [(p, by_second) for p in PARTITIONS for by_second in (False, True)]
        for each, (partition, by_second) in zip(axes, panels, strict=True):
            for task, curve in curves.items():
                if (task.partition, task.clients) == (
                    partition,
                    CLIENTS[0],
                ) and task.method in shown:
                    x = curve.seconds if by_second else range(1, len(curve.shared) + 1)
                    each.plot(x, curve.shared, label=task.method, linewidth=1)
            each.set_title(partition, fontsize=10)
            each.set_xlabel("seconds of training" if by_second else "round")
        axes[0].set_ylabel("accuracy of the global model, %")
        axes[-1].legend(fontsize=8)

    svg = figures.inline(draw, "fedrco", width=14.0, height=3.8, panels=4)
    if svg is None or not FIGURE.parent.is_dir():
        return None
    FIGURE.write_text(svg, encoding="utf-8")
    return FIGURE


if __name__ == "__main__":
    main()
