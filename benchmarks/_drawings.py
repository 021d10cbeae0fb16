"""Drawings of benchmarks: pieces of the report's page, and files of the docs."""

from collections.abc import Callable
from functools import partial
from typing import Any

from markupsafe import Markup

from benchmarks._data import REPOSITORY
from benchmarks._harness import Run
from secure_fl.report import figures

DOCS = REPOSITORY / "docs"
MEASURED = "measured here"
PRINTED = "from the paper, other machine"


def panel(name: str, caption: str, height: float = 4.2, **told: Any) -> Markup:
    """A drawing of `figures.draw_courses` with its caption."""
    return figures.shown(
        partial(figures.draw_courses, **told), name, f"{caption} ({MEASURED}).", height=height
    )


def save(run: Run, name: str, draw: Callable[[Any], None], **size: Any) -> None:
    """Writes docs/NAME.svg of a full run, and notes that it did, or why not.

    Args:
        run: that is told.
        name: of the drawing.
        draw: draws on the axes, see `figures.inline`.
        size: of it: width, height, panels, rows.
    """
    if run.quick:
        run.note(f"{name}.svg: not drawn of a short run")
        return
    if not DOCS.is_dir():
        run.note(f"{name}.svg: not drawn, for there is no folder {DOCS}")
        return
    svg = figures.inline(draw, name, **size)
    if svg is None:
        run.note(f"{name}.svg: {figures.ABSENT}")
        return
    (DOCS / f"{name}.svg").write_text(figures.document(svg), encoding="utf-8")
    run.note(f"plot: {name}.svg")
