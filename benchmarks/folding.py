"""How does a machine fold the plane, and does the distance that it folds tell two classes apart?

The paper's figures 2 and 3 (kahm.txt) on data of our own. Two machines, each fitted to the records
of one class, an arc and a cloud (`docs/folding.svg`); and the arc shared out to three clients, with
the measure of each and the global one, eq. (105) (`docs/folding_global.svg`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._drawings import save
from benchmarks._harness import Run, benchmark
from kahm import KAHM
from kahm.rule import global_measure
from secure_fl.report import figures

CLIENTS, FINE = 3, 41
"""Of the global measure; and points of each side of its drawing's grid."""
RECORDS, TESTS, SEEDS = 60, 2000, (0, 1, 2)

Array = NDArray[np.float64]


def _arc(rng: np.random.Generator, count: int) -> Array:
    angle = rng.uniform(0.1, 0.9, count) * np.pi
    centre = np.stack([2 * np.cos(angle), 2 * np.sin(angle)], axis=1)
    return centre + 0.08 * rng.standard_normal((count, 2))


def _cloud(rng: np.random.Generator, count: int) -> Array:
    return np.array([0.0, 0.3]) + 0.35 * rng.standard_normal((count, 2))


def _machines(rng: np.random.Generator) -> list[tuple[Array, KAHM]]:
    """The records of each class, and the machine that was fitted to them."""
    return [(each, KAHM.fit(each)) for each in (_arc(rng, RECORDS), _cloud(rng, RECORDS))]


def panels(seed: int) -> list[Callable[[Any], None]]:
    """For each machine a function that draws on axes how it folds a grid of points."""
    side = np.linspace(-3, 3, 11)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    found = _machines(np.random.default_rng(seed))
    return [
        partial(
            figures.draw_folding,
            records=records,
            points=points,
            images=machine.fold(points),
            colour=colour,
        )
        for (records, machine), colour in zip(found, figures.COLOURS, strict=False)
    ]


def _shared_out(rng: np.random.Generator) -> list[tuple[Array, KAHM]]:
    """An arc of which every client has a part, and each client's machine."""
    records = _arc(rng, CLIENTS * RECORDS)
    order = np.argsort(np.arctan2(records[:, 1], records[:, 0]))
    return [(records[own], KAHM.fit(records[own])) for own in np.array_split(order, CLIENTS)]


def _measures(machines: list[tuple[Array, KAHM]], points: Array) -> Array:
    """Measures of every machine, shape (points, clients)."""
    return np.stack([machine.measure(points) for _, machine in machines], axis=1)


def _save_global(run: Run) -> None:
    """Writes the drawing of figure 3."""
    side = np.linspace(-3, 3, FINE)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    found = _shared_out(np.random.default_rng(0))
    measures = _measures(found, points)
    everybody = np.concatenate([records for records, _ in found])
    shown = [(records, measures[:, q], f"client {q + 1}") for q, (records, _) in enumerate(found)]
    shown.append((everybody, global_measure(measures[:, :, None])[:, 0], "global: the smallest"))

    def draw(axes: Any) -> None:
        for each, (records, values, title) in zip(axes, shown, strict=True):
            figures.draw_measure(each, side, values.reshape(FINE, FINE), records, title)

    save(run, "folding_global", draw, width=11.0, height=3.2, panels=len(shown))


def _save_drawing(run: Run) -> None:
    """Writes the drawing of figure 2."""

    def draw(axes: Any) -> None:
        for each, panel in zip(axes, panels(0), strict=True):
            panel(each)

    save(run, "folding", draw, width=9.0, height=4.6, panels=2)


@benchmark("how does a machine fold the plane, and does that tell two classes apart?")
def main(run: Run) -> None:
    """Measures of two machines on records of both classes, and the drawing of figure 2."""
    table = run.table(
        "two machines in the plane",
        ["seed", "own, median", "other, median", "right, %"],
    )
    run.parameter(records=RECORDS, tests=TESTS)
    seeds = run.seeds(*SEEDS[: 1 if run.quick else None])
    for seed in seeds:
        rng = np.random.default_rng(seed)
        machines = [machine for _, machine in _machines(rng)]
        tests = [_arc(rng, TESTS), _cloud(rng, TESTS)]
        measures = [[machine.measure(each) for machine in machines] for each in tests]
        own = np.concatenate([measures[0][0], measures[1][1]])
        other = np.concatenate([measures[0][1], measures[1][0]])
        right = 100 * float(np.mean(own < other))
        table.add(seed, float(np.median(own)), float(np.median(other)), right)
    parts = run.table(
        "an arc of three clients, eq. (105)",
        ["seed", "own records, own machine", "other clients' records", "all records, global"],
    )
    for seed in seeds:
        found = _shared_out(np.random.default_rng(seed))
        folded = _measures(found, np.concatenate([records for records, _ in found]))
        owner = np.repeat(np.arange(CLIENTS), RECORDS)
        own = np.arange(CLIENTS) == owner[:, None]
        best = global_measure(folded[:, :, None])[:, 0]
        shown = (folded[own], folded[~own], best)
        parts.add(seed, *(float(np.median(each)) for each in shown))
    _save_drawing(run)
    _save_global(run)


if __name__ == "__main__":
    main()
