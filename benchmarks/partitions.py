"""How unequal are the clients that each way of dividing a data set makes?

Handwritten digits over 10 clients. The drawing is `docs/partitions.svg`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._harness import Run, benchmark, digits
from secure_fl.data import describe, dirichlet, iid, pathological, shards
from secure_fl.report import figures

FIGURE = Path(__file__).resolve().parent.parent / "docs" / "partitions.svg"
CLIENTS = 10

Codes = NDArray[np.int64]
Divide = Callable[[Codes, np.random.Generator], tuple[Codes, ...]]

WAYS: dict[str, Divide] = {
    "iid": lambda y, rng: iid(len(y), CLIENTS, rng),
    "Dirichlet, alpha 5": lambda y, rng: dirichlet(y, CLIENTS, 5.0, rng),
    "Dirichlet, alpha 0.5": lambda y, rng: dirichlet(y, CLIENTS, 0.5, rng),
    "Dirichlet, alpha 0.1": lambda y, rng: dirichlet(y, CLIENTS, 0.1, rng),
    "2 labels a client": lambda y, rng: pathological(y, CLIENTS, 2, rng),
    "2 shards a client": lambda y, rng: shards(y, CLIENTS, 2, rng),
}
SHOWN = ("iid", "Dirichlet, alpha 0.5", "2 labels a client")


def counts_of(y: Codes, way: str, seed: int) -> Codes:
    """Records by client and class, shape (clients, classes)."""
    return describe(WAYS[way](y, np.random.default_rng(seed)), y)


def distance(counts: Codes) -> float:
    """Mean over clients of half the L1 distance of their label shares to everybody's, in [0, 1]."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    everybody = counts.sum(axis=0) / counts.sum()
    return float(np.abs(shares - everybody).sum(axis=1).mean() / 2)


def panels(y: Codes, classes: tuple[str, ...]) -> list[tuple[str, Callable[[Any], None]]]:
    """Name and drawing function of each way that is shown."""

    def drawing(way: str) -> Callable[[Any], None]:
        counts = counts_of(y, way, 0)
        names = [str(i) for i in range(len(counts))]

        def draw(axes: Any) -> None:
            figures.draw_partition(axes, names, classes, counts)
            axes.set_ylabel("client")

        return draw

    return [(way, drawing(way)) for way in SHOWN]


def _save_drawing(y: Codes, classes: tuple[str, ...]) -> Path | None:
    """Writes the drawing; None without matplotlib or a docs folder."""

    def draw(axes: Any) -> None:
        for each, (way, panel) in zip(axes, panels(y, classes), strict=True):
            panel(each)
            each.set_title(way, fontsize=10)
            if each is not axes[-1]:
                each.get_legend().remove()

    svg = figures.inline(draw, "partitions", width=10.0, height=3.6, panels=len(SHOWN))
    if svg is None or not FIGURE.parent.is_dir():
        return None
    FIGURE.write_text(svg, encoding="utf-8")
    return FIGURE


@benchmark("how unequal are the clients that each way of dividing a data set makes?")
def main(run: Run) -> None:
    """Sizes and label shares of simulated clients, and a drawing."""
    data = digits(np.random.default_rng(0))
    seeds = run.seeds(0) if run.quick else run.seeds(0, 1, 2)
    run.parameter(clients=CLIENTS, records=len(data.y_train))
    table = run.table(
        f"{data.source}, {CLIENTS} clients, means over seeds",
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
    run.note("distance: half the L1 distance of a client's label shares to everybody's; 0 is iid")
    drawn = _save_drawing(data.y_train, data.classes)
    where = "not drawn: no matplotlib, or no docs folder" if drawn is None else drawn.name
    run.note(f"plot: {where}")


if __name__ == "__main__":
    main()
