"""FedAvgR's settings, gains and accuracies as tables of a benchmark's results."""

import numpy as np

from benchmarks._harness import Run, Table, paired
from benchmarks._regularised import (
    ALL,
    ALL_BY_CLASS,
    BY_CLASS,
    CLASS_AGAINST_PLAIN,
    CLASS_MOST,
    LARGER,
    MMD_BY_CLASS,
    MMD_MOST,
    NONE,
    NONE_BY_CLASS,
    RATES,
    SINGLE,
    Chosen,
    Found,
)


def table_of_chosen(run: Run) -> Table:
    """To be filled by `show_chosen`."""
    return run.table(
        "settings chosen by cross-validation",
        ["data", "method", "learning rate", "alpha", "beta", "gamma", "mu", "accuracy of folds"],
    )


def show_chosen(run: Run, table: Table, name: str, each: Chosen) -> None:
    """A row a method, and a remark where a rate is at the edge of those tried."""
    for method, told in each.settings.items():
        keys = ("learning_rate", "trace", "features", "mmd", "proximal")
        table.add(name, method, *map(told.get, keys), 100 * each.accuracy[method])
        if told["learning_rate"] in (LARGER[-1], RATES[-1]):
            run.note(f"{name}, {method}: its learning rate is at the edge of those tried")


def table_of_gains(run: Run) -> Table:
    """To be filled by `show_gains`."""
    return run.table(
        "FedAvgR against FedAvg, and terms against none, in points",
        ["data", "method", "seeds", "mean difference", "t", "p"],
    )


def show_gains(table: Table, name: str, found: Found) -> float:
    """FedAvgR against FedAvg, each at its own rate, then terms against none at one rate.

    Returns:
        The mean difference of the first.
    """
    of = columns(found)

    def add(title: str, method: str, base: str) -> float:
        gain = np.subtract(of[method], of[base])
        table.add(name, title, len(found), float(gain.mean()), *paired(gain.tolist()))
        return float(gain.mean())

    first = add("FedAvgR", "FedAvgR", "FedAvg")
    # FedAvg at the rate that FedAvgR got: the rest of the difference is the rate's.
    for title, method in {ALL: "FedAvgR", **{term: term for term in SINGLE.values()}}.items():
        add(title, method, NONE)
    if BY_CLASS in of:
        add(BY_CLASS, BY_CLASS, "FedAvg")
        add(ALL_BY_CLASS, BY_CLASS, NONE_BY_CLASS)
        for method in (MMD_BY_CLASS, MMD_MOST, CLASS_MOST):
            add(method, method, NONE_BY_CLASS)
        add(CLASS_AGAINST_PLAIN, BY_CLASS, "FedAvgR")
    return first


def columns(found: Found) -> dict[str, list[float]]:
    """Accuracies by method, one a seed in order."""
    seeds = sorted(found)
    return {method: [found[seed][method] for seed in seeds] for method in found[seeds[0]]}


def raw_rows(table: Table, name: str, found: Found) -> None:
    """A row a seed, of the methods that the table has columns for."""
    for seed, values in sorted(found.items()):
        table.add(name, seed, *(values.get(column) for column in table.columns[2:]))
