"""What the studies of FedRCO run: settings, methods, and learning rates with their sources."""

import math
from collections.abc import Iterable, Mapping, Sequence
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

SEARCHED: dict[int, dict[str, float]] = {
    10: {
        "FedAvg": 0.2,
        "FedAvgM": 0.1,
        "FedAdam": 0.04,
        "FedProx": 0.2,
        ALONE: 0.2,
        "LocalNewton": 0.0125,
        "FedPM": 0.2,
        "FedRCO-ori": 0.0125,
        "FedRCO": 0.0125,
    },
    50: {
        "FedAvg": 0.4,
        "FedAvgM": 0.2,
        "FedAdam": 0.04,
        "FedProx": 0.4,
        ALONE: 0.1,
        "LocalNewton": 0.0125,
        "FedPM": 0.1,
        "FedRCO-ori": 0.0125,
        "FedRCO": 0.0125,
    },
    100: {"FedAvg": 0.2, ALONE: 0.2, "FedPM": 0.2, "FedRCO-ori": 0.0125, "FedRCO": 0.0125},
}
"""Rates of whole searches over 2.5 T_inv on MNIST (docs/networks.md), by number of clients."""

DOCUMENTED = "docs/networks.md"

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


def limited(studies: Mapping[str, Study], methods: Sequence[str]) -> dict[str, Study]:
    """The studies with some of their methods alone.

    Raises:
        InputError: a study has none of them.
    """
    found = {}
    for name, study in studies.items():
        kept = tuple(each for each in study.methods if each in methods)
        if not kept:
            raise InputError(
                f"--method: {name} has none of {', '.join(methods)}; it has"
                f" {', '.join(study.methods)}"
            )
        found[name] = replace(study, methods=kept)
    return found


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
        if method not in SEARCHED[10] or not 0 < rate < float("inf"):
            known = ", ".join(SEARCHED[10])
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
    """The rate of every key: a search's own where it was made with that many clients.

    Of other searches the one with the nearest number of clients.

    Args:
        keys: what is needed.
        given: by the user, by method.
        read: of a saved run, which is of MNIST.
        source: its name.
    """
    documented = {(name, n): rate for n, rates in SEARCHED.items() for name, rate in rates.items()}
    found = {}
    for data, method, count in keys:
        if method in given:
            found[data, method, count] = Rate(given[method], "given")
            continue
        sources = [(read, source)] * (data == "mnist") + [(documented, DOCUMENTED)]
        near = [
            (n, known[method, n], name)
            for known, name in sources
            if (n := _nearest(known, method, count))
        ]
        # Another source's search with as many clients is worth more than one with others.
        n, value, name = next((each for each in near if each[0] == count), near[0])
        found[data, method, count] = Rate(value, name if n == count else f"{name}, of {n} clients")
    return found


def _nearest(known: Mapping[tuple[str, int], float], method: str, count: int) -> int | None:
    """The number of clients, of those with a rate for the method, that is nearest by its ratio."""
    counts = [n for name, n in known if name == method]
    return min(counts, key=lambda n: abs(math.log(n / count)), default=None)


def to_search(known: Mapping[Key, Rate], *, again: bool) -> list[Key]:
    """Keys whose rates are to be searched, the longest searches first.

    Args:
        known: of `chosen`.
        again: those of docs/networks.md too.
    """
    keys = [
        key
        for key, rate in known.items()
        if rate.source.startswith(DOCUMENTED) and (again or key[0] != "mnist")
    ]
    return sorted(keys, key=lambda key: (-key[2], key[1] in FIRST))
