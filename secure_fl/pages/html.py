"""Pieces of a self-contained page: one file, no script, no request to anywhere.

Every piece is a macro of `templates/pieces.html`, rendered by Jinja2 with escaping on: text is
escaped where it enters, and only a piece (`Markup`) enters as it is. The page carries a policy
that forbids the browser to load anything, so a mistake shows as an error and not as a request.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

Cell: TypeAlias = str | int | float | bool | None


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


def _pieces() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
    )
    environment.filters["shown"] = shown
    return environment


_MACROS = _pieces().get_template("pieces.html").module


def _piece(name: str, *values: object) -> Markup:
    return Markup(getattr(_MACROS, name)(*values))


def joined(parts: Sequence[Markup], between: str = "") -> Markup:
    """Pieces one after the other; what is no piece is escaped."""
    return Markup(between).join(parts)


def paragraph(text: str, *, kind: str = "") -> Markup:
    """One paragraph; `kind` is "", "warn", "good" or "lead"."""
    return _piece("paragraph", text, kind)


def heading(text: str) -> Markup:
    """A heading inside a section."""
    return _piece("heading", text)


def bullets(items: Sequence[str]) -> Markup:
    """A list."""
    return _piece("bullets", items)


def facts(pairs: Sequence[tuple[str, Cell]]) -> Markup:
    """Names and values."""
    return _piece("facts", pairs)


def preformatted(text: str) -> Markup:
    """Text whose lines stay lines."""
    return _piece("preformatted", text)


def folded(summary: str, *body: Markup) -> Markup:
    """Pieces that are closed until somebody opens them."""
    return _piece("folded", summary, joined(body))


def boxed(kind: str, *body: Markup) -> Markup:
    """Pieces in a box; `kind` is "beside", "wide", "paper", "sign" or, for none, ""."""
    return _piece("boxed", kind, joined(body))


def origin(sentence: str, detail: str) -> Markup:
    """Where the figures above come from."""
    return _piece("origin", sentence, detail)


def bars(counts: Sequence[int]) -> Markup:
    """Counts as bars side by side, the largest as high as the cell that they stand in."""
    largest = max(max(counts, default=0), 1)
    return _piece("bars", [round(100 * each / largest) for each in counts])


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    shades: Sequence[Sequence[float]] | None = None,
) -> Markup:
    """A table that scrolls on its own when it is wider than the screen.

    Args:
        caption: above it; none where it is empty.
        columns: names.
        rows: one cell a column; a column of numbers, printed ones too, is aligned to the
            right.
        shades: of each cell, 0 (white) to 1, for tables read as a picture.

    Raises:
        ValueError: a row of another length than the columns.
    """
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"row {row!r}: expected {len(columns)} cells, found {len(row)}")
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    sides = ["number" if number else "text" for number in numeric]
    return _piece("table", caption, columns, sides, rows, shades)


def figure(svg: Markup, caption: str) -> Markup:
    """A drawing inside the page; `svg` is an svg element, see `figures.inline`."""
    return _piece("figure", svg, caption)


def section(title: str, *body: Markup, anchor: str) -> Markup:
    """A chapter with a heading that the contents can point to."""
    return _piece("section", title, anchor, joined(body))


def contents(titles: Sequence[tuple[str, str]]) -> Markup:
    """Links to sections: (anchor, title)."""
    return _piece("contents", titles)


def page(title: str, *body: Markup) -> str:
    """The whole file, as plain text: it is part of no other page."""
    return str(_piece("page", title, joined(body, "\n")))


_NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?( ?± ?[\d.]+)?( ?%)?")


def _is_number(cell: Cell) -> bool:
    if isinstance(cell, str):
        return _NUMBER.fullmatch(cell) is not None
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))
