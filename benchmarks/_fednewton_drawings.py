"""FedNewton's figures for the report's page, drawn from the saved tables alone."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from benchmarks._drawings import MEASURED, panel
from benchmarks._fednewton_claims import GUARDED, PRINTED
from benchmarks._results import Result
from benchmarks._verdicts import mean_of
from secure_fl.pages import html
from secure_fl.report import figures


def against_records_shift_and_rounds(result: Result, name: str) -> list[Markup]:
    """Figures 3 to 5 of FedNewton: errors or accuracies against records, shift and rounds."""
    table = result.table(name)
    # Parts of a benchmark that differ in them have no common number of records.
    records = result.parameters.get("records")
    if table is None or records is None:
        return []
    settings: dict[str, dict[tuple[float, ...], dict[str, list[float | None]]]] = {}
    start, first = table.columns.index("method"), table.columns.index("at once")
    for row in table.rows:
        where = tuple(float(str(cell)) for cell in row[1:start])
        methods = settings.setdefault(str(row[0]), {}).setdefault(where, {})
        methods[str(row[start])] = [mean_of(cell) for cell in row[first:]]
    axes = {
        "3": ("records a client", lambda where: records / where[0]),
        "4, covariates": ("alpha, shift of the covariates", lambda where: where[1]),
        "4, concepts": ("beta, shift of the concepts", lambda where: where[2]),
    }
    drawn = [
        _against(f"{result.benchmark}{i}", name, figure, *axes[figure], settings[figure])
        for i, figure in enumerate(axes)
        if figure in settings
    ]
    for where, methods in settings.get("5", {}).items():
        drawn.append(_by_round(f"{result.benchmark}5", name, table.columns[first:], where, methods))
    return [html.boxed("beside", *drawn)]


def _against(
    anchor: str,
    name: str,
    figure: str,
    xlabel: str,
    place: Callable[[tuple[float, ...]], float],
    settings: Mapping[tuple[float, ...], Mapping[str, Sequence[float | None]]],
) -> Markup:
    """One line of DKRR and one a round, over the settings of a figure."""
    every = sorted((place(where), methods) for where, methods in settings.items())
    points = [(x, methods) for x, methods in every if x > 0]  # the axis is logarithmic
    lines: dict[str, list[float | None]] = {
        "pooled ridge regression": [_pooled(each) for _, each in points],
        "DKRR": [each["DKRR"][0] for _, each in points],
    }
    for i, at in enumerate((1, 2, 4, 8), start=1):
        lines[f"printed, round {at}"] = [each[PRINTED][i] for _, each in points]
    lines["safeguard, round 8"] = [each[GUARDED][-1] for _, each in points]
    return _picture(
        anchor, name, f"figure {figure}", [x for x, _ in points], lines, xlabel, logarithmic="x"
    )


def _by_round(
    anchor: str,
    name: str,
    columns: Sequence[str],
    where: tuple[float, ...],
    methods: Mapping[str, Sequence[float | None]],
) -> Markup:
    rounds = [0.0, *(float(column.removeprefix("round ")) for column in columns[1:])]
    start = methods["DKRR"][0]
    lines: dict[str, list[float | None]] = {
        "pooled ridge regression": [_pooled(methods)] * len(rounds),
        "DKRR": [start] * len(rounds),
    }
    for method, values in methods.items():
        if values[-1] is not None:
            lines[method] = [start, *values[1:]]
    title = f"figure 5, {where[0]:g} clients"
    return _picture(anchor, name, title, rounds, lines, "round; 0 is DKRR")


def _pooled(methods: Mapping[str, Sequence[float | None]]) -> float | None:
    return next(values[0] for method, values in methods.items() if method.startswith("pooled"))


def _picture(
    anchor: str,
    name: str,
    title: str,
    x: Sequence[float],
    lines: Mapping[str, Sequence[float | None]],
    xlabel: str,
    *,
    logarithmic: str = "",
) -> Markup:
    # What runs away would press the others together, so it leaves the picture.
    steady = [
        each
        for method, line in lines.items()
        if not method.startswith(("printed", PRINTED))
        for each in line
        if each is not None and math.isfinite(each)
    ]
    margin = 0.15 * (max(steady) - min(steady)) or 0.1

    def draw(axes: Any) -> None:
        figures.draw_lines(axes, x, lines, xlabel=xlabel, ylabel=name)
        axes.set_title(title, fontsize=10)
        for axis in logarithmic:
            figures.use_logarithm(axes, axis)
        axes.set_ylim(min(steady) - margin, max(steady) + margin)

    caption = f"{title}: {name}; lines that leave the picture run away ({MEASURED})."
    return figures.shown(draw, anchor, caption, height=4.2)


def heads(result: Result) -> list[Markup]:
    """Accuracy of heads by round and by second, one picture a data set and alpha."""
    drawn: list[Markup] = []
    for table in result.tables:
        timed = table.name.endswith("test accuracy in percent by time")
        if not timed and table.name != "test accuracy in percent by round":
            continue
        start = table.columns.index("method")
        held = [
            i for i, name in enumerate(table.columns) if re.fullmatch(r"round \d+|[\d.]+ s", name)
        ]
        x = [float(re.sub(r"[^\d.]", "", table.columns[i])) for i in held]
        settings: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
        for row in table.rows:
            heights = [mean_of(row[i]) for i in held]
            known = [(a, b) for a, b in zip(x, heights, strict=True) if b is not None]
            where = ", alpha ".join(str(cell) for cell in row[:start])
            where = f"{table.name.partition(':')[0]}, alpha {where}" if timed else where
            line = ([a for a, _ in known], [b for _, b in known])
            settings.setdefault(where, {})[str(row[start])] = line
        drawn += [
            panel(
                f"heads{len(drawn) + i}",
                f"{where}: test accuracy by {'second' if timed else 'round'}",
                courses=courses,
                xlabel="seconds of training" if timed else "round",
                ylabel="test accuracy, %",
                title=where,
            )
            for i, (where, courses) in enumerate(settings.items())
        ]
    return [html.boxed("beside", *drawn)] if drawn else []
