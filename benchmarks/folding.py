"""How does a machine fold the plane, and does the distance that it folds tell two classes apart?

The paper's figure 2 (kahm.txt) on data of our own: two machines, each fitted to the records of one
class, an arc and a cloud. The drawing is `docs/folding.svg`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._harness import Run, benchmark
from kahm import KAHM
from secure_fl.report import figures

FIGURE = Path(__file__).resolve().parent.parent / "docs" / "folding.svg"
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


def _save_drawing() -> Path | None:
    """Writes the drawing; None without matplotlib or a docs folder."""

    def draw(axes: Any) -> None:
        for each, panel in zip(axes, panels(0), strict=True):
            panel(each)

    svg = figures.inline(draw, "folding", width=9.0, height=4.6, panels=2)
    if svg is None or not FIGURE.parent.is_dir():
        return None
    FIGURE.write_text(svg, encoding="utf-8")
    return FIGURE


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
    drawn = _save_drawing()
    where = "not drawn: no matplotlib, or no docs folder" if drawn is None else drawn.name
    run.note(f"plot: {where}")


if __name__ == "__main__":
    main()
