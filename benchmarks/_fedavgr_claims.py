"""What full runs say to the claims of fedavgr.txt, and to what we put beside them."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks._harness import Table
from benchmarks._regularised import ALL, CLASS_AGAINST_PLAIN, MMD_BY_CLASS, NONE, SINGLE
from benchmarks._results import Result
from benchmarks._verdicts import NO_TABLE, Judge, Verdict, counted, gain, left_out, mean_of


@dataclass(frozen=True)
class Printed:
    """The paper's set-up of an experiment: by less, a claim of it is not judged.

    Attributes:
        rounds: at least.
        seeds: at least.
        epochs: of a round, at least.
    """

    rounds: int
    seeds: int = 10
    epochs: int = 10

    def reached(self, result: Result, name: str, seeds: object) -> bool:
        """Whether a run's figures of a data set are of such a set-up."""
        rounds = result.parameters.get("mnist_rounds" if name == "mnist" else "rounds")
        had = (rounds, seeds, result.parameters.get("epochs"))
        least = (self.rounds, self.seeds, self.epochs)
        return all(int(str(a or 0)) >= b for a, b in zip(had, least, strict=True))

    @property
    def why(self) -> str:
        """Said of what is not judged."""
        return f"fewer than {self.rounds} rounds, {self.epochs} epochs or {self.seeds} seeds"


TABLE_3, TABLE_2 = Printed(300), Printed(250)
FIGURE_2 = 100
"""Rounds."""


def _split(
    result: Result, table: Table, printed: Printed, keep: Callable[[str], bool]
) -> tuple[list[list[object]], list[str]]:
    """Rows of the gains whose method is kept, and data sets whose runs are too short."""
    rows: list[list[object]] = []
    short: list[str] = []
    for row in table.rows:
        name, method, seeds, *_ = row
        if keep(str(method)):
            if printed.reached(result, str(name), seeds):
                rows.append(list(row))
            elif str(name) not in short:
                short.append(str(name))
    return rows, short


GAINS = "FedAvgR against FedAvg"


def regularised(result: Result) -> Verdict:
    """Whether FedAvgR is better than FedAvg."""
    table = result.table(GAINS)
    if table is None:
        return NO_TABLE
    gains = {(row[0], row[1]): gain(row[3], row[5]) for row in table.rows}
    rows, short = _split(result, table, TABLE_3, lambda method: method == "FedAvgR")
    # At one rate too, or a rate that suits better would pass for the regularisers.
    cases = [
        (str(row[0]), gains[str(row[0]), "FedAvgR"] and gains.get((str(row[0]), ALL), False))
        for row in rows
    ]
    found = counted(cases, "FedAvgR better than FedAvg at its own rate and at FedAvgR's, p < 0.05,")
    return left_out(found, short, TABLE_3.why)


def each_alone(result: Result) -> Verdict:
    """Whether every term by itself is better than none."""
    table = result.table(GAINS)
    if table is None:
        return NO_TABLE
    rows, short = _split(result, table, TABLE_2, lambda method: method in SINGLE.values())
    cases = [(f"{row[0]}, {row[1]}", gain(row[3], row[5])) for row in rows]
    return left_out(counted(cases, "better than none, p < 0.05,"), short, TABLE_2.why)


def all_best(result: Result) -> Verdict:
    """Whether all terms have a higher mean accuracy than none and than each."""
    table = result.table("regularisers one by one")
    if table is None:
        return NO_TABLE
    ours = table.columns.index("all")
    others = [table.columns.index(each) for each in (NONE, *SINGLE.values())]
    cases, short = [], []
    for row in table.rows:
        if not TABLE_2.reached(result, str(row[0]), row[1]):
            short.append(str(row[0]))
            continue
        known = [value for at in others if (value := mean_of(row[at])) is not None]
        mean = mean_of(row[ours])
        cases.append((str(row[0]), mean is not None and mean > max(known)))
    return left_out(counted(cases, "all terms above none and each"), short, TABLE_2.why)


def class_better(result: Result) -> Verdict:
    """Whether the MMD by class is better than the paper's."""
    table = result.table(GAINS)
    if table is None:
        return NO_TABLE
    rows, short = _split(result, table, TABLE_2, lambda each: each == CLASS_AGAINST_PLAIN)
    cases = [(str(row[0]), gain(row[3], row[5])) for row in rows]
    return left_out(counted(cases, "by class better, p < 0.05,"), short, TABLE_2.why)


def _courses(result: Result, column: str) -> dict[str, list[float]] | None:
    """By method, a column of figure 2's table in the order of the rounds; None for a short run."""
    table = result.table("distance of the clients' mean features")
    short = int(result.parameters.get("figure_rounds") or 0) < FIGURE_2
    if table is None or short or int(result.parameters.get("epochs") or 0) < TABLE_2.epochs:
        return None
    method, at, value = (table.columns.index(each) for each in ("method", "round", column))
    found: dict[str, list[float]] = {}
    for row in sorted(table.rows, key=lambda row: int(str(row[at]))):
        mean = mean_of(row[value])
        found.setdefault(str(row[method]), []).append(float("nan") if mean is None else mean)
    return found


_SHORT = Verdict("not judged", f"no table of figure 2 by {FIGURE_2} rounds of 10 epochs")


def comes_nearer(result: Result) -> Verdict:
    """Whether the distance falls from each round that figure 2 shows to the next."""
    found = _courses(result, "distance")
    if found is None:
        return _SHORT
    cases = [
        (name, all(b < a for a, b in zip(found[name], found[name][1:], strict=False)))
        for name in ("MMD", ALL)
        if name in found
    ]
    return counted(cases, "smaller at every round shown")


def ends_nearer(methods: tuple[str, ...], column: str) -> Judge:
    """Whether these methods end with less of a distance than FedAvg at the same rate."""

    def judge(result: Result) -> Verdict:
        found = _courses(result, column)
        if found is None:
            return _SHORT
        cases = [(name, found[name][-1] < found["FedAvg"][-1]) for name in methods if name in found]
        return counted(cases, f"{column} below FedAvg's at the end")

    return judge


OF_THE_PAPER = ("MMD", ALL)
BY_CLASS_ALONE = (MMD_BY_CLASS,)
