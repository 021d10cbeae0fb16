"""What people would rather look at, drawn for the report's page from the saved tables alone."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from markupsafe import Markup

from benchmarks import _fednewton_drawings as newton
from benchmarks._drawings import MEASURED, PRINTED, panel
from benchmarks._fednewton_claims import ACCURACIES, ERRORS
from benchmarks._fednl_curves import panels_of
from benchmarks._harness import Table
from benchmarks._papers import tables_of
from benchmarks._results import Result
from benchmarks._verdicts import mean_of
from secure_fl.pages import html
from secure_fl.report import figures


def drawings(result: Result) -> list[Markup]:
    """Pieces of the page; none of a benchmark that has no drawing."""
    makers: dict[str, Callable[[Result], list[Markup]]] = {
        "fedavgr_synthetic": _distance_by_round,
        "fednewton_mnist": partial(newton.against_records_shift_and_rounds, name=ACCURACIES),
        "fednewton_synthetic": partial(newton.against_records_shift_and_rounds, name=ERRORS),
        "fednl_figures": partial(_gaps, where=("data", "panel")),
        "fednl_peers": partial(_gaps, where=("figure", "data", "lambda")),
        "fednl_variants": partial(_gaps, where=("figure", "data")),
        "fedrco_studies": _studies_of_fedrco,
        "fedrco_tables": _accuracy_by_round_and_second,
        "folding": _folded_plane,
        "head_tuning": newton.heads,
        "kahm_accuracy": _accuracy_against_bits,
        "partitions": _clients_of_partitions,
        "privacy_utility": _accuracy_against_epsilon,
    }
    maker = makers.get(result.benchmark)
    return [] if maker is None else maker(result)


def _gaps(result: Result, where: Sequence[str]) -> list[Markup]:
    """Of every table of points, one picture a setting."""
    from benchmarks.fednl_variants import DRAWN

    axis = DRAWN if result.benchmark == "fednl_variants" else {}
    drawn = [
        figures.shown(
            panel.draw, f"{result.benchmark}{i}", f"{panel.title} ({MEASURED}).", height=4.2
        )
        for table in result.tables
        if table.drawn
        for i, panel in enumerate(panels_of(table, where, axis))
    ]
    return [html.boxed("beside", *drawn)] if drawn else []


def _folded_plane(_: Result) -> list[Markup]:
    from benchmarks.folding import panels

    drawn = [
        figures.shown(draw, f"folding{i}", f"Machine {i} folds the plane. Drawn here.", height=5.0)
        for i, draw in enumerate(panels(0))
    ]
    return [html.boxed("beside", *drawn)]


def _clients_of_partitions(_: Result) -> list[Markup]:
    from benchmarks.partitions import data_sets, panels

    drawn = [
        figures.shown(draw, f"partition {way} {k}", f"{data.source}: {way}. Drawn here.")
        for k, (data, ways) in enumerate(data_sets())
        for way, draw in panels(data, ways)
    ]
    return [html.boxed("beside", *drawn)]


def _accuracy_against_epsilon(result: Result) -> list[Markup]:
    table = result.table("test accuracy %, 20 Newsgroups")
    if table is None:
        return []
    rows = [row for row in table.rows if mean_of(row[0]) is not None]
    clear = next((mean_of(row[1]) for row in table.rows if row[0] == "no privacy"), None)
    lines = {table.columns[i]: [mean_of(row[i]) for row in rows] for i in (1, 2, 3)}
    theirs = {
        f"paper, {name}": dict(zip(("1", "1.5", "2", "3", "5", "8"), column, strict=True))
        for name, column in _columns_of("privacy_utility", "Table 5", (1, 2))
    }
    lines |= {
        name: [mean_of(values.get(str(row[0]))) for row in rows] for name, values in theirs.items()
    }

    def draw(axes: Any) -> None:
        figures.draw_lines(
            axes,
            [value for row in rows if (value := mean_of(row[0])) is not None],
            lines,
            xlabel="epsilon per matrix element, delta 1e-5 (not per record)",
            ylabel="test accuracy, %",
            level=None if clear is None else ("no privacy", clear),
        )

    caption = (
        f"Accuracy against epsilon. Lines named “paper” are {PRINTED}; the others are {MEASURED}."
    )
    return [figures.shown(draw, "epsilon", caption)]


def _columns_of(benchmark: str, number: str, wanted: Sequence[int]) -> list[tuple[str, list[Any]]]:
    table = next(each for each in tables_of(benchmark) if each.number == number)
    return [(table.columns[i], [row[i] for row in table.rows]) for i in wanted]


def _studies_of_fedrco(result: Result) -> list[Markup]:
    from benchmarks import _fedrco_gradients as gradients

    table = result.table(gradients.COURSE)
    rows = [] if table is None else table.rows
    drawn = [
        figures.shown(
            partial(gradients.draw_course, rows=course, title=title),
            f"gradients{i}",
            f"Steps of one client with and without the monitor, {title} ({MEASURED}).",
        )
        for i, (title, course) in enumerate(gradients.panels(rows))
    ]
    return [html.boxed("beside", *drawn), *_accuracy_by_round_and_second(result)]


def _accuracy_by_round_and_second(result: Result) -> list[Markup]:
    """Of every setting, by round and by second; of own models where a method has them."""
    table = result.table("accuracy by round and second")
    if table is None:
        return []
    runs: dict[tuple[str, str], dict[str, list[tuple[float, float, float]]]] = {}
    for partition, clients, method, at, seconds, shared, personal in table.rows:
        own = mean_of(personal)
        spent, height = mean_of(seconds), mean_of(shared) if own is None else own
        if spent is not None and height is not None:
            setting = runs.setdefault((str(partition), str(clients)), {})
            name = str(method) if own is None else f"{method}, own models"
            setting.setdefault(name, []).append((float(str(at)), spent, height))
    drawn = []
    for i, ((partition, clients), lines) in enumerate(runs.items()):
        title = f"{partition}, {clients} clients"
        for place, xlabel in enumerate(("round", "seconds of training")):
            courses = {
                method: ([point[place] for point in points], [point[2] for point in points])
                for method, points in lines.items()
            }
            drawn.append(
                panel(
                    # Unique within a page, which may have the sections of two benchmarks.
                    f"{result.benchmark}{i}-{place}",
                    title,
                    courses=courses,
                    xlabel=xlabel,
                    ylabel="accuracy on all classes, %",
                )
            )
    return [html.boxed("beside", *drawn)]


def _distance_by_round(result: Result) -> list[Markup]:
    table = result.table("distance of the clients' mean features")
    if table is None:
        return []
    drawn = [_courses(table, column, i) for i, column in enumerate(("distance", "within classes"))]
    return [html.boxed("beside", *drawn)]


def _courses(table: Table, column: str, number: int) -> Markup:
    method, at, value = (table.columns.index(each) for each in ("method", "round", column))
    rounds = sorted({float(str(row[at])) for row in table.rows})
    lines: dict[str, list[float | None]] = {}
    for row in table.rows:
        # One term by its chosen weight is FedAvg's line nearly, and more lines have no marks left.
        if row[method] not in ("MMD", "MMD by class"):
            own = lines.setdefault(str(row[method]), [None] * len(rounds))
            own[rounds.index(float(str(row[at])))] = mean_of(row[value])

    def draw(axes: Any) -> None:
        figures.draw_lines(axes, rounds, lines, xlabel="round", ylabel=column)

    caption = f"{column} by round: {table.name} ({MEASURED})."
    return figures.shown(draw, f"fedavgr{number}", caption, height=4.4)


_BITS = re.compile(r"(\d+)-bit codes on (.+)")


def _accuracy_against_bits(result: Result) -> list[Markup]:
    return list(
        chain.from_iterable(
            _bits_of(table, f"bits{i}")
            for i, table in enumerate(result.tables)
            if any(_BITS.fullmatch(str(row[0])) for row in table.rows)
        )
    )


def _bits_of(table: Table, name: str) -> list[Markup]:
    exact = {str(row[0]): row for row in table.rows}.get("federation")
    if exact is None:
        return []
    gaps: dict[str, dict[int, float | None]] = {}
    last = len(table.columns) - 1
    for row in table.rows:
        match = _BITS.fullmatch(str(row[0]))
        if match:
            score, top = mean_of(row[last]), mean_of(exact[last])
            gap = None if score is None or top is None else top - score
            gaps.setdefault(f"codes on {match[2]}", {})[int(match[1])] = gap
    bits = sorted(set(chain.from_iterable(gaps.values())))

    def draw(axes: Any) -> None:
        lines = {label: [found.get(p) for p in bits] for label, found in gaps.items()}
        figures.draw_lines(
            axes,
            [float(p) for p in bits],
            lines,
            xlabel="bits of a code",
            ylabel="accuracy lost, percentage points",
        )

    caption = f"Accuracy lost by integer codes, {table.columns[last]}: {table.name} ({MEASURED})."
    return [figures.shown(draw, name, caption)]
