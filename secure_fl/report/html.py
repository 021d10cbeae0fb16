"""Pieces of a self-contained page: one file, no script, no request to anywhere.

Every piece is a string of HTML; text is escaped where it enters. The page carries a policy that
forbids the browser to load anything, so a mistake shows as an error and not as a request.
"""

import html
import math
import re
from collections.abc import Sequence
from typing import TypeAlias

Cell: TypeAlias = str | int | float | bool | None

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_STYLE = """
:root { --ink: #1d2430; --soft: #5b6675; --line: #d5dae1; --shade: #f4f6f8; --accent: #1f4e79; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; line-height: 1.5;
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 8px 0 4px; }
h2 { font-size: 1.25rem; margin: 44px 0 8px; padding-top: 12px; border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 24px 0 6px; }
p, ul, ol { max-width: 46rem; margin: 8px 0; }
li { margin: 2px 0; }
a { color: var(--accent); }
.lead { color: var(--soft); margin-bottom: 16px; overflow-wrap: anywhere; }
.beside { display: flex; flex-wrap: wrap; gap: 8px 32px; align-items: flex-start; }
.beside > * { min-width: 0; max-width: 100%; flex: 1 1 22rem; }
.beside > .wide { flex: 1.4 1 34rem; }
.scroll { overflow-x: auto; max-width: 100%; margin: 4px 0 12px;
  background: linear-gradient(to right, #fff 30%, transparent),
    linear-gradient(to left, #fff 30%, transparent) 100% 0,
    linear-gradient(to right, rgba(0, 0, 0, .22), transparent),
    linear-gradient(to left, rgba(0, 0, 0, .22), transparent) 100% 0;
  background-size: 36px 100%, 36px 100%, 9px 100%, 9px 100%; background-repeat: no-repeat;
  background-attachment: local, local, scroll, scroll; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
.caption { font-weight: 600; margin: 14px 0 4px; font-size: .92rem; }
th, td { padding: 5px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { text-align: left; border-bottom: 2px solid #aab3bf; font-weight: 600; }
td.number { text-align: right; white-space: nowrap; }
th.number { text-align: right; max-width: 9em; }
td.text { min-width: 6.5em; max-width: 26rem; overflow-wrap: break-word; }
.origin { font-size: .8rem; color: var(--soft); margin: 0 0 4px; }
.origin b { color: var(--accent); font-weight: 600; }
.paper { border-left: 3px solid var(--line); padding-left: 12px; }
.paper b { color: #7a4b00; }
dl { display: grid; grid-template-columns: minmax(9rem, 15rem) 1fr; gap: 2px 16px; margin: 8px 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--shade); padding: 10px 12px; font-size: .8rem; white-space: pre-wrap;
  overflow-wrap: anywhere; border-radius: 4px; }
figure { margin: 12px 0; }
figure svg { max-width: 100%; height: auto; display: block; }
figcaption { font-size: .84rem; color: var(--soft); max-width: 40rem; }
.warn { border-left: 4px solid #b3541e; background: #fdf3ec; padding: 8px 12px; max-width: 46rem; }
.good { border-left: 4px solid #2f6f4f; background: #eef6f1; padding: 8px 12px; max-width: 46rem; }
nav ol { padding-left: 1.3rem; }
.sign td { height: 44px; min-width: 9rem; }
details summary { cursor: pointer; color: var(--accent); }
@media (max-width: 560px) {
  main { padding: 14px 12px 40px; }
  h1 { font-size: 1.35rem; }
  dl { grid-template-columns: 1fr; }
  dd { margin-bottom: 6px; }
  th, td { padding: 4px 7px; }
}
@media print {
  main { max-width: none; }
  h2 { break-after: avoid; }
  figure { break-inside: avoid; }
}
"""


def escape(text: object) -> str:
    """Text that a browser shows as it is."""
    return html.escape(str(text), quote=True)


def shown(cell: Cell) -> str:
    """A cell as people read it: 4 significant digits, thousands apart, `-` for nothing."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        if not math.isfinite(cell):
            return "unlimited" if cell > 0 else str(cell)
        return f"{cell:,.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return cell


def paragraph(text: str, *, kind: str = "") -> str:
    """One paragraph; `kind` is "", "warn", "good" or "lead"."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def bullets(items: Sequence[str]) -> str:
    """A list."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def facts(pairs: Sequence[tuple[str, Cell]]) -> str:
    """Names and values."""
    rows = (f"<dt>{escape(name)}</dt><dd>{escape(shown(value))}</dd>" for name, value in pairs)
    return f"<dl>{''.join(rows)}</dl>"


def preformatted(text: str) -> str:
    """Text whose lines stay lines."""
    return f"<pre>{escape(text)}</pre>"


def folded(summary: str, body: str) -> str:
    """A piece that is closed until somebody opens it; `body` is HTML."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    shades: Sequence[Sequence[float]] | None = None,
) -> str:
    """A table that scrolls on its own when it is wider than the screen.

    Args:
        caption: above it; none where it is empty.
        columns: names.
        rows: one cell a column; a column of numbers, printed ones too, is aligned to the
            right.
        shades: of each cell, 0 (white) to 1, for tables read as a picture.
    """
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    sides = ["number" if number else "text" for number in numeric]
    head = "".join(
        f'<th class="{side}">{escape(name)}</th>' for side, name in zip(sides, columns, strict=True)
    )
    body = []
    for r, row in enumerate(rows):
        cells = []
        for i, (side, cell) in enumerate(zip(sides, row, strict=True)):
            shade = "" if shades is None else _shade(shades[r][i])
            cells.append(f'<td class="{side}"{shade}>{escape(shown(cell))}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    title = f'<p class="caption">{escape(caption)}</p>' if caption else ""
    return (
        f'{title}<div class="scroll">'
        f'<table aria-label="{escape(caption)}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def figure(svg: str, caption: str) -> str:
    """A drawing inside the page; `svg` is an svg element, see `figures.inline`."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def section(title: str, *body: str, anchor: str) -> str:
    """A chapter with a heading that the contents can point to."""
    return f'<section id="{escape(anchor)}"><h2>{escape(title)}</h2>{"".join(body)}</section>'


def contents(titles: Sequence[tuple[str, str]]) -> str:
    """Links to sections: (anchor, title)."""
    items = (f'<li><a href="#{escape(a)}">{escape(title)}</a></li>' for a, title in titles)
    return f"<nav><ol>{''.join(items)}</ol></nav>"


def page(title: str, *body: str) -> str:
    """The whole file."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Without an icon of its own, a browser asks the server for one.
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n" + "\n".join(body) + "\n</main></body></html>\n"
    )


_NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?( ?± ?[\d.]+)?( ?%)?")


def _is_number(cell: Cell) -> bool:
    if isinstance(cell, str):
        return _NUMBER.fullmatch(cell) is not None
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))


def _shade(value: float) -> str:
    if value <= 0:
        return ""
    return f' style="background: rgba(31, 78, 121, {0.75 * min(value, 1.0):.3f})' + (
        '; color: #fff"' if value > 0.6 else '"'
    )
