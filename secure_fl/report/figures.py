"""Drawings for pages and docs, made with matplotlib (extra `plots`) as SVG."""

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from secure_fl.pages import html

WIDTH, HEIGHT = 5.2, 3.3
"""Inches. On a phone the drawing shrinks to two thirds, and its letters must still be read."""

LONGEST = 20
"""Widths of a letter that a drawing has room for beside its axes."""
_MARK = "= "

INK, GROUND, GRID, MARK = "#1d2430", "#ffffff", "#c9ced6", "#8a8f98"
COLOURS = ("#1f4e79", "#c8641b", "#2f6f4f", "#8a4fa0", "#7a7a7a", "#a83232")
_VARIABLES = {
    **{INK: "ink", GROUND: "ground", GRID: "grid", MARK: "mark"},
    **dict(zip(COLOURS, ("blue", "orange", "green", "violet", "grey", "red"), strict=True)),
}
"""Colours that the page names, so that a drawing changes with it from day to night."""
_MARKS = "os^Dvxh*P<>d"
_DASHES = ("-", "--", ":")
"""With the marks they tell lines apart in print without colours."""

ABSENT = "not drawn: matplotlib is absent (pip install 'securefl[plots]')"


def inline(
    draw: Callable[[Any], None],
    name: str,
    *,
    height: float = HEIGHT,
    width: float = WIDTH,
    panels: int = 1,
    rows: int = 1,
) -> Markup | None:
    """An svg element for a page, or None where matplotlib is absent.

    Its colours are the page's by day and by night (`pages/templates/colours.css`).

    Args:
        draw: draws on the axes that it is given, on a list of them where there are several.
        name: unique within a page; the parts of a drawing refer to one another by it.
        height: inches.
        width: inches.
        panels: axes side by side, at least 1.
        rows: of them, at least 1; drawn on one after the other.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        return None
    # Letters stay letters: they are searchable, smaller, and nothing is loaded for them.
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10}
    # A price or a backslash in a name is no formula.
    settings["text.parse_math"] = False
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings |= {**dict.fromkeys(inks, INK), "grid.color": GRID, "legend.edgecolor": GRID}
    with mpl.rc_context(settings), warnings.catch_warnings():
        # The reader's browser has the letters; only their widths are guessed here.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        drawing = Figure(figsize=(width, height), layout="constrained")
        axes = drawing.subplots(rows, panels, squeeze=False).ravel().tolist()
        draw(axes[0] if len(axes) == 1 else axes)
        buffer = io.StringIO()
        drawing.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date")))
    return _element(buffer.getvalue())


def shown(
    draw: Callable[[Any], None], name: str, caption: str, *, height: float = HEIGHT
) -> Markup:
    """A drawing with its caption as a piece of a page, or a sentence that it is not drawn."""
    svg = inline(draw, name, height=height)
    return html.paragraph(f"{caption} ({ABSENT})") if svg is None else html.figure(svg, caption)


def document(element: Markup) -> str:
    """The element as a file of its own, which is light or dark as its reader's machine is."""
    colours = (Path(html.__file__).parent / "templates" / "colours.css").read_text("utf-8")
    start, end, rest = element.partition(">")
    return f"{start}{end}<style>{colours}</style>{rest}"


def _element(drawn: str) -> Markup:
    start = drawn.index("<svg")
    element = re.sub(r"<metadata>.*?</metadata>", "", drawn[start:], flags=re.DOTALL)
    element = re.sub(r"<!--.*?-->", "", element, flags=re.DOTALL)
    # Two decimals of a point are enough, and less to keep.
    element = re.sub(r"<[^>]+>", _shortened, element)
    return Markup(re.sub(r"(fill|stroke): (#[0-9a-f]{6})", _named, element))


def _shortened(tag: re.Match[str]) -> str:
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag[0])


def _named(match: re.Match[str]) -> str:
    # The plain colour stays before it: what knows no variables takes that one.
    variable = _VARIABLES.get(match[2])
    return match[0] if variable is None else f"{match[0]}; {match[1]}: var(--{variable})"


def plain(text: object, longest: int = LONGEST) -> str:
    """Text from data as drawings show it: printable, one line, of limited width.

    What cannot be printed (control characters, marks that turn the direction of writing, halves of
    surrogate pairs) is spelled out as Python does. The end of a long name stays: it is often what
    tells two apart.

    Args:
        text: a name or label from data.
        longest: widths of a letter that there is room for; East Asian ones take two.
    """
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
    widths = [1 + (east_asian_width(c) in "WF") for c in shown]
    if sum(widths) <= longest:
        return shown
    end = longest // 3
    return f"{_fitting(shown, longest - end - 1)}…{_fitting(shown[::-1], end)[::-1]}"


def _fitting(text: str, room: int) -> str:
    for i, character in enumerate(text):
        room -= 1 + (east_asian_width(character) in "WF")
        if room < 0:
            return text[:i]
    return text


def _label(text: object, longest: int = 2 * LONGEST) -> str:
    """A label for `_legend`: matplotlib leaves those out that start with an underscore."""
    return _MARK + plain(text, longest)


def _legend(axes: Any, **options: Any) -> None:
    """The legend of everything that has a `_label`."""
    for entry in axes.legend(**options).get_texts():
        entry.set_text(entry.get_text().removeprefix(_MARK))


def draw_partition(
    axes: Any, names: Sequence[str], classes: Sequence[str], counts: NDArray[np.integer[Any]]
) -> None:
    """Stacked bars: how many records of each class a client holds, counts (clients, classes)."""
    left = np.zeros(len(names))
    place = np.arange(len(names))
    columns = 1 + (len(classes) > 10)
    for c, label in enumerate(classes):
        axes.barh(
            place,
            counts[:, c],
            left=left,
            label=_label(label, LONGEST // columns),
            color=_colour(c, len(classes)),
        )
        left += counts[:, c]
    axes.set_yticks(place, [plain(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("records")
    if len(classes) <= 20:
        _legend(
            axes,
            loc="upper left",
            bbox_to_anchor=(1, 1),
            fontsize=8,
            title="class",
            ncols=columns,
        )


def draw_lines(
    axes: Any,
    x: Sequence[float],
    lines: Mapping[str, Sequence[float | None]],
    *,
    xlabel: str,
    ylabel: str,
    level: tuple[str, float] | None = None,
) -> None:
    """Lines over one axis, with a level to compare with; None leaves a gap."""
    courses = {
        name: (x, [np.nan if value is None else value for value in values])
        for name, values in lines.items()
    }
    draw_courses(axes, courses, xlabel=xlabel, ylabel=ylabel, level=level)


def draw_courses(
    axes: Any,
    courses: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    level: tuple[str, float] | None = None,
    logarithmic: str = "",
    title: str = "",
) -> None:
    """Lines with points of their own, told apart by colours, and by marks and dashes in print.

    Args:
        axes: of matplotlib.
        courses: both coordinates of each line's points, by its name.
        xlabel: under the axes.
        ylabel: beside them.
        level: name and height of a line to compare with.
        logarithmic: the axes that are, of "x", "y", "xy".
        title: over the panel.
    """
    for i, (name, (x, y)) in enumerate(courses.items()):
        axes.plot(
            x,
            y,
            marker=_MARKS[i % len(_MARKS)],
            linestyle=_DASHES[i // len(COLOURS) % len(_DASHES)],
            label=_label(name),
            color=COLOURS[i % len(COLOURS)],
            linewidth=1.2,
            markersize=4,
            markevery=max(1, len(x) // MOST_MARKS),
        )
    if level is not None:
        axes.axhline(level[1], color=INK, linewidth=0.8, linestyle="--", label=_label(level[0]))
    for axis in logarithmic:
        use_logarithm(axes, axis)
    axes.set_xlabel(plain(xlabel, 2 * LONGEST))
    axes.set_ylabel(plain(ylabel, 2 * LONGEST))
    axes.set_title(plain(title, 2 * LONGEST), fontsize=10)
    axes.grid(True, linewidth=0.4)
    _legend(axes, fontsize=8 if len(courses) > len(COLOURS) else 9)


def use_logarithm(axes: Any, axis: str) -> None:
    """Makes an axis, "x" or "y", logarithmic, its numbers plain: drawings have no formulas."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    getattr(axes, f"set_{axis}scale")("log")
    told = getattr(axes, f"{axis}axis")
    told.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    told.set_minor_formatter(NullFormatter())


MOST_MARKS = 8
"""Of a line."""


def draw_code_range(
    axes: Any,
    centres: NDArray[np.floating[Any]],
    winners: NDArray[np.integer[Any]],
    others: NDArray[np.integer[Any]],
    low: float,
    high: float,
) -> None:
    """Where the smallest measures of a query lie beside the range that the codes span.

    Args:
        axes: of matplotlib.
        centres: of equal bins of [0, 1], shape (b,).
        winners: queries whose smallest measure lies in a bin, shape (b,).
        others: the same of the smallest measure of any other class, shape (b,).
        low: of the code range.
        high: of the code range.
    """
    width = 1 / len(centres)
    axes.bar(
        centres, winners, width, color=COLOURS[0], alpha=0.8, label=_label("smallest of a query")
    )
    axes.bar(
        centres,
        others,
        width,
        color=COLOURS[1],
        alpha=0.55,
        label=_label("smallest of other classes"),
    )
    axes.axvspan(
        low, high, color=COLOURS[2], alpha=0.12, label=_label(f"code range [{low:g}, {high:g}]")
    )
    axes.set_xlim(0, 1)
    axes.set_xlabel("measure")
    axes.set_ylabel("test queries")
    _legend(axes, fontsize=9)


def draw_folding(
    axes: Any,
    records: NDArray[np.floating[Any]],
    points: NDArray[np.floating[Any]],
    images: NDArray[np.floating[Any]],
    colour: str,
) -> None:
    """Points of the plane and the images onto which a machine folds them (kahm.txt, figure 2).

    Args:
        axes: of matplotlib.
        records: of the machine, shape (n, 2).
        points: to fold, shape (m, 2).
        images: of the points, shape (m, 2).
        colour: of records and images.
    """
    ends = np.stack([points, images, np.full_like(points, np.nan)], axis=1).reshape(-1, 2)
    axes.plot(*ends.T, color=MARK, linewidth=0.4)
    axes.scatter(*points.T, s=3, color=MARK, label=_label("points"))
    axes.scatter(
        *images.T, s=14, color=colour, marker="x", linewidths=0.9, label=_label("their images")
    )
    axes.scatter(*records.T, s=9, color=colour, alpha=0.55, label=_label("records"))
    axes.set_aspect("equal")
    _legend(axes, fontsize=8, loc="upper right")


def draw_measure(
    axes: Any,
    side: NDArray[np.floating[Any]],
    measures: NDArray[np.floating[Any]],
    records: NDArray[np.floating[Any]],
    title: str,
) -> None:
    """How far points of the plane are folded: levels from dark (0) to light (kahm.txt, figure 3).

    The levels are drawn as lines too, with their numbers, for print without colours.

    Args:
        axes: of matplotlib.
        side: both axes of the grid, shape (m,).
        measures: in [0, 1], shape (m, m), rows along the second axis.
        records: of the machines, shape (n, 2).
        title: over the panel.
    """
    levels = np.linspace(0.0, 1.0, 6)
    axes.contourf(side, side, measures, levels, cmap="viridis")
    lines = axes.contour(side, side, measures, levels[1:-1], colors="black", linewidths=0.5)
    axes.clabel(lines, fontsize=7, fmt="%.1f")
    # On the colours of the levels, which are the same by day and by night, so is this white.
    axes.scatter(*records.T, s=8, color="#fefefe", edgecolors="black", linewidths=0.4)
    axes.set_title(plain(title, 2 * LONGEST), fontsize=9)
    axes.set_aspect("equal")


def _colour(c: int, count: int) -> Any:
    import matplotlib as mpl

    return mpl.colormaps["tab20" if count > 10 else "tab10"](c % (20 if count > 10 else 10))
