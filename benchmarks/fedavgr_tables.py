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
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import click
import numpy as np

from benchmarks._data import LIBSVM_FEATURES, libsvm, mnist
from benchmarks._federations import clients_of
from benchmarks._harness import COUNT, MINUTES, Run, Split, Table, benchmark, paired, spread
from secure_fl.data import shards
from secure_fl.federation import Client, Federation

DATA = (*LIBSVM_FEATURES, "mnist")
CLIENTS = 10
WIDTH = 100
RATES = [0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001, 0.00003]
"""At the paper's scale of features; the paper does not say its rate."""
WARM_UP, CLUSTERS = 10, 2
"""Of FL+HC: rounds before the clustering (Briggs et al. try 1 to 10), clusters (the paper's)."""

GRIDS = {
    "mmd": [1e-4, 1e-3, 1e-2, 1e-1],
    "features": [1e-6, 1e-5, 1e-4, 1e-3, 1e-2],
    "trace": [1e-8, 1e-7, 1e-6, 1e-5, 1e-4],
}
PROXIMAL = [1e-4, 1e-3, 1e-2, 1e-1]
"""The paper's grids (5.3)."""
FOLDS = 3
MNIST_ROUNDS = 20
TIERS = (1, 3)
"""Every data set gets the first seed, and three before another gets more."""

METHODS = ("OneShot", "FedAvg", "FedProx", "FL+HC", "FedAvgR")
SINGLE = {"trace": "trace norm", "features": "feature norm", "mmd": "MMD"}
ALL = "all terms"
MIXTURE = "FedAvgR, mixture"
MIXED = frozenset({"splice", "vehicle", "dna"})
"""Data sets on which gathered estimates of the feature distribution stand beside pooled moments."""


@dataclass(frozen=True)
class Chosen:
    """What cross-validation chose for a data set.

    Attributes:
        settings: by method; of FL+HC, which is not searched, FedAvg's.
        accuracy: of the left-out records, by method, in [0, 1].
    """

    settings: dict[str, dict[str, float]]
    accuracy: dict[str, float]


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
def main(
    run: Run, rounds: int, epochs: int, data: str, seeds: int, minutes: float, workers: int
) -> None:
    """Trains every method on every data set, with as many seeds as the minutes allow."""
    names = data.split(",")
    if run.quick:
        rounds, epochs, seeds, names = min(rounds, 3), 1, 1, ["vehicle"]
    run.parameter(rounds=rounds, mnist_rounds=min(rounds, MNIST_ROUNDS), epochs=epochs)
    run.parameter(clients=CLIENTS, width=WIDTH, features="sqrt(2) cos", minutes=minutes)
    deadline = run.started + 60 * minutes
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        chosen = _searches(run, pool, names, epochs, rounds)
        _show_chosen(run, chosen)
        trials = _trials(run, pool, workers, names, seeds, chosen, rounds, epochs, deadline)
    run.seeds(*sorted({seed for found in trials.values() for seed in found}))
    _show(run, trials)


def _searches(
    run: Run, pool: ProcessPoolExecutor, names: list[str], epochs: int, rounds: int
) -> dict[str, Chosen]:
    """What cross-validation chooses for every data set; each method's search is a task."""
    # The longest first, so that no process waits for another at the end.
    tasks = [(name, method) for name in names for method in reversed(SEARCHED)]
    lengths = [_rounds(name, rounds) for name, _ in tasks]
    all_names, methods = zip(*tasks, strict=True)
    found = pool.map(_searched, all_names, methods, [epochs] * len(tasks), lengths)
    chosen = {name: Chosen({}, {}) for name in names}
    for (name, method), (told, score) in zip(tasks, found, strict=True):
        chosen[name].settings[method], chosen[name].accuracy[method] = told, score
        shown = ", ".join(f"{key} {value:g}" for key, value in told.items())
        run.progress(f"{name}, {method}: {shown}")
    return chosen


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
) -> dict[str, dict[int, dict[str, float]]]:
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
    found: dict[str, dict[int, dict[str, float]]] = {name: {} for name in names}
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


@dataclass(frozen=True)
class _Setting:
    """One partition and one draw of the initial features: what the methods have in common."""

    clients: list[Client]
    model: Any
    start: Any
    training: Any
    seed: int

    def federation(self, clients: Any = None) -> Federation:
        members = self.clients if clients is None else clients
        return Federation(
            [Client(each.name, each.features, each.targets) for each in members], seed=self.seed
        )


def _setting(name: str, seed: int, epochs: int) -> _Setting:
    import torch

    from secure_fl.trainers.networks import FourierModel, LocalTraining, NetworkState

    torch.set_num_threads(1)
    data, rng = _split(name), np.random.default_rng(seed)
    parts = shards(data.y_train, CLIENTS, 2, rng)
    model = FourierModel(len(data.classes), data.X_train.shape[1], WIDTH, normalised=False)
    return _Setting(
        clients_of(data.X_train, data.y_train, parts),
        model,
        NetworkState(model.initial(rng)),
        LocalTraining(epochs=epochs, momentum=0.9),
        seed,
    )


def _last(fed: Federation, states: Iterator[Any]) -> Any:
    for state in fed.rounds(states):
        last = state
    return last


def _fit(setting: _Setting, method: str, rounds: int, told: dict[str, float]) -> Any:
    """The trainer of a method under these settings: takes a federation, gives the last state."""
    from secure_fl.trainers.networks import Regularization, fedavg, fedavgr

    penalties: dict[str, Any] = {name: told[name] for name in GRIDS if name in told}
    training = replace(
        setting.training,
        learning_rate=told["learning_rate"],
        proximal=told.get("proximal", 0.0),
    )
    if method == "OneShot":
        training = replace(training, epochs=rounds * training.epochs)
        rounds = 1
    common = {"start": setting.start, "rounds": rounds, "training": training}
    if not penalties:
        return lambda fed: _last(fed, fedavg(fed, setting.model, **common))
    common["regularization"] = Regularization(**penalties)
    if method == MIXTURE:
        common["distribution"] = "mixture"
    return lambda fed: _last(fed, fedavgr(fed, setting.model, **common))


SEARCHED: dict[str, dict[str, list[float]]] = {
    "OneShot": {},
    "FedAvg": {},
    "FedProx": {"proximal": PROXIMAL},
    "FedAvgR": GRIDS,
}
"""What is searched beside the learning rate, one setting after the other."""


def _searched(name: str, method: str, epochs: int, rounds: int) -> tuple[dict[str, float], float]:
    """Settings and accuracy of the left-out records, by cross-validation for the run's steps.

    On the training records of seed 0's partition; all methods have the same folds.
    """
    from secure_fl.trainers.networks import coordinate_search, cross_validated, folds

    setting, rng = _setting(name, 0, epochs), np.random.default_rng(0)
    pairs = folds(setting.clients, FOLDS, rng)
    # A fold's epochs are shorter by the records that it leaves out.
    length = round(rounds * FOLDS / (FOLDS - 1))

    def score(told: dict[str, float]) -> float:
        fit = _fit(setting, method, length, told)
        return cross_validated(
            pairs, setting.model, lambda fed: fit(fed).parameters, setting.federation
        )

    return coordinate_search({"learning_rate": RATES, **SEARCHED[method]}, score)


def _trial(name: str, seed: int, rounds: int, epochs: int, chosen: Chosen) -> dict[str, float]:
    """Test accuracy in percent of every method on one partition and one draw of features."""
    from secure_fl.trainers.networks import accuracy, clustered_accuracy, fl_hc

    setting = _setting(name, seed, epochs)
    data, model = _split(name), setting.model
    test = data.X_test, data.y_test

    def score(method: str, told: dict[str, float]) -> float:
        state = _fit(setting, method, rounds, told)(setting.federation())
        return 100.0 * accuracy(model, state.parameters, *test)

    told = chosen.settings
    rate = told["FedAvg"]["learning_rate"]
    fed = setting.federation()
    clustered = _last(
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
        **{method: score(method, told[method]) for method in SEARCHED},
        "FL+HC": 100.0 * clustered_accuracy(model, clustered, *test, sizes),
        "no term": score("FedAvgR", {"learning_rate": full["learning_rate"]}),
        **{
            title: score("FedAvgR", {"learning_rate": full["learning_rate"], each: full[each]})
            for each, title in SINGLE.items()
        },
    }
    if name in MIXED:
        found[MIXTURE] = score(MIXTURE, full)
    return found


# ---------------------------------------------------------------------------------------- results


def _show_chosen(run: Run, chosen: dict[str, Chosen]) -> None:
    table = run.table(
        "settings chosen by cross-validation",
        ["data", "method", "learning rate", "alpha", "beta", "gamma", "mu", "accuracy of folds"],
    )
    for name, each in chosen.items():
        for method in SEARCHED:
            told = each.settings[method]
            keys = ("learning_rate", "trace", "features", "mmd", "proximal")
            table.add(name, method, *map(told.get, keys), 100 * each.accuracy[method])
            if told["learning_rate"] in (RATES[0], RATES[-1]):
                run.note(f"{name}, {method}: its learning rate is at the edge of those tried")


def _show(run: Run, trials: dict[str, dict[int, dict[str, float]]]) -> None:
    main_table = run.table("test accuracy in percent", ["data", "seeds", *METHODS])
    single = run.table(
        "regularisers one by one, test accuracy in percent",
        ["data", "seeds", "no term", *SINGLE.values(), "all"],
    )
    against = run.table(
        "FedAvgR against FedAvg, and terms against none, in points",
        ["data", "method", "seeds", "mean difference", "t", "p"],
    )
    mixture = run.table(
        "FedAvgR by moments and by the mixture",
        ["data", "seeds", "moments", "mixture", "mean difference", "p"],
    )
    raw = run.table("every seed", ["data", "seed", *METHODS, "no term", *SINGLE.values(), MIXTURE])
    differences = []
    for name, found in trials.items():
        of = {method: [found[seed][method] for seed in sorted(found)] for method in found[0]}
        main_table.add(name, len(found), *(spread(of[method], 2) for method in METHODS))
        single.add(
            name,
            len(found),
            *(spread(of[m], 2) for m in ("no term", *SINGLE.values(), "FedAvgR")),
        )
        gain = np.subtract(of["FedAvgR"], of["FedAvg"])
        differences.append(float(gain.mean()))
        against.add(name, "FedAvgR", len(found), float(gain.mean()), *paired(gain.tolist()))
        # FedAvg at the rate that FedAvgR got: the rest of the difference is the rate's.
        for title, method in {ALL: "FedAvgR", **{term: term for term in SINGLE.values()}}.items():
            one = np.subtract(of[method], of["no term"])
            against.add(name, title, len(found), float(one.mean()), *paired(one.tolist()))
        if MIXTURE in of:
            gap = np.subtract(of[MIXTURE], of["FedAvgR"])
            both = spread(of["FedAvgR"], 2), spread(of[MIXTURE], 2)
            mixture.add(name, len(found), *both, float(gap.mean()), paired(gap.tolist())[1])
        _raw(raw, name, found)
    _across(run, differences)
    run.note("p: two-sided paired t-test over the seeds; empty where the differences are equal")
    run.note("FL+HC: accuracy of each client's cluster model on all test records, by records")
    run.note(
        f"{FOLDS}-fold cross-validation on the training records of seed 0, as many steps as the run"
        " has: learning rate, then gamma, beta and alpha, or mu; FL+HC takes FedAvg's rate"
    )
    run.note("terms are compared with none at FedAvgR's rate: with FedAvg at that rate")
    run.note("vehicle has 846 records, 500 of which train; svmguide1 is divided by its deviations")


def _raw(table: Table, name: str, found: dict[int, dict[str, float]]) -> None:
    for seed, values in sorted(found.items()):
        table.add(name, seed, *(values.get(column) for column in table.columns[2:]))


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
