"""FedRCO on MNIST beside first- and second-order peers: accuracy by round and by second.

After fedrco.txt, section 6 and E.3: the paper's CNN, 20 mini-batches of 32 a round, participation
0.8, damping 0.03, moving average 0.95, Dirichlet 0.1 and 2 classes a client, 10 and 50 clients. The
monitor and T_inv are varied with 10 clients. Every method gets the learning rate of its grid that
is best on training records after a few rounds; 0.00625, the paper's, is one of them. Fewer rounds
than the paper's 1600, one seed.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks._data import REPOSITORY
from benchmarks._fedrco import (
    ABLATIONS,
    CLIENTS,
    FIRST,
    PARTITIONS,
    SECOND,
    SEED,
    TESTED,
    Curve,
    Task,
    measured,
)
from benchmarks._harness import Run, benchmark
from secure_fl.report import figures

FIGURE = REPOSITORY / "docs" / "fedrco.svg"
SLOWER = 5
"""50 clients get a fifth of the rounds: their rounds cost five times as much."""
RATES = {
    **dict.fromkeys(("FedAvg", "FedAvgM"), (0.05, 0.1, 0.2)),
    "FedAdam": (0.003, 0.01, 0.03),
    **dict.fromkeys(("LocalNewton", "FedPM", "FedRCO-ori"), (0.00625, 0.02, 0.05)),
}
"""Rates tried for each method: the server's of FedAdam, whose clients take 0.1."""
SAME_RATE = {"FedProx": "FedAvg", "FedRCO": "FedRCO-ori"}
TRIED, LAST = 8, 3
"""Rounds of a trial, and how many of the last ones count for its accuracy."""


@benchmark("does curvature pay in federated MNIST?")
@click.option(
    "--rounds",
    default=200,
    show_default=True,
    help=f"The most rounds with 10 clients; with 50 one in {SLOWER} of them.",
)
@click.option("--minutes", default=30.0, show_default=True, help="The rounds are those that fit.")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:N or auto.")
def main(run: Run, rounds: int, minutes: float, workers: int, device: str) -> None:
    """Trains every method for the same rounds on the same partitions."""
    from secure_fl.networks import choose_device

    run.seeds(SEED)
    device = choose_device(device)
    partitions, clients = (PARTITIONS[:1], CLIENTS[:1]) if run.quick else (PARTITIONS, CLIENTS)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        if run.quick:
            rates, rounds = {method: values[0] for method, values in RATES.items()}, 2
        else:
            rates, pace = _rates(run, pool, device)
            rounds = min(rounds, _fitting(60 * minutes - run.elapsed, pace))
        run.parameter(rounds=rounds, rounds_of_50=rounds // SLOWER, device=device, tested=TESTED)
        tasks = [
            Task(partition, count, method, length, device, rates[_group(method)])
            for count, length in zip(clients, (rounds, rounds // SLOWER), strict=False)
            for partition in partitions
            for method in _named(run.quick, count)
        ]
        # The longest first, so that no process is left with one of them at the end.
        order = sorted(tasks, key=lambda t: (-t.clients, t.method in FIRST))
        curves = {}
        for task, curve in zip(order, pool.map(measured, order), strict=True):
            setting = f"{task.partition}, {task.clients} clients, {task.method}"
            run.progress(f"{setting}: {curve.shared[-1]:.1f}" if curve.shared else f"{setting}: -")
            curves[task] = curve
    _show(run, {task: curves[task] for task in tasks})
    if not run.quick:
        drawn = _draw(curves)
        run.note(f"plot: {'not drawn: no matplotlib' if drawn is None else drawn.name}")


def _rates(
    run: Run, pool: ProcessPoolExecutor, device: str
) -> tuple[dict[str, float], dict[str, float]]:
    """The best of every grid on training records, Dirichlet 0.1, 10 clients.

    Returns:
        Rates by method, and seconds by the clock that a round of each takes the whole pool.
    """
    began = time.perf_counter()
    trials = [
        Task(PARTITIONS[0], CLIENTS[0], method, TRIED, device, rate, trial=True)
        for method, rates in RATES.items()
        for rate in rates
    ]
    table = run.table(
        "learning rates tried, training accuracy in percent", ["method", "rate", "accuracy"]
    )
    best: dict[str, tuple[float, float]] = {}
    spent: dict[str, list[float]] = {}
    for task, curve in zip(trials, pool.map(measured, trials), strict=True):
        finished = len(curve.shared) == TRIED
        score = float(np.mean(curve.shared[-LAST:])) if finished else 0.0
        table.add(task.method, task.rate, score)
        if curve.seconds:
            spent.setdefault(task.method, []).append(curve.seconds[-1] / len(curve.seconds))
        best[task.method] = max(best.get(task.method, (-1.0, 0.0)), (score, -task.rate))
        run.progress(f"{task.method} at rate {task.rate:g}: {score:.1f}")
    # Processes share the machine: what they spend and what the clock shows are in one ratio.
    total = sum(TRIED * sum(values) for values in spent.values())
    ratio = (time.perf_counter() - began) / total
    pace = {method: ratio * float(np.mean(values)) for method, values in spent.items()}
    return {method: -negative for method, (_, negative) in best.items()}, pace


def _group(method: str) -> str:
    """The method whose rate and pace it shares."""
    parent = "FedRCO" if method in ABLATIONS else method
    return SAME_RATE.get(parent, parent)


def _fitting(seconds: float, pace: dict[str, float]) -> int:
    """Rounds with 10 clients that fit; as many with 50 as make the same number of steps."""
    each = sum(pace[_group(method)] for count in CLIENTS for method in _named(False, count))
    return max(SLOWER, int(seconds / (len(PARTITIONS) * each)))


def _named(quick: bool, clients: int) -> list[str]:
    if quick:
        return ["FedAvg", "FedPM", "FedRCO"]
    return [*FIRST, *SECOND, *(ABLATIONS if clients == CLIENTS[0] else ())]


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
            curve.shared[-1] if curve.shared else None,
            personal if has_own else None,
            global_mix,
            personal_mix if has_own else None,
            curve.seconds[-1] if curve.seconds else None,
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
