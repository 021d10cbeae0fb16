"""One self-contained page of saved results, each table beside the figures that the papers print."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from benchmarks._claims import OURS, judged
from benchmarks._drawings import MEASURED, PRINTED
from benchmarks._harness import Table
from benchmarks._papers import PaperTable, tables_of
from benchmarks._places import PLACES
from benchmarks._report_drawings import drawings
from benchmarks._results import Result
from fhe.envelope import write_atomic
from secure_fl.pages import html


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
    """One line a claim, judged by full runs alone; ours stand with the paper they go beyond."""
    columns = ("where", "claim", "here", "found", "seeds", "benchmark and test")
    rows: dict[str, list[list[str]]] = {}
    verdicts: Counter[str] = Counter()
    for claim, verdict in judged(results):
        result = results.get(claim.benchmark)
        seeds = "" if result is None or result.quick else _ranges(result.seeds)
        paper = claim.paper if claim.paper != OURS else list(rows)[-1]
        where = claim.number if claim.paper != OURS else "not in the paper"
        line = [where, claim.text, verdict.holds, verdict.found, seeds]
        rows.setdefault(paper, []).append([*line, f"{claim.benchmark}; {claim.test}"])
        verdicts[verdict.holds] += 1
    told = ", ".join(f"{verdicts[holds]} {words}" for holds, words in _IN_WORDS.items())
    tables = (html.table(paper, columns, lines) for paper, lines in rows.items())
    return html.section(
        "Claims of the papers",
        html.paragraph(f"Judged by the figures of full runs alone: {told}."),
        html.boxed("claims", *tables),
        html.origin(MEASURED, "by the benchmark that stands in the line"),
        anchor="claims",
    )


_IN_WORDS = {
    "holds": "hold",
    "holds in part": "hold in part",
    "does not hold": "do not hold",
    "not judged": "are not judged",
}


def _ranges(numbers: Sequence[int]) -> str:
    """Such as "0 to 9" or "0, 2"."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


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
        if table.drawn:
            continue
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
        *drawings(result),
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
