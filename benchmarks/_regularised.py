"""FedAvgR and its peers on one set-up: what is fitted, searched and compared, on any clients.

Of fedavgr.txt, section 5: 100 trainable random Fourier features sqrt(2) cos(.), momentum 0.9,
batches of 10. Every method's learning rate, the regularisers' weights and the proximal weight are
chosen by 3-fold cross-validation inside the training records, over as many steps as the run has.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from benchmarks._harness import Run
from benchmarks._kept import Numbers
from secure_fl.federation import Client, Federation

WIDTH = 100
RATES = [0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001, 0.00003]
"""At the paper's scale of features; the paper does not say its rate."""
LARGER = [0.3, 1.0, 3.0]
"""Tried one after the other while the largest of those tried is the best."""
GRIDS = {
    "mmd": [1e-4, 1e-3, 1e-2, 1e-1],
    "features": [1e-6, 1e-5, 1e-4, 1e-3, 1e-2],
    "trace": [1e-8, 1e-7, 1e-6, 1e-5, 1e-4],
}
PROXIMAL = [1e-4, 1e-3, 1e-2, 1e-1]
"""The paper's grids (5.3)."""
FOLDS = 3
TIERS = (1, 3)
"""Every data set gets the first seed, and three before another gets more."""

MIXTURE = "FedAvgR, mixture"
BY_CLASS = "FedAvgR, by class"
"""With the MMD between features of one class, which is not the paper's."""
NONE, MMD_BY_CLASS = "no term", "MMD by class"
SINGLE = {"trace": "trace norm", "features": "feature norm", "mmd": "MMD"}
ALL, ALL_BY_CLASS = "all terms", "all terms, MMD by class"
NONE_BY_CLASS = "no term, at the rate of by class"
MMD_MOST, CLASS_MOST = "MMD, largest weight", "MMD by class, largest weight"
"""Of the grid: a chosen weight may be too small to see what its term does."""
OF_CLASSES = (MMD_BY_CLASS, BY_CLASS, NONE_BY_CLASS, MMD_MOST, CLASS_MOST)
CLASS_AGAINST_PLAIN = "by class against plain, all terms"

SEARCHED: dict[str, dict[str, list[float]]] = {
    "OneShot": {},
    "FedAvg": {},
    "FedProx": {"proximal": PROXIMAL},
    "FedAvgR": GRIDS,
    BY_CLASS: GRIDS,
}
"""What is searched beside the learning rate, one setting after the other."""

Settings: TypeAlias = dict[str, float]


@dataclass(frozen=True)
class Problem:
    """Clients, a test set and a draw of the initial features: what methods have in common.

    Attributes:
        clients: with their training records.
        model: of `secure_fl.trainers.networks`.
        start: its initial state.
        training: local epochs, momentum and batches; a method's rate comes to it.
        seed: of the federation.
        test: features, shape (n, d), and class codes, shape (n,).
    """

    clients: list[Client]
    model: Any
    start: Any
    training: Any
    seed: int
    test: tuple[Any, Any]

    def federation(self, clients: Any = None) -> Federation:
        """A handle of these clients, or of others."""
        members = self.clients if clients is None else clients
        return Federation(
            [Client(each.name, each.features, each.targets) for each in members], seed=self.seed
        )

    def known(self, name: str, rounds: int) -> dict[str, Any]:
        """What a number of a run on this problem, by the name of the data, is kept by."""
        training = self.training
        return {
            "data": name,
            "seed": self.seed,
            "clients": len(self.clients),
            "width": self.model.width,
            "rounds": rounds,
            "epochs": training.epochs,
            "momentum": training.momentum,
            "batch": training.batch_size,
        }

    def accuracy(self, parameters: Any) -> float:
        """Of the test records, in percent."""
        from secure_fl.trainers.networks import accuracy

        return 100.0 * accuracy(self.model, parameters, *self.test)


Make: TypeAlias = Callable[[str, int, int], Problem]
"""A problem of a data set, a seed and a number of local epochs; of a module, for processes."""


def problem(
    clients: list[Client], classes: int, test: tuple[Any, Any], seed: int, epochs: int, rng: Any
) -> Problem:
    """The paper's model and training on clients; `rng` draws the initial features."""
    import torch

    from secure_fl.trainers.networks import FourierModel, LocalTraining, NetworkState

    torch.set_num_threads(1)
    model = FourierModel(classes, test[0].shape[1], WIDTH, normalised=False)
    training = LocalTraining(epochs=epochs, momentum=0.9)
    return Problem(clients, model, NetworkState(model.initial(rng)), training, seed, test)


@dataclass(frozen=True)
class Chosen:
    """What cross-validation chose for a data set.

    Attributes:
        settings: by method; of FL+HC, which is not searched, FedAvg's.
        accuracy: of the left-out records, by method, in [0, 1].
    """

    settings: dict[str, Settings]
    accuracy: dict[str, float]


def last(fed: Federation, states: Iterator[Any]) -> Any:
    """The last state of a run."""
    for state in fed.rounds(states):
        found = state
    return found


def states(setting: Problem, method: str, rounds: int, told: Settings) -> Callable[..., Any]:
    """What takes a federation and gives the rounds of a method under these settings."""
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
        return lambda fed: fedavg(fed, setting.model, **common)
    common["regularization"] = Regularization(**penalties, per_class=method == BY_CLASS)
    if method == MIXTURE:
        common["distribution"] = "mixture"
    return lambda fed: fedavgr(fed, setting.model, **common)


def fit(setting: Problem, method: str, rounds: int, told: Settings) -> Callable[..., Any]:
    """The trainer of a method: takes a federation, gives the last state."""
    run = states(setting, method, rounds, told)
    return lambda fed: last(fed, run(fed))


def searched(
    make: Make, numbers: Numbers, name: str, method: str, epochs: int, rounds: int
) -> tuple[Settings, float]:
    """Settings and accuracy of the left-out records, by cross-validation for the run's steps.

    On the training records of seed 0's clients; all methods have the same folds.
    """
    from secure_fl.trainers.networks import coordinate_search, cross_validated, folds

    setting, rng = make(name, 0, epochs), np.random.default_rng(0)
    pairs = folds(setting.clients, FOLDS, rng)
    # A fold's epochs are shorter by the records that it leaves out.
    length = round(rounds * FOLDS / (FOLDS - 1))
    numbers = numbers.about(**setting.known(name, length), records=f"{FOLDS} folds", method=method)

    @functools.cache
    def scored(items: tuple[tuple[str, float], ...]) -> float:
        told = dict(items)
        run = fit(setting, method, length, told)
        return numbers.number(
            lambda: cross_validated(
                pairs, setting.model, lambda fed: run(fed).parameters, setting.federation
            ),
            told=told,
        )

    def score(told: Settings) -> float:
        return scored(tuple(told.items()))

    others = SEARCHED[method]
    first = {name: values[:1] for name, values in others.items()}
    return coordinate_search({"learning_rate": rates_of(score, first), **others}, score)


def rates_of(score: Callable[[Settings], float], others: Mapping[str, list[float]]) -> list[float]:
    """The rates to try: `RATES`, and larger ones while the largest of those tried is the best."""
    from secure_fl.trainers.networks import coordinate_search

    rates = RATES
    for larger in LARGER:
        best, _ = coordinate_search({"learning_rate": rates, **others}, score)
        if best["learning_rate"] < rates[0]:
            break
        rates = [larger, *rates]
    return rates


Score: TypeAlias = Callable[[str, Settings], float]
"""Test accuracy in percent of a method under settings."""


def scorer(setting: Problem, rounds: int, numbers: Numbers) -> Score:
    """What trains and scores a method; equal runs by two names are made once.

    Args:
        setting: the problem.
        rounds: of a run.
        numbers: where accuracies are kept, which know the problem.
    """

    @functools.cache
    def trained(kind: str, told: tuple[tuple[str, float], ...]) -> float:
        def made() -> float:
            state = fit(setting, kind, rounds, dict(told))(setting.federation())
            return setting.accuracy(state.parameters)

        return numbers.number(made, method=kind, told=dict(told))

    def score(method: str, told: Settings) -> float:
        own = method == "OneShot" or (method in (BY_CLASS, MIXTURE) and "mmd" in told)
        return trained(method if own else "", tuple(sorted(told.items())))

    return score


def one_by_one(score: Score, full: Settings) -> dict[str, float]:
    """Accuracies without a term and with each by itself, at FedAvgR's rate and weights."""
    rate = {"learning_rate": full["learning_rate"]}
    found = {NONE: score("FedAvgR", rate)}
    for each, title in SINGLE.items():
        found[title] = score("FedAvgR", {**rate, each: full[each]})
    return found


def by_class(score: Score, full: Settings) -> dict[str, float]:
    """The same of the MMD by class, and both MMDs by the largest weight, at its rate."""
    rate = {"learning_rate": full["learning_rate"]}
    most = {**rate, "mmd": max(GRIDS["mmd"])}
    return {
        BY_CLASS: score(BY_CLASS, full),
        NONE_BY_CLASS: score("FedAvgR", rate),
        MMD_BY_CLASS: score(BY_CLASS, {**rate, "mmd": full["mmd"]}),
        MMD_MOST: score("FedAvgR", most),
        CLASS_MOST: score(BY_CLASS, most),
    }


# -------------------------------------------------------------------------------------- processes


def searches(
    run: Run,
    pool: ProcessPoolExecutor,
    make: Make,
    lengths: Mapping[str, int],
    methods: Sequence[str],
    epochs: int,
    numbers: Numbers,
) -> dict[str, Chosen]:
    """What cross-validation chooses for every data set; each method's search is a task.

    Args:
        run: told of the progress.
        pool: of processes.
        make: of the data sets' problems.
        lengths: rounds by data set.
        methods: that are searched.
        epochs: of a round.
        numbers: where scores are kept.
    """
    # The longest first, so that no process waits for another at the end.
    tasks = [(name, method) for name in lengths for method in reversed(methods)]
    rounds = [lengths[name] for name, _ in tasks]
    search = functools.partial(searched, make, numbers)
    found = pool.map(search, *zip(*tasks, strict=True), [epochs] * len(tasks), rounds)
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
        for name in lengths
    }


Found: TypeAlias = dict[int, dict[str, float]]
"""Accuracies by seed and method."""


def run_trials(
    run: Run,
    pool: ProcessPoolExecutor,
    workers: int,
    work: Mapping[str, Callable[[int], dict[str, float]]],
    size: Mapping[str, int],
    seeds: int,
    deadline: float,
) -> dict[str, Found]:
    """Accuracies by data set, seed and method; small data sets get more seeds.

    Args:
        run: told of the progress.
        pool: of processes.
        workers: how many.
        work: by data set, what gives a seed's accuracies.
        size: of a seed, by data set.
        seeds: the most.
        deadline: of the monotonic clock; the next seed is begun if it should end before it.
    """
    # The longest first where all run, so that no process waits for another at the end.
    order = sorted(
        ((name, seed) for name in work for seed in range(seeds)),
        key=lambda task: (
            sum(task[1] >= t for t in TIERS),
            size[task[0]] * (task[1] + 1 if task[1] >= TIERS[0] else -1),
        ),
    )
    found: dict[str, Found] = {name: {} for name in work}
    running: dict[Future[dict[str, float]], tuple[str, int, float]] = {}
    longest = dict.fromkeys(work, 0.0)
    while order or running:
        while order and len(running) < workers:
            name, seed = order.pop(0)
            if seed < TIERS[0] or time.monotonic() + longest[name] < deadline:
                running[pool.submit(work[name], seed)] = (name, seed, time.monotonic())
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            name, seed, began = running.pop(future)
            found[name][seed] = future.result()
            longest[name] = max(longest[name], time.monotonic() - began)
            shown = ", ".join(f"{method} {value:.2f}" for method, value in future.result().items())
            run.progress(f"{name}, seed {seed}: {shown}")
    return found
