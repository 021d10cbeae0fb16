"""What the studies of FedRCO run: settings, methods, and learning rates with their sources."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from benchmarks import _results
from benchmarks._fedrco import (
    ABLATIONS,
    ALONE,
    DIVISIONS,
    FIRST,
    PARTITIONS,
    SECOND,
    UNWATCHED,
    Task,
)
from secure_fl.errors import InputError

PERSONAL = ("FedAvg", ALONE, "FedPM", "FedRCO-ori", "FedRCO")
"""FedRCO, what it is without its aggregation, and what the personal models compare with. FedAvg
tuned at every client follows from FedAvg's runs."""


@dataclass(frozen=True)
class Study:
    """Runs that answer one question.

    Attributes:
        methods: that are compared.
        settings: partition, number of clients, participation.
        data: of `DATA`.
        factors: on the methods' rates; every one is a run.
        traced: whether clients keep the trajectories of their steps.
        most: rounds, where more would tell no more; 0 for no bound.
    """

    methods: tuple[str, ...]
    settings: tuple[tuple[str, int, float], ...]
    data: str = "mnist"
    factors: tuple[float, ...] = (1.0,)
    traced: bool = False
    most: int = 0


_SKEWED = PARTITIONS[0]
STUDIES = {
    "partitions": Study(PERSONAL, tuple((name, 10, 0.8) for name in DIVISIONS)),
    # As the paper's: 100 clients.
    "participation": Study(
        ("FedAvg", "FedRCO-ori", "FedRCO"),
        tuple((_SKEWED, 100, share) for share in (0.1, 0.2, 0.5, 0.8, 1.0)),
    ),
    "clients": Study(PERSONAL, tuple((_SKEWED, number, 0.8) for number in (10, 50, 100))),
    # Its explosions come with long steps.
    "gradients": Study(
        ("FedRCO", UNWATCHED), ((_SKEWED, 10, 0.8),), factors=(1.0, 2.0), traced=True
    ),
    "communication": Study((*FIRST, *SECOND), ((_SKEWED, 10, 0.8),), most=25),
    "cifar10": Study(PERSONAL, ((_SKEWED, 10, 0.8),), data="cifar10"),
}

SEARCHED = {
    "FedAvg": 0.2,
    "FedAvgM": 0.1,
    "FedAdam": 0.04,
    "FedProx": 0.2,
    ALONE: 0.2,
    "LocalNewton": 0.0125,
    "FedPM": 0.2,
    "FedRCO-ori": 0.0125,
    "FedRCO": 0.0125,
}
"""Rates of a whole search over 2.5 T_inv by fedrco_tables (docs/networks.md): MNIST, 10 clients."""

Key: TypeAlias = tuple[str, str, int]
"""Data, method, number of clients."""


@dataclass(frozen=True)
class Rate:
    """A learning rate and where it is from."""

    value: float
    source: str


def short(study: Study) -> Study:
    """The same question of few clients on scikit-learn's digits."""
    small = tuple((p, min(n, 6), share) for p, n, share in study.settings)
    return replace(study, data="digits", settings=tuple(dict.fromkeys(small)))


def parent(method: str) -> str:
    """The method whose rate it shares."""
    return "FedRCO" if method in ABLATIONS else method


def tasks_of(
    study: Study, rates: Mapping[Key, Rate], rounds: int, device: str, seeds: Iterable[int]
) -> list[Task]:
    """Every run of a study."""
    return [
        Task(
            partition,
            count,
            method,
            min(rounds, study.most or rounds),
            device,
            factor * rates[study.data, parent(method), count].value,
            seed,
            data=study.data,
            participation=share,
            traced=study.traced,
        )
        for seed in seeds
        for partition, count, share in study.settings
        for factor in study.factors
        for method in study.methods
    ]


def wanted(studies: Iterable[Study]) -> list[Key]:
    """What rates the studies need."""
    return list(
        dict.fromkeys(
            (study.data, parent(method), count)
            for study in studies
            for _, count, _ in study.settings
            for method in study.methods
        )
    )


def read_rates(path: Path) -> dict[tuple[str, int], float]:
    """Rates of a saved full run of fedrco_tables, by method and number of clients.

    Raises:
        InputError: not a saved result, or one of something else.
    """
    result = _results.load(path)
    table = result.table("accuracy in percent after")
    if result.benchmark != "fedrco_tables" or result.quick or table is None:
        raise InputError(
            f"{path}: not a full run of fedrco_tables; make one with"
            " securefl bench run fedrco_tables"
        )
    places = [table.columns.index(name) for name in ("method", "clients", "rate")]
    found = {}
    for row in table.rows:
        method, count, rate = (row[place] for place in places)
        found[str(method), int(str(count))] = float(str(rate))
    return found


def given_rates(texts: Iterable[str]) -> dict[str, float]:
    """Rates of METHOD=RATE.

    Raises:
        InputError: another form, an unknown method, or a rate that is not above 0.
    """
    found = {}
    for text in texts:
        method, _, value = text.partition("=")
        try:
            rate = float(value)
        except ValueError:
            rate = 0.0
        if method not in SEARCHED or not 0 < rate < float("inf"):
            known = ", ".join(SEARCHED)
            raise InputError(
                f'--rate: found "{text}", expected METHOD=RATE with a rate above 0 and one of'
                f" {known}"
            )
        found[method] = rate
    return found


def chosen(
    keys: Iterable[Key],
    given: Mapping[str, float],
    read: Mapping[tuple[str, int], float],
    source: str,
) -> dict[Key, Rate]:
    """The rate of every key; a search's own where it was made with that many clients.

    Args:
        keys: what is needed.
        given: by the user, by method.
        read: of a saved run.
        source: its name.
    """
    found = {}
    for data, method, count in keys:
        if method in given:
            rate = Rate(given[method], "given")
        elif (method, count) in read:
            rate = Rate(read[method, count], source)
        elif (method, 10) in read:
            rate = Rate(read[method, 10], f"{source}, of 10 clients")
        else:
            rate = Rate(SEARCHED[method], "docs/networks.md, of 10 clients")
        found[data, method, count] = rate
    return found
