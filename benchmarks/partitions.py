"""How unequal are the clients that each way of dividing a data set makes?

Handwritten digits over 10 clients, and dna as in fednewton.txt, figure 2. The drawing is
`docs/partitions.svg`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._data import DataMissingError, Split, digits, libsvm
from benchmarks._drawings import save
from benchmarks._harness import Run, benchmark
from secure_fl.data import describe, dirichlet, iid, pathological, shards
from secure_fl.report import figures

CLIENTS = 10

Codes = NDArray[np.int64]
Divide = Callable[[Codes, np.random.Generator], tuple[Codes, ...]]

WAYS: dict[str, Divide] = {
    "iid": lambda y, rng: iid(len(y), CLIENTS, rng),
    "Dirichlet, alpha 5": lambda y, rng: dirichlet(y, CLIENTS, 5.0, rng),
    "Dirichlet, alpha 1": lambda y, rng: dirichlet(y, CLIENTS, 1.0, rng),
    "Dirichlet, alpha 0.5": lambda y, rng: dirichlet(y, CLIENTS, 0.5, rng),
    "Dirichlet, alpha 0.1": lambda y, rng: dirichlet(y, CLIENTS, 0.1, rng),
    "2 labels a client": lambda y, rng: pathological(y, CLIENTS, 2, rng),
    "2 shards a client": lambda y, rng: shards(y, CLIENTS, 2, rng),
}
SHOWN = ("iid", "Dirichlet, alpha 0.5", "2 labels a client")
OF_PAPER = ("Dirichlet, alpha 1",)
"""What is drawn of the handwritten digits, and of dna."""


def counts_of(y: Codes, way: str, seed: int) -> Codes:
    """Records by client and class, shape (clients, classes)."""
    return describe(WAYS[way](y, np.random.default_rng(seed)), y)


def distance(counts: Codes) -> float:
    """Mean over clients of half the L1 distance of their label shares to everybody's, in [0, 1]."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    everybody = counts.sum(axis=0) / counts.sum()
    return float(np.abs(shares - everybody).sum(axis=1).mean() / 2)


def data_sets() -> list[tuple[Split, tuple[str, ...]]]:
    """What is divided, and which ways are drawn; without dna where it is not at hand."""
    found: list[tuple[Split, tuple[str, ...]]] = [(digits(np.random.default_rng(0)), SHOWN)]
    with suppress(DataMissingError):
        found.append((libsvm("dna"), OF_PAPER))
    return found


def panels(data: Split, ways: Sequence[str]) -> list[tuple[str, Callable[[Any], None]]]:
    """Name and drawing function of each way that is shown."""

    def drawing(way: str) -> Callable[[Any], None]:
        counts = counts_of(data.y_train, way, 0)
        names = [str(i) for i in range(len(counts))]

        def draw(axes: Any) -> None:
            figures.draw_partition(axes, names, data.classes, counts)
            axes.set_ylabel("client")

        return draw

    return [(way, drawing(way)) for way in ways]


def _save_drawing(run: Run, data: Split) -> None:
    def draw(axes: Any) -> None:
        for each, (way, panel) in zip(axes, panels(data, SHOWN), strict=True):
            panel(each)
            each.set_title(way, fontsize=10)
            if each is not axes[-1]:
                each.get_legend().remove()

    save(run, "partitions", draw, width=10.0, height=3.6, panels=len(SHOWN))


@benchmark("how unequal are the clients that each way of dividing a data set makes?")
def main(run: Run) -> None:
    """Sizes and label shares of simulated clients, and a drawing."""
    seeds = run.seeds(0) if run.quick else run.seeds(0, 1, 2)
    run.parameter(clients=CLIENTS)
    found = data_sets()
    for data, _ in found:
        _measure(run, data, seeds)
    run.note("distance: half the L1 distance of a client's label shares to everybody's; 0 is iid")
    if len(found) == 1:
        run.note("dna is not at hand (SECUREFL_DATA)")
    _save_drawing(run, found[0][0])


def _measure(run: Run, data: Split, seeds: Sequence[int]) -> None:
    table = run.table(
        f"{data.source}, {len(data.y_train)} records, {CLIENTS} clients, means over seeds",
        ["division", "smallest", "largest", "classes a client", "distance of label shares"],
    )
    for way in WAYS:
        found = [counts_of(data.y_train, way, seed) for seed in seeds]
        sizes = np.array([each.sum(axis=1) for each in found])
        table.add(
            way,
            float(sizes.min(axis=1).mean()),
            float(sizes.max(axis=1).mean()),
            float(np.mean([(each > 0).sum(axis=1).mean() for each in found])),
            float(np.mean([distance(each) for each in found])),
        )


if __name__ == "__main__":
    main()
