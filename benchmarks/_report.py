"""One self-contained page of saved results, each table beside the figures that the papers print."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from markupsafe import Markup

from benchmarks._claims import judged
from benchmarks._harness import Table
from benchmarks._papers import PaperTable, tables_of
from benchmarks._places import PLACES
from benchmarks._results import Result
from benchmarks._verdicts import mean_of
from fhe.envelope import write_atomic
from secure_fl.pages import html
from secure_fl.report import figures

MEASURED = "measured here"
PRINTED = "from the paper, other machine"


def write_report(path: Path, results: Mapping[str, Result], questions: Mapping[str, str]) -> int:
    """Writes the page, whole or not at all; returns its bytes.

    Args:
        path: of the page.
        results: saved results by benchmark.
        questions: what every benchmark asks, by name; those without a result are listed as not run.
    """
    text = render(results, questions).encode()
    write_atomic(path, text)
    return len(text)


def render(results: Mapping[str, Result], questions: Mapping[str, str]) -> str:
    """The page; see `write_report`."""
    missing = {name: text for name, text in questions.items() if name not in results}
    body = [
        html.paragraph(
            f"{len(results)} of {len(results) + len(missing)} benchmarks have a saved result. Every"
            f" table says where its figures come from: “{MEASURED}”, or “{PRINTED}”.",
            kind="lead",
        ),
        html.contents(
            [("claims", "Claims of the papers"), ("places", "Tables and figures of the papers")]
            + [(f"bench-{name}", _title(name)) for name in results]
        ),
        _claims(results),
        _places(),
        *_not_run(missing),
        *(_section(result) for result in results.values()),
    ]
    return html.page("securefl: what was measured", *body)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _claims(results: Mapping[str, Result]) -> Markup:
    """One line a claim, judged by full runs alone."""
    columns = ("paper", "where", "claim", "here", "found", "seeds", "benchmark", "test")
    rows = []
    for claim, verdict in judged(results):
        result = results.get(claim.benchmark)
        seeds = "" if result is None or result.quick else ", ".join(map(str, result.seeds))
        place = (claim.paper, claim.number, claim.text)
        what = (verdict.holds, verdict.found, seeds, claim.benchmark, claim.test)
        rows.append([*place, *what])
    return html.section(
        "Claims of the papers",
        html.table("Judged by the figures of full runs alone", columns, rows),
        html.origin(MEASURED, "by the benchmark that stands in the line"),
        anchor="claims",
    )


def _places() -> Markup:
    """What measures each table and figure of the papers, and what cannot be measured here."""
    columns = ("paper", "where", "measured by", "not measured here, and why")
    rows = [[each.paper, each.name, each.measured_by or "-", each.absent or "-"] for each in PLACES]
    return html.section(
        "Tables and figures of the papers",
        html.table("Every one of them", columns, rows),
        anchor="places",
    )


def _not_run(missing: Mapping[str, str]) -> list[Markup]:
    if not missing:
        return []
    lines = [f"{name}: {question}" for name, question in missing.items()]
    return [
        html.heading("Not run"),
        html.bullets(lines),
        html.paragraph("securefl bench run NAME --out FOLDER measures one of them."),
    ]


def _section(result: Result) -> Markup:
    papers = list(tables_of(result.benchmark))
    blocks = []
    for table in result.tables:
        beside = [each for each in papers if each.beside and table.name.startswith(each.beside)]
        papers = [each for each in papers if each not in beside]
        blocks.append(_beside(_measured(table, result), [_printed(each) for each in beside]))
    # A paper's table whose counterpart is not in this run still stands in the section.
    blocks += [_printed(each) for each in papers]
    if not tables_of(result.benchmark):
        blocks.append(html.paragraph("No paper prints figures for this question."))
    notes = [html.bullets(result.notes)] if result.notes else []
    return html.section(
        _title(result.benchmark),
        html.paragraph(result.question),
        *_quick(result),
        *blocks,
        *_drawings(result),
        *notes,
        html.folded("machine, versions, seeds and settings", _environment(result)),
        anchor=f"bench-{result.benchmark}",
    )


def _quick(result: Result) -> list[Markup]:
    if not result.quick:
        return []
    text = "A short run (--quick): fewer seeds, settings or rows than the full one."
    return [html.paragraph(text, kind="warn")]


def _beside(measured: Markup, printed: Sequence[Markup]) -> Markup:
    if not printed:
        return measured
    return html.boxed("beside", html.boxed("wide", measured), html.boxed("", *printed))


def _measured(table: Table, result: Result) -> Markup:
    revision = result.environment.get("revision") or "unknown"
    day = str(result.environment.get("time", ""))[:10]
    origin = f"{result.machine}; revision {revision}; {day}"
    return html.table(table.name, table.columns, table.rows) + html.origin(MEASURED, origin)


def _printed(each: PaperTable) -> Markup:
    caption = f"{each.number}: {each.paper}"
    # As printed: 61.0 stays 61.0.
    rows = [[None if cell is None else str(cell) for cell in row] for row in each.rows]
    table = html.table(caption, each.columns, rows)
    return html.boxed("paper", table, html.origin(PRINTED, each.setting))


def _environment(result: Result) -> Markup:
    facts = result.environment
    versions = ", ".join(f"{name} {version}" for name, version in facts.get("versions", {}).items())
    return html.facts(
        [
            ("machine", f"{result.machine}, {facts.get('system', '')}"),
            ("time", str(facts.get("time", "unknown"))),
            ("git revision", str(facts.get("revision") or "unknown")),
            ("versions", versions),
            ("threads", ", ".join(f"{k}={v}" for k, v in facts.get("threads", {}).items()) or "-"),
            ("seeds", ", ".join(map(str, result.seeds)) or "none"),
            ("settings", ", ".join(f"{k} = {v}" for k, v in result.parameters.items()) or "-"),
            ("seconds", result.seconds),
        ]
    )


# --------------------------------------------------------------------------------------- drawings


def _drawings(result: Result) -> list[Markup]:
    """What people would rather look at, drawn from the saved tables alone."""
    makers = {
        "fedavgr_synthetic": _distance_by_round,
        "fedrco_tables": _accuracy_by_second,
        "folding": _folded_plane,
        "kahm_accuracy": _accuracy_against_bits,
        "fedrco_studies": _studies_of_fedrco,
        "partitions": _clients_of_partitions,
        "privacy_utility": _accuracy_against_epsilon,
    }
    maker = makers.get(result.benchmark)
    return [] if maker is None else maker(result)


def _folded_plane(_: Result) -> list[Markup]:
    from benchmarks.folding import panels

    drawn = [
        figures.shown(draw, f"folding{i}", f"Machine {i} folds the plane. Drawn here.", height=5.0)
        for i, draw in enumerate(panels(0))
    ]
    return [html.boxed("beside", *drawn)]


def _clients_of_partitions(_: Result) -> list[Markup]:
    import numpy as np

    from benchmarks._data import digits
    from benchmarks.partitions import panels

    data = digits(np.random.default_rng(0))
    drawn = [
        figures.shown(draw, f"partition{i}", f"Records by client and class: {way}. Drawn here.")
        for i, (way, draw) in enumerate(panels(data.y_train, data.classes))
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
    return [html.boxed("beside", *drawn), *_accuracy_by_second(result)]


def _accuracy_by_second(result: Result) -> list[Markup]:
    table = result.table("accuracy by round and second")
    if table is None:
        return []
    runs: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for partition, clients, method, _, seconds, accuracy, _ in table.rows:
        spent, shared = mean_of(seconds), mean_of(accuracy)
        if spent is not None and shared is not None:
            setting = runs.setdefault((str(partition), str(clients)), {})
            setting.setdefault(str(method), []).append((spent, shared))

    def panel(lines: dict[str, list[tuple[float, float]]]) -> Callable[[Any], None]:
        def draw(axes: Any) -> None:
            for method, points in lines.items():
                axes.plot(*zip(*points, strict=True), label=method, linewidth=1, marker=".")
            axes.set_xlabel("seconds of training")
            axes.set_ylabel("accuracy of the global model, %")
            axes.legend(fontsize=7)

        return draw

    # Unique within a page, which may have the sections of two benchmarks.
    name = result.benchmark
    return [
        figures.shown(panel(lines), f"{name}{i}", f"{partition}, {clients} clients ({MEASURED}).")
        for i, ((partition, clients), lines) in enumerate(runs.items())
    ]


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
