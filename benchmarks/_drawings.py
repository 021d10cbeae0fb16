"""Drawings of benchmarks as files of the docs."""

from collections.abc import Callable
from typing import Any

from benchmarks._data import REPOSITORY
from benchmarks._harness import Run
from secure_fl.report import figures

DOCS = REPOSITORY / "docs"


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
