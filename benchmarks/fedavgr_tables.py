"""FedAvgR beside averaging, its peers, and its regularisers one by one.

After tables 2 and 3 of fedavgr.txt: 10 clients, 2 label shards each, 100 trainable random Fourier
features sqrt(2) cos(.), momentum 0.9, batches of 10, 300 rounds of 10 local epochs, 10 seeds. Every
method's learning rate, the regularisers' weights and the proximal weight are chosen by 3-fold
cross-validation inside the training records, over as many steps as the run has. A full data set
takes from a quarter of an hour of the processor (vehicle) to hours: say which with --data, and with
--resume what was made is kept, and a run that was killed goes on; fewer rounds or epochs are said
in the parameters, and judge nothing.
"""

import functools
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import click
import numpy as np

from benchmarks._data import LIBSVM_FEATURES, libsvm, mnist
from benchmarks._federations import clients_of
from benchmarks._harness import COUNT, MINUTES, WORKERS, Run, Split, benchmark, paired, spread
from benchmarks._kept import RESUME, Numbers
from benchmarks._regularised import (
    BY_CLASS,
    FOLDS,
    MIXTURE,
    NONE,
    OF_CLASSES,
    SEARCHED,
    SINGLE,
    WIDTH,
    Chosen,
    Found,
    Problem,
    by_class,
    last,
    one_by_one,
    problem,
    run_trials,
    scorer,
    searches,
)
from benchmarks._regularised_tables import (
    columns,
    raw_rows,
    show_chosen,
    show_gains,
    table_of_chosen,
    table_of_gains,
)
from secure_fl.data import shards

DATA = (*LIBSVM_FEATURES, "mnist")
CLIENTS = 10
WARM_UP, CLUSTERS = 10, 2
"""Of FL+HC: rounds before the clustering (Briggs et al. try 1 to 10), clusters (the paper's)."""

MNIST_ROUNDS = 20
METHODS = ("OneShot", "FedAvg", "FedProx", "FL+HC", "FedAvgR")
PEERS = frozenset({"OneShot", "FedProx", "FL+HC"})
"""What the paper compares with beside averaging; more than half of the time."""
MIXED = frozenset({"splice", "vehicle", "dna"})
"""Data sets on which gathered estimates of the feature distribution stand beside pooled moments."""


@benchmark("what are FedAvgR's regularisers worth on label shards?")
@click.option(
    "--rounds", type=COUNT, default=300, show_default=True, help=f"On MNIST at most {MNIST_ROUNDS}."
)
@click.option(
    "--epochs", type=COUNT, default=10, show_default=True, help="Local epochs of a round."
)
@click.option("--data", default=",".join(DATA), show_default=True, help="Data sets, by comma.")
@click.option(
    "--seeds", type=COUNT, default=10, show_default=True, help="The most; the paper has 10."
)
@click.option(
    "--minutes",
    type=MINUTES,
    default=30.0,
    show_default=True,
    help="A data set's next seed is begun if it should end within them; the first always is.",
)
@WORKERS
@RESUME
@click.option("--without-peers", "alone", is_flag=True, help="FedAvg and FedAvgR alone.")
@click.option(
    "--by-class", "classes", is_flag=True, help="The MMD between features of one class too."
)
def main(
    run: Run,
    rounds: int,
    epochs: int,
    data: str,
    seeds: int,
    minutes: float,
    workers: int,
    resume: Path | None,
    alone: bool,
    classes: bool,
) -> None:
    """Trains every method on every data set, with as many seeds as the minutes allow."""
    names = data.split(",")
    if run.quick:
        rounds, epochs, seeds, names = min(rounds, 3), 1, 1, ["vehicle"]
    run.parameter(rounds=rounds, mnist_rounds=min(rounds, MNIST_ROUNDS), epochs=epochs)
    run.parameter(clients=CLIENTS, width=WIDTH, features="sqrt(2) cos", minutes=minutes)
    if classes:
        run.parameter(by_class=True)
    if alone:
        run.parameter(without_peers=True)
    numbers = Numbers(resume)
    deadline = run.started + 60 * minutes
    left_out = {*(PEERS if alone else ()), *(() if classes else (BY_CLASS,))}
    methods = [method for method in SEARCHED if method not in left_out]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        lengths = {name: _rounds(name, rounds) for name in names}
        chosen = searches(run, pool, _problem, lengths, methods, epochs, numbers)
        told = table_of_chosen(run)
        for name, each in chosen.items():
            show_chosen(run, told, name, each)
        work = {
            name: functools.partial(_trial, numbers, name, lengths[name], epochs, chosen[name])
            for name in names
        }
        size = {name: len(_split(name).y_train) * lengths[name] for name in names}
        trials = run_trials(run, pool, workers, work, size, seeds, deadline)
    run.seeds(*sorted({seed for found in trials.values() for seed in found}))
    _show(run, trials, OF_CLASSES if classes else ())


def _rounds(name: str, rounds: int) -> int:
    return min(rounds, MNIST_ROUNDS) if name == "mnist" else rounds


# ------------------------------------------------------------------------------------ one process


@functools.cache
def _split(name: str) -> Split:
    """A data set, its features divided by the norm of their deviations.

    Products with standard normal frequencies are then of order 1, and one learning rate serves
    all data sets.
    """
    data = mnist() if name == "mnist" else libsvm(name)
    scale = np.float32(1 / np.linalg.norm(data.X_train.std(axis=0)))
    return replace(data, X_train=data.X_train * scale, X_test=data.X_test * scale)


def _problem(name: str, seed: int, epochs: int) -> Problem:
    data, rng = _split(name), np.random.default_rng(seed)
    parts = shards(data.y_train, CLIENTS, 2, rng)
    clients = clients_of(data.X_train, data.y_train, parts)
    return problem(clients, len(data.classes), (data.X_test, data.y_test), seed, epochs, rng)


def _trial(
    numbers: Numbers, name: str, rounds: int, epochs: int, chosen: Chosen, seed: int
) -> dict[str, float]:
    """Test accuracy in percent of every method on one partition and one draw of features."""
    setting, told = _problem(name, seed, epochs), chosen.settings
    numbers = numbers.about(**setting.known(name, rounds), records="test")
    score, full = scorer(setting, rounds, numbers), told["FedAvgR"]
    found = {
        **{method: score(method, told[method]) for method in told if method != BY_CLASS},
        **one_by_one(score, full),
    }
    if not PEERS.isdisjoint(told):
        rate = told["FedAvg"]["learning_rate"]
        found["FL+HC"] = numbers.number(
            lambda: _clustered(setting, rounds, rate),
            method="FL+HC",
            told={"learning_rate": rate, "warm_up": WARM_UP, "clusters": CLUSTERS},
        )
    if name in MIXED:
        found[MIXTURE] = score(MIXTURE, full)
    if BY_CLASS in told:
        found |= by_class(score, told[BY_CLASS])
    return found


def _clustered(setting: Problem, rounds: int, rate: float) -> float:
    """Test accuracy in percent of FL+HC."""
    from secure_fl.trainers.networks import clustered_accuracy, fl_hc

    fed = setting.federation()
    state = last(
        fed,
        fl_hc(
            fed,
            setting.model,
            start=setting.start,
            rounds=rounds,
            training=replace(setting.training, learning_rate=rate),
            warm_up=min(WARM_UP, rounds // 2),
            clusters=CLUSTERS,
        ),
    )
    sizes = np.array([len(client) for client in setting.clients])
    return 100.0 * clustered_accuracy(setting.model, state, *setting.test, sizes)


# ---------------------------------------------------------------------------------------- results


def _show(run: Run, trials: dict[str, Found], more: tuple[str, ...]) -> None:
    main_table = run.table("test accuracy in percent", ["data", "seeds", *METHODS])
    single = run.table(
        "regularisers one by one, test accuracy in percent",
        ["data", "seeds", NONE, *SINGLE.values(), "all"],
    )
    against = table_of_gains(run)
    mixture = run.table(
        "FedAvgR by moments and by the mixture",
        ["data", "seeds", "moments", "mixture", "mean difference", "p"],
    )
    raw = run.table("every seed", ["data", "seed", *METHODS, NONE, *SINGLE.values(), MIXTURE])
    differences = []
    for name, found in trials.items():
        of = columns(found)
        known = (spread(of[method], 2) if method in of else None for method in METHODS)
        main_table.add(name, len(found), *known)
        single.add(
            name,
            len(found),
            *(spread(of[m], 2) for m in (NONE, *SINGLE.values(), "FedAvgR")),
        )
        differences.append(show_gains(against, name, found))
        if MIXTURE in of:
            gap = np.subtract(of[MIXTURE], of["FedAvgR"])
            both = spread(of["FedAvgR"], 2), spread(of[MIXTURE], 2)
            mixture.add(name, len(found), *both, float(gap.mean()), paired(gap.tolist())[1])
        raw_rows(raw, name, found)
    if more:
        _show_by_class(run, trials, more)
    _across(run, differences)
    run.note("p: two-sided paired t-test over the seeds; empty where the differences are equal")
    if any("FL+HC" in columns(found) for found in trials.values()):
        run.note(
            "FL+HC: accuracy of each client's cluster model on all test records, by records, at"
            " FedAvg's rate"
        )
    run.note(
        f"{FOLDS}-fold cross-validation on the training records of seed 0, as many steps as the run"
        " has: learning rate, then gamma, beta and alpha, or mu"
    )
    run.note("terms are compared with none at FedAvgR's rate: with FedAvg at that rate")
    run.note("vehicle has 846 records, 500 of which train; svmguide1 is divided by its deviations")


def _show_by_class(run: Run, trials: dict[str, Found], more: tuple[str, ...]) -> None:
    """In tables of their own: so parts that were run without it join with those that have it."""
    table = run.table("the MMD by class, test accuracy in percent", ["data", "seeds", *more])
    raw = run.table("the MMD by class, every seed", ["data", "seed", *more])
    for name, found in trials.items():
        of = columns(found)
        table.add(name, len(found), *(spread(of[method], 2) for method in more))
        raw_rows(raw, name, found)


def _across(run: Run, differences: list[float]) -> None:
    from scipy.stats import wilcoxon

    better = sum(each > 0 for each in differences)
    worse = sum(each < 0 for each in differences)
    text = f"FedAvgR is better than FedAvg on {better} data sets and worse on {worse}"
    if better + worse > 1:
        text += f"; Wilcoxon over data sets: p = {float(wilcoxon(differences).pvalue):.3g}"
    run.note(text)


if __name__ == "__main__":
    main()
