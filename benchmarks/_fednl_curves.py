"""FedNL's gap f(x) - f(x*) by rounds and by bits: followed, thinned to points, and drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from benchmarks._drawings import save
from benchmarks._harness import Run, Table
from secure_fl.federation import Federation
from secure_fl.report import figures

GOAL = 1e-9
"""The gap at which methods are compared in words."""
ROUNDS, BITS, BOTH, GAP = "round", "bits sent by a node", "bits both ways", "f(x) - f(x*)"
AXES = (ROUNDS, BITS, BOTH, GAP)
MILLION = 1e6
MOST = 40
"""Points of a curve that are kept."""
FLOOR, FURTHER, OURS = 1e-13, 1.3, ("Fed", "Rank")
"""Of a picture: the smallest gap, and how far it goes beyond what ours, so named, need."""

Point: TypeAlias = tuple[float, float, float, float]
"""Values by `AXES`."""


@dataclass
class Curve:
    """One method's run, one entry a state.

    Attributes:
        bits: sent by a node so far.
        both: the same and what a node received.
        gaps: f(x) - f(x*).
    """

    bits: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def add(self, fed: Federation, state: Any, gap: float) -> None:
        """One state; what a node received is 64 bits a number, or as the method compresses it."""
        sent = getattr(state, "bits_down", None)
        down = 64.0 * fed.meter.total().floats_down / len(fed) if sent is None else sent
        self.bits.append(state.bits)
        self.both.append(state.bits + down)
        self.gaps.append(max(gap, 1e-16))

    def bits_to(self, goal: float, *, both: bool = False) -> float:
        """Bits at which the gap first reached a goal; infinite where it never did."""
        for bits, gap in zip(self.both if both else self.bits, self.gaps, strict=True):
            if gap <= goal:
                return bits
        return math.inf

    def points(self) -> list[Point]:
        """Some of the states, the first and the last among them; more of the first."""
        last = len(self.gaps) - 1
        evenly, early = np.linspace(0, last, MOST // 2), np.geomspace(1, last + 1, MOST // 2) - 1
        places = sorted({*np.round(evenly).astype(int), *np.round(early).astype(int)})
        return [(int(i), self.bits[i], self.both[i], self.gaps[i]) for i in places]


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes:
        title: over it.
        axis: what the gap is drawn against, of `AXES`.
        courses: points by method.
    """

    title: str
    axis: str
    courses: Mapping[str, Sequence[Point]]

    def draw(self, axes: Any) -> None:
        """Draws it as far as ours need to the goal and a third more, or as far as all do."""
        place, unit = AXES.index(self.axis), 1.0 if self.axis == ROUNDS else MILLION
        lines: dict[str, tuple[list[float], list[float]]] = {
            name: ([point[place] / unit for point in points], [point[-1] for point in points])
            for name, points in self.courses.items()
        }
        need = {
            name: next((x for x, gap in zip(*line, strict=True) if gap <= GOAL), None)
            for name, line in lines.items()
        }
        reached = {name: each for name, each in need.items() if each is not None}
        ours = [each for name, each in reached.items() if name.startswith(OURS)]
        xlabel = self.axis if self.axis == ROUNDS else f"million {self.axis}"
        figures.draw_courses(
            axes, lines, xlabel=xlabel, ylabel=GAP, logarithmic="y", title=self.title
        )
        far = FURTHER * max(ours) if ours else max(reached.values(), default=None)
        axes.set_xlim(0, far)
        axes.set_ylim(FLOOR, 10)


def panels_of(table: Table, where: Sequence[str], axis: Mapping[str, str]) -> list[Panel]:
    """Pictures of a saved table of points, one of every setting.

    Args:
        table: with the columns `where`, "method" and `AXES`.
        where: columns that tell settings apart.
        axis: by the first of them, what the gap is drawn against; bits where nothing is told.
    """
    places = [table.columns.index(name) for name in where]
    method, first = table.columns.index("method"), table.columns.index(AXES[0])
    found: dict[tuple[str, ...], dict[str, list[Point]]] = {}
    for row in table.rows:
        setting = tuple(str(row[place]) for place in places)
        numbers = [float(str(cell)) for cell in row[first : first + len(AXES)]]
        point = (numbers[0], numbers[1], numbers[2], numbers[3])
        found.setdefault(setting, {}).setdefault(str(row[method]), []).append(point)
    return [
        Panel(
            f"{'figure ' * setting[0][0].isdigit()}{', '.join(setting)}",
            axis.get(setting[0], BITS),
            courses,
        )
        for setting, courses in found.items()
    ]


def save_panels(run: Run, name: str, panels: Sequence[Panel], *, columns: int) -> None:
    """Writes them side by side as a drawing of the docs; see `_drawings.save`."""

    def draw(axes: Any) -> None:
        for each, panel in zip(axes, panels, strict=True):
            panel.draw(each)

    rows = len(panels) // columns
    save(run, name, draw, width=5.0 * columns, height=4.0 * rows, panels=columns, rows=rows)
