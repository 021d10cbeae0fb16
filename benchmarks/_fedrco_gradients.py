"""The course of second-order steps with and without the monitor (fedrco.txt, figure 4)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from benchmarks._drawings import save
from benchmarks._fedrco import UNWATCHED
from benchmarks._fedrco_curves import Curve
from benchmarks._harness import Run
from secure_fl.report import figures

STABLE = 10.0
"""Bound of a rolled-back step (E.3)."""
LOW, HIGH = 10.0, 1000.0
"""Thresholds of the anomaly score (4.2)."""
QUANTILES = (0.5, 0.9, 0.99)
MOST = 600
"""Rows of a run in the table of one client's course; of more steps the largest in a row stand."""
COURSE = "course of one client's steps"

Steps: TypeAlias = list[list[float | None]]
_GRADIENT, _LAYER, _FOUND, _APPLIED, _VERDICT = range(1, 6)
"""Columns of a trajectory, of which the first is the round."""


def show(run: Run, curves: Mapping[tuple[float, str], Curve]) -> None:
    """Tables of runs by rate and method: quantiles over all clients and one's whole course."""
    spread = run.table(
        "norms of the natural gradient before the learning rate, over all clients' steps",
        [
            "rate",
            "method",
            "rounds",
            "steps",
            *(f"{100 * q:g} %" for q in QUANTILES),
            "largest",
            "largest gradient, a layer",
            "largest natural gradient, a layer",
            "largest applied",
            "not finite",
            f"above {STABLE:g}",
            f"above {LOW:g} x the last ten",
            f"above {HIGH:g} x",
            "rollbacks",
            "resets",
        ],
    )
    course = run.table(
        COURSE,
        [
            "rate",
            "method",
            "client",
            "step",
            "round",
            "gradient, a layer",
            "natural gradient, a layer",
            "found",
            "applied",
            "verdict",
        ],
    )
    for (rate, method), curve in curves.items():
        rows = [row for steps in curve.steps.values() for row in steps]
        if not rows:
            continue
        jumps = [score for steps in curve.steps.values() for score in scores(steps)]
        verdicts = [row[_VERDICT] for row in rows]
        found = _numbers(rows, _FOUND)
        spread.add(
            rate,
            method,
            len(curve.shared),
            len(rows),
            *np.quantile(found, QUANTILES, method="inverted_cdf"),
            *(max(_numbers(rows, place)) for place in (_FOUND, _GRADIENT, _LAYER, _APPLIED)),
            sum(row[_FOUND] is None for row in rows),
            sum(norm > STABLE for norm in found),
            sum(score > LOW for score in jumps),
            sum(score > HIGH for score in jumps),
            verdicts.count(1.0),
            verdicts.count(2.0),
        )
        client = shown_client(curves, rate)
        for number, row in thinned(curve.steps.get(client, [])):
            numbers = row[_GRADIENT:_VERDICT]
            verdict = ("step", "rollback", "reset")[int(row[_VERDICT] or 0)]
            course.add(rate, method, client, number, int(row[0] or 0) + 1, *numbers, verdict)
    run.note(
        "norms: of the natural gradient before it was judged, summed over the layers (9); steps of"
        " a norm that is not finite count as infinite; applied: as the monitor let it pass, 0 at a"
        " reset; multiples: of the mean of the last ten norms as applied, as (10) has them, counted"
        " without the monitor too"
    )
    run.note(
        f"{COURSE}: of the client with the most steps that are not finite without the monitor, of"
        " equal ones of whom it reset and then rolled back most; where it has more than"
        f" {MOST} steps, the largest of every few in a row"
    )


def scores(steps: Steps, window: int = 10) -> list[float]:
    """Anomaly scores (10) of a course whose every step was applied as found.

    With the monitor the steps that stay in the history are those that it applied.
    """
    history: list[float] = []
    found = []
    for row in steps:
        norm = _number(row[_FOUND])
        baseline = float(np.mean(history)) if history else STABLE
        found.append(norm / (baseline + 1e-12) if math.isfinite(norm) else math.inf)
        verdict, applied = row[_VERDICT], _number(row[_APPLIED])
        if verdict == 2.0:
            history = []
        elif math.isfinite(applied):
            history = [*history, applied][-window:]
    return found


def shown_client(curves: Mapping[tuple[float, str], Curve], rate: float) -> str:
    """The client that needs the monitor most at a rate: whose steps leave the finite numbers.

    Of equal ones that with the most resets, then rollbacks, then the first.
    """
    events: dict[str, list[int]] = {}
    for (at, method), curve in curves.items():
        for name, steps in curve.steps.items() if at == rate else ():
            counts = events.setdefault(name, [0, 0, 0])
            if method == UNWATCHED:
                counts[0] += sum(row[_FOUND] is None for row in steps)
            else:
                counts[1] += sum(row[_VERDICT] == 2.0 for row in steps)
                counts[2] += sum(row[_VERDICT] == 1.0 for row in steps)
    return max(events, key=lambda name: events[name], default="")


def thinned(steps: Steps, most: int = MOST) -> list[tuple[int, list[float | None]]]:
    """Steps with their numbers from 1: all, or of every few in a row that of the largest norm."""
    block = max(1, math.ceil(len(steps) / most))
    numbered = list(enumerate(steps, 1))
    blocks = [numbered[start : start + block] for start in range(0, len(numbered), block)]
    return [max(each, key=lambda pair: _number(pair[1][_FOUND])) for each in blocks]


def largest_applied(curve: Curve) -> float:
    """The largest norm of a step that a client applied; infinite where one was not finite."""
    steps = (row for course in curve.steps.values() for row in course)
    return max((_number(row[_APPLIED]) for row in steps), default=0.0)


def _number(cell: float | None) -> float:
    return math.inf if cell is None else cell


def _numbers(rows: Steps, place: int) -> list[float]:
    return [_number(row[place]) for row in rows]


# --------------------------------------------------------------------------------------- drawing


def draw_course(axes: Any, rows: Sequence[Sequence[Any]], title: str) -> None:
    """Norms of one client's steps at one rate, with and without the monitor.

    Lines differ by their dashes and events by their marks, for print without colours.

    Args:
        axes: of matplotlib.
        rows: of the table of one client's course.
        title: over the panel.
    """
    courses: dict[bool, list[Sequence[Any]]] = {False: [], True: []}
    for row in rows:
        courses[row[1] != UNWATCHED].append(row)
    free, watched = courses[False], courses[True]
    axes.plot(*_line(free, 7), ":", color="#c8641b", linewidth=1.3, label="without the monitor")
    axes.plot(*_line(watched, 7), "--", color="#4d8fd1", linewidth=0.8, label="with it, as found")
    axes.plot(*_line(watched, 8), "-", color="#4d8fd1", linewidth=1.3, label="with it, as applied")
    for verdict, mark, colour in (("rollback", "v", "#2f9f6f"), ("reset", "X", "#c0392b")):
        points = [row for row in watched if row[9] == verdict]
        axes.plot(
            *_line(points, 7), mark, color=colour, markersize=5, linestyle="none", label=verdict
        )
    broken = [row[3] for row in free if not isinstance(row[7], int | float)]
    if broken:
        axes.axvline(min(broken), color="#c8641b", linewidth=0.9, linestyle="-.")
        late = 2 * min(broken) > max(row[3] for row in free)
        axes.annotate(
            " not finite without it ", (min(broken), 0.97), xycoords=("data", "axes fraction"),
            fontsize=7, ha="right" if late else "left", va="top",
        )  # fmt: skip
    axes.axhline(STABLE, color="#8a8f98", linewidth=0.9, label=f"bound of a rollback, {STABLE:g}")
    figures.use_logarithm(axes, "y")
    axes.set_xlabel("step of the client")
    axes.set_ylabel("norm of the natural gradient")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)


def panels(rows: Sequence[Sequence[Any]]) -> list[tuple[str, list[Sequence[Any]]]]:
    """Title and rows of every rate."""
    rates = list(dict.fromkeys(row[0] for row in rows))
    return [(f"learning rate {rate:g}", [row for row in rows if row[0] == rate]) for rate in rates]


def save_figure(run: Run, rows: Sequence[Sequence[Any]]) -> None:
    """Writes the drawing of figure 4; see `_drawings.save`."""
    found = panels(rows)

    def draw(axes: Any) -> None:
        for each, (title, course) in zip(axes if len(found) > 1 else [axes], found, strict=True):
            draw_course(each, course, title)

    if found:
        count = len(found)
        save(run, "fedrco_gradients", draw, width=5.2 * count, height=3.8, panels=count)


def _line(rows: Sequence[Sequence[Any]], place: int) -> tuple[list[Any], list[float]]:
    heights = [row[place] if isinstance(row[place], int | float) else math.nan for row in rows]
    # A reset applies nothing, which a logarithm cannot show: a gap.
    return [row[3] for row in rows], [h if h > 0 else math.nan for h in heights]
