"""When do FedNewton's rounds pay on MNIST: records a client, and rounds on unequal clients?

After fednewton.txt, appendix B, the halves of figures 3 and 5 that are on MNIST: 60,000 training
records, 2000 random Fourier features, kernel parameter, lambda and rates of its table 3, all as in
`fednewton_tables`. Figure 3 divides the records evenly and at random among 5 to 60 clients; figure
5 has 10 clients by Dirichlet(0.5). All methods start from DKRR.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
import numpy as np

from benchmarks._data import mnist
from benchmarks._federations import clients_of
from benchmarks._harness import Run, Split, benchmark, spread
from benchmarks.fednewton_tables import (
    ALPHA,
    AVERAGING,
    DKRR,
    FEATURES,
    GUARDED,
    POOLED,
    PRINTED,
    PROX,
    RIDGE,
    ROUNDS,
    TUNED,
    mapped,
    methods,
)
from secure_fl.data import dirichlet, iid
from secure_fl.federation import Client, Federation
from secure_fl.objectives import SquaredLoss
from secure_fl.trainers.linear import fednewton, krr

CLIENTS: tuple[int, ...] = (5, 10, 14, 18, 30, 60)
"""Of figure 3: 12,000 to 1,000 records a client, around the paper's thresholds 4,400 and 3,300."""
UNEQUAL = 10
QUICK_CLIENTS: tuple[int, ...] = (2, 10)
QUICK_RECORDS = 3_000
SIZES, BY_ROUND = "3", "5"
NEWTON = (PRINTED, GUARDED)
COMPARED = (AVERAGING, TUNED, PROX, *NEWTON)


@dataclass(frozen=True)
class Draw:
    """One draw of the features.

    Attributes:
        train: shape (n, M).
        y_train: class codes, shape (n,).
        test: shape (m, M).
        y_test: class codes, shape (m,).
        objective: squared loss.
        pooled: percent of the test records that pooled ridge regression tells right.
        rng: of the partitions.
    """

    train: Any
    y_train: Any
    test: Any
    y_test: Any
    objective: SquaredLoss
    pooled: float
    rng: np.random.Generator

    def accuracy(self, weights: Any) -> float:
        """In percent."""
        return 100.0 * float(np.mean(self.objective.predict(weights, self.test) == self.y_test))


Accuracies = dict[str, dict[int, float]]
"""Percent by method and round; 0 stands for methods without rounds."""


def drawn(data: Split, seed: int) -> Draw:
    """Features of all records, and what pooled ridge regression reaches on them."""
    rng = np.random.default_rng(seed)
    train, test = mapped("mnist", data, rng)
    objective = SquaredLoss(RIDGE["mnist"], len(data.classes))
    draw = Draw(train, data.y_train, test, data.y_test, objective, 0.0, rng)
    (best,) = _states([Client("all", train, data.y_train)], partial(krr, objective=objective))
    return replace(draw, pooled=draw.accuracy(best.weights))


def accuracies(
    draw: Draw, clients: Sequence[Client], chosen: Sequence[str]
) -> tuple[Accuracies, float]:
    """What the chosen methods reach, and the largest contraction factor of the safeguarded run."""
    (start,) = _states(clients, partial(fednewton, objective=draw.objective, rounds=0))
    found: Accuracies = {POOLED: {0: draw.pooled}, DKRR: {0: draw.accuracy(start.weights)}}
    trainers, factor = methods("mnist"), 0.0
    told = {"objective": draw.objective, "weights": start.weights}
    for method in chosen:
        states = _states(clients, partial(trainers[method], **told))
        found[method] = {at: draw.accuracy(states[at - 1].weights) for at in ROUNDS}
        if method == GUARDED:
            factor = max(state.contraction for state in states)
    return found, factor


def _states(clients: Sequence[Client], trainer: Any) -> list[Any]:
    # The clients keep what they derived from their records from method to method.
    with Federation(list(clients)) as fed:
        states: Iterator[Any] = fed.rounds(trainer(fed))
        return list(states)


def _divided(draw: Draw, figure: str, m: int) -> list[Client]:
    if figure == SIZES:
        parts = iid(len(draw.y_train), m, draw.rng)
    else:
        parts = dirichlet(draw.y_train, m, ALPHA["mnist"], draw.rng)
    return clients_of(draw.train, draw.y_train, parts)


@benchmark(
    "when do FedNewton's rounds pay on MNIST?",
    click.option("--trials", type=click.IntRange(1), default=3, show_default=True),
)
def main(run: Run, trials: int) -> None:
    """Test accuracy by records a client and by round, beside pooled ridge regression."""
    data, sizes = mnist(), QUICK_CLIENTS if run.quick else CLIENTS
    if run.quick:
        trials = 1
        few = slice(QUICK_RECORDS)
        data = replace(data, X_train=data.X_train[few], y_train=data.y_train[few])
    run.parameter(random_features=FEATURES, ridge=RIDGE["mnist"], records=len(data.y_train))
    settings = [*((SIZES, m, NEWTON) for m in sizes), (BY_ROUND, UNEQUAL, COMPARED)]
    found: dict[tuple[str, int], list[tuple[Accuracies, float]]] = {}
    for seed in run.seeds(*range(trials)):
        draw = drawn(data, seed)
        for figure, m, chosen in settings:
            run.progress(f"figure {figure}: {m} clients, trial {seed}")
            clients = _divided(draw, figure, m)
            found.setdefault((figure, m), []).append(accuracies(draw, clients, chosen))
    _show(run, found, len(data.y_train))


def _show(
    run: Run, found: dict[tuple[str, int], list[tuple[Accuracies, float]]], records: int
) -> None:
    where = ("figure", "clients", "records a client")
    table = run.table(
        "test accuracy in percent",
        (*where, "method", "at once", *(f"round {at}" for at in ROUNDS)),
    )
    factors = run.table("largest contraction factor", (*where, "factor"))
    for (figure, m), trials in found.items():
        setting = (figure, m, records // m)
        first, _ = trials[0]
        for method, at_rounds in first.items():
            cells = [
                spread([each[method][at] for each, _ in trials], 2) if at in at_rounds else None
                for at in (0, *ROUNDS)
            ]
            table.add(*setting, method, *cells)
        factors.add(*setting, spread([factor for _, factor in trials], 2))
    run.note("figure 3: records divided evenly at random; figure 5: Dirichlet(0.5), mean records")
    run.note(
        "contraction factor: gradient's norm after a whole step over that before, the largest of a"
        " run; where it stays at 1 or more the printed algorithm diverges"
    )


if __name__ == "__main__":
    main()
