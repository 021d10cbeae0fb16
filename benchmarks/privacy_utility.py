"""What does element-level privacy cost in accuracy, and how much of it does smoothing win back?

The setting of kahm.txt, table 5: 20 Newsgroups, 100 clients, Dirichlet alpha 0.1, one matrix entry
moves by at most 1, delta 1e-5. Beside every epsilon stands what it implies for a whole record.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # has no types

from benchmarks._drawings import save
from benchmarks._federations import Cells, cells_of
from benchmarks._harness import Run, Split, benchmark, newsgroups, spread
from dp import Element, Statement, release_batches
from dp.smoothing import smooth, smooth_oracle_without_guarantee
from kahm import classify
from secure_fl.data import dirichlet
from secure_fl.report import figures

EPSILONS = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
DELTA = 1e-5
CLIENTS = 100
ALPHA = 0.1
BATCH_SIZE = 100
BOUNDS = (-4.0, 4.0)
"""A vector of norm 10 with 384 entries has a root mean square entry of 0.51; 4 is eight of them."""
GRID = 2.0**-10
METHODS = ("none", "sure", "oracle")


def _accuracy(cells: Cells, matrices: Sequence[NDArray[Any]], data: Split) -> float:
    batches = [matrix.astype(np.float32) for matrix in matrices]
    private = Cells(batches, cells.cells, cells.clients, cells.classes)
    values = private.measures(private.fit(), data.X_test)
    return 100.0 * float(np.mean(classify(values) == data.y_test))


def _one(
    data: Split, epsilon: float, seed: int, error_ratios: list[tuple[float, float]]
) -> tuple[dict[str, float], Statement]:
    """Accuracy of each way of smoothing the same noisy batches; every client releases its own."""
    parts = dirichlet(data.y_train, CLIENTS, ALPHA, np.random.default_rng(seed))
    cells = cells_of(data.X_train, data.y_train, parts, len(data.classes), BATCH_SIZE)
    noisy: list[NDArray[Any]] = []
    owners = np.array(cells.cells) // cells.classes
    for client in np.unique(owners):
        own = [cells.batches[i] for i in np.flatnonzero(owners == client)]
        released = release_batches(
            own,
            epsilon=epsilon,
            delta=DELTA,
            adjacency=Element(1.0),
            bounds=BOUNDS,
            grid=GRID,
            batching="order",
            smoothing="none",
        )
        noisy += released.noisy
    variance = released.statement.noise_scale**2
    sure, oracle = [], []
    for matrix, records in zip(noisy, cells.batches, strict=True):
        private = records.astype(np.float64)
        with threadpool_limits(1):  # on matrices this small, threads only wait for one another
            sure.append(smooth(matrix, variance).matrix)
            oracle.append(smooth_oracle_without_guarantee(matrix, private).matrix)
        ours, best, without = (
            float(np.linalg.norm(each - private)) for each in (sure[-1], oracle[-1], matrix)
        )
        error_ratios.append((ours / best, ours / without))
    found = {"none": noisy, "sure": sure, "oracle": oracle}
    return {name: _accuracy(cells, found[name], data) for name in METHODS}, released.statement


def _save_drawing(run: Run, scores: dict[str, dict[float, list[float]]], clear: float) -> None:
    """Accuracy against epsilon."""
    labels = {
        "none": "no smoothing",
        "sure": "smoothing by Stein's estimate",
        "oracle": "oracle smoothing (no guarantee)",
    }
    lines = {
        labels[name]: [float(np.mean(scores[name][epsilon])) for epsilon in EPSILONS]
        for name in METHODS
    }

    def draw(axes: Any) -> None:
        figures.draw_lines(
            axes,
            EPSILONS,
            lines,
            xlabel="epsilon of an entry, not per record",
            ylabel="test accuracy, %",
            level=("no privacy", clear),
        )

    save(run, "privacy_utility", draw, width=6.0, height=4.0)


@benchmark("what does element-level privacy cost in accuracy, and what does smoothing win back?")
def main(run: Run) -> None:
    """Accuracy under noise without smoothing, with the default, and with the oracle."""
    seeds = run.seeds(0) if run.quick else run.seeds(0, 1, 2)
    epsilons = (1.0, 3.0) if run.quick else EPSILONS
    data = newsgroups()
    run.parameter(
        clients=CLIENTS,
        alpha=ALPHA,
        batch_size=BATCH_SIZE,
        delta=DELTA,
        unit=Element(1.0).unit,
        bounds=list(BOUNDS),
        grid=GRID,
    )
    table = run.table(
        "test accuracy %, 20 Newsgroups, 100 clients, alpha 0.1, delta 1e-5",
        [
            "epsilon per element",
            "no smoothing",
            "default smoothing",
            "oracle (no guarantee)",
            "record: entries move <= 1",
            "record: replaced",
        ],
    )
    scores: dict[str, dict[float, list[float]]] = {name: {} for name in METHODS}
    ratios: list[tuple[float, float]] = []
    for epsilon in epsilons:
        for seed in seeds:
            run.progress(f"epsilon {epsilon:g}, seed {seed}")
            found, statement = _one(data, epsilon, seed, ratios)
            for name, value in found.items():
                scores[name].setdefault(epsilon, []).append(value)
        implied = [f"{each.epsilon:.0f}" for each in statement.record_level]
        table.add(f"{epsilon:g}", *(spread(scores[name][epsilon]) for name in METHODS), *implied)
    clear = []
    for seed in seeds:
        parts = dirichlet(data.y_train, CLIENTS, ALPHA, np.random.default_rng(seed))
        cells = cells_of(data.X_train, data.y_train, parts, len(data.classes), BATCH_SIZE)
        clear.append(_accuracy(cells, cells.batches, data))
    table.add("no privacy", spread(clear), None, None, None, None)
    run.note(
        "the last two columns are the epsilon that the element-level promise implies for a whole"
        f" record, at delta {statement.record_level[0].delta:.3g}: protection of single entries,"
        " not of people"
    )
    to_oracle, to_none = np.array(ratios).T
    run.note(
        f"error of the default smoothing on the same noise ({len(ratios)} batches): over the"
        f" oracle's, median {np.median(to_oracle):.4f}, nine of ten batches at most"
        f" {np.quantile(to_oracle, 0.9):.3f}, largest {to_oracle.max():.3f}; over no smoothing's,"
        f" largest {to_none.max():.3f}"
    )
    _save_drawing(run, scores, float(np.mean(clear)))


if __name__ == "__main__":
    main()
