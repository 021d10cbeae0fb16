"""FedAvgR beside averaging, its peers, and its regularisers one by one.

After tables 2 and 3 of fedavgr.txt: 10 clients, 2 label shards each, 100 trainable random Fourier
features sqrt(2) cos(.), momentum 0.9, batches of 10, 300 rounds of 10 local epochs, 10 seeds. Every
method's learning rate, the regularisers' weights and the proximal weight are chosen by 3-fold
cross-validation inside the training records, over as many steps as the run has. A full data set
takes from a quarter of an hour of the processor (vehicle) to days: say which with --data; fewer
rounds or epochs are said in the parameters, and judge nothing.
"""

import functools
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context

import click
import numpy as np

from benchmarks._data import LIBSVM_FEATURES, libsvm, mnist
from benchmarks._federations import clients_of
from benchmarks._harness import COUNT, MINUTES, Run, Split, benchmark, paired, spread
from benchmarks._regularised import (
    BY_CLASS,
    FOLDS,
    MIXTURE,
    MMD_BY_CLASS,
    NONE,
    NONE_BY_CLASS,
    SEARCHED,
    SINGLE,
    WIDTH,
    Chosen,
    Found,
    Problem,
    Settings,
    by_class,
    columns,
    fit,
    last,
    one_by_one,
    problem,
    raw_rows,
    searched,
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
TIERS = (1, 3)
"""Every data set gets the first seed, and three before another gets more."""

METHODS = ("OneShot", "FedAvg", "FedProx", "FL+HC", "FedAvgR")
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
@click.option("--workers", type=COUNT, default=2, show_default=True, help="Processes.")
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
    deadline = run.started + 60 * minutes
    methods = [method for method in SEARCHED if classes or method != BY_CLASS]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        chosen = _searches(run, pool, names, methods, epochs, rounds)
        told = table_of_chosen(run)
        for name, each in chosen.items():
            show_chosen(run, told, name, each)
        trials = _trials(run, pool, workers, names, seeds, chosen, rounds, epochs, deadline)
    run.seeds(*sorted({seed for found in trials.values() for seed in found}))
    _show(run, trials, (MMD_BY_CLASS, BY_CLASS, NONE_BY_CLASS) if classes else ())


def _searches(
    run: Run,
    pool: ProcessPoolExecutor,
    names: list[str],
    methods: list[str],
    epochs: int,
    rounds: int,
) -> dict[str, Chosen]:
    """What cross-validation chooses for every data set; each method's search is a task."""
    # The longest first, so that no process waits for another at the end.
    tasks = [(name, method) for name in names for method in reversed(methods)]
    lengths = [_rounds(name, rounds) for name, _ in tasks]
    search = functools.partial(searched, _problem)
    found = pool.map(search, *zip(*tasks, strict=True), [epochs] * len(tasks), lengths)
    by_task = {}
    for (name, method), (told, score) in zip(tasks, found, strict=True):
        by_task[name, method] = told, score
        shown = ", ".join(f"{key} {value:g}" for key, value in told.items())
        run.progress(f"{name}, {method}: {shown}")
    return {
        name: Chosen(
            {method: by_task[name, method][0] for method in methods},
            {method: by_task[name, method][1] for method in methods},
        )
        for name in names
    }


def _trials(
    run: Run,
    pool: ProcessPoolExecutor,
    workers: int,
    names: list[str],
    seeds: int,
    chosen: dict[str, Chosen],
    rounds: int,
    epochs: int,
    deadline: float,
) -> dict[str, Found]:
    """Accuracies by data set, seed and method; small data sets get more seeds."""
    size = {name: len(_split(name).y_train) * _rounds(name, rounds) for name in names}
    # The longest first where all run, so that no process waits for another at the end.
    order = sorted(
        ((name, seed) for name in names for seed in range(seeds)),
        key=lambda task: (
            sum(task[1] >= t for t in TIERS),
            size[task[0]] * (task[1] + 1 if task[1] >= TIERS[0] else -1),
        ),
    )
    found: dict[str, Found] = {name: {} for name in names}
    running: dict[Future[dict[str, float]], tuple[str, int, float]] = {}
    longest = dict.fromkeys(names, 0.0)
    while order or running:
        while order and len(running) < workers:
            name, seed = order.pop(0)
            if seed < TIERS[0] or time.monotonic() + longest[name] < deadline:
                length = _rounds(name, rounds)
                future = pool.submit(_trial, name, seed, length, epochs, chosen[name])
                running[future] = (name, seed, time.monotonic())
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            name, seed, began = running.pop(future)
            found[name][seed] = future.result()
            longest[name] = max(longest[name], time.monotonic() - began)
            shown = ", ".join(f"{method} {value:.2f}" for method, value in future.result().items())
            run.progress(f"{name}, seed {seed}: {shown}")
    return found


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


def _trial(name: str, seed: int, rounds: int, epochs: int, chosen: Chosen) -> dict[str, float]:
    """Test accuracy in percent of every method on one partition and one draw of features."""
    from secure_fl.trainers.networks import clustered_accuracy, fl_hc

    setting = _problem(name, seed, epochs)
    model, told = setting.model, chosen.settings

    def score(method: str, told: Settings) -> float:
        state = fit(setting, method, rounds, told)(setting.federation())
        return setting.accuracy(state.parameters)

    rate = told["FedAvg"]["learning_rate"]
    fed = setting.federation()
    clustered = last(
        fed,
        fl_hc(
            fed,
            model,
            start=setting.start,
            rounds=rounds,
            training=replace(setting.training, learning_rate=rate),
            warm_up=min(WARM_UP, rounds // 2),
            clusters=CLUSTERS,
        ),
    )
    sizes = np.array([len(client) for client in setting.clients])
    full = told["FedAvgR"]
    found = {
        **{method: score(method, told[method]) for method in told if method != BY_CLASS},
        "FL+HC": 100.0 * clustered_accuracy(model, clustered, *setting.test, sizes),
        **one_by_one(score, full),
    }
    if name in MIXED:
        found[MIXTURE] = score(MIXTURE, full)
    if BY_CLASS in told:
        found |= by_class(score, told[BY_CLASS])
    return found


# ---------------------------------------------------------------------------------------- results


def _show(run: Run, trials: dict[str, Found], more: tuple[str, ...]) -> None:
    main_table = run.table("test accuracy in percent", ["data", "seeds", *METHODS])
    single = run.table(
        "regularisers one by one, test accuracy in percent",
        ["data", "seeds", NONE, *SINGLE.values(), "all", *more],
    )
    against = table_of_gains(run)
    mixture = run.table(
        "FedAvgR by moments and by the mixture",
        ["data", "seeds", "moments", "mixture", "mean difference", "p"],
    )
    raw = run.table(
        "every seed", ["data", "seed", *METHODS, NONE, *SINGLE.values(), MIXTURE, *more]
    )
    differences = []
    for name, found in trials.items():
        of = columns(found)
        main_table.add(name, len(found), *(spread(of[method], 2) for method in METHODS))
        single.add(
            name,
            len(found),
            *(spread(of[m], 2) for m in (NONE, *SINGLE.values(), "FedAvgR", *more)),
        )
        differences.append(show_gains(against, name, found))
        if MIXTURE in of:
            gap = np.subtract(of[MIXTURE], of["FedAvgR"])
            both = spread(of["FedAvgR"], 2), spread(of[MIXTURE], 2)
            mixture.add(name, len(found), *both, float(gap.mean()), paired(gap.tolist())[1])
        raw_rows(raw, name, found)
    _across(run, differences)
    run.note("p: two-sided paired t-test over the seeds; empty where the differences are equal")
    run.note("FL+HC: accuracy of each client's cluster model on all test records, by records")
    run.note(
        f"{FOLDS}-fold cross-validation on the training records of seed 0, as many steps as the run"
        " has: learning rate, then gamma, beta and alpha, or mu; FL+HC takes FedAvg's rate"
    )
    run.note("terms are compared with none at FedAvgR's rate: with FedAvg at that rate")
    run.note("vehicle has 846 records, 500 of which train; svmguide1 is divided by its deviations")


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
