"""Drawings show every text that comes from data as it is: no formula, nothing left out."""

import html
import re
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.report import figures

pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")

HOSTILE = [
    *("_other", "$0-$5_", "$x_$", r"\frac{1}", "\\", "a" * 300 + "END", "שלום", "😀", "中" * 40),
    *("tab\tnul\x00", "line\nend", "\x1b[31m", "x\u202ey", "\ud800", "<b>&amp;", "-->", "", " "),
]


def texts_of(svg: str) -> list[str]:
    """What the drawing says; it must be well-formed as a browser reads it."""
    root = ElementTree.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]


def partition(names, classes) -> str:
    counts = np.ones((len(names), len(classes)), np.int64)
    svg = figures.inline(lambda axes: figures.draw_partition(axes, names, classes, counts), "p")
    assert svg is not None
    return svg


@pytest.mark.parametrize("name", HOSTILE)
def test_a_class_and_a_client_of_any_name_are_in_the_drawing(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = texts_of(partition([name, "b"], [name, "c"]))
    # matplotlib writes no element for a text without a letter.
    assert found.count(figures.plain(name)) == (2 if name.strip() else found.count(name))
    assert found.count("b") == found.count("c") == 1


@given(names=st.lists(st.text(max_size=60), min_size=2, max_size=14))
@settings(max_examples=6)
def test_lines_of_any_names_are_drawn_with_all_of_them(names):
    lines = {name: [1.0, 2.0] for name in names}

    def draw(axes):
        figures.draw_lines(axes, [1, 2], lines, xlabel="$x_$", ylabel="y", level=("_level", 1.5))

    svg = figures.inline(draw, "lines", height=6.0)
    found = texts_of(svg or "")
    assert {"$x_$", "_level"} <= set(found)
    for name in lines:
        shown = figures.plain(name, 2 * figures.LONGEST)
        assert not shown.strip() or shown in found


@given(text=st.text(), longest=st.integers(3, 50))
def test_a_shown_text_is_printable_fits_and_keeps_what_is_short(text, longest):
    shown = figures.plain(text, longest)
    assert shown.isprintable()
    assert len(shown) <= longest
    if text.isascii() and text.isprintable() and len(text) <= longest:
        assert shown == text


def test_two_names_that_differ_at_their_end_stay_apart():
    assert figures.plain("client" * 9 + "-01") != figures.plain("client" * 9 + "-02")


def test_a_page_with_such_a_drawing_has_no_mark_of_the_data():
    assert "<b>" not in partition(["<b>"], ["<b>", "c"])
    assert html.escape("<b>") in partition(["<b>"], ["<b>", "c"])
    assert not re.search(r"[\x00-\x08\x0b\x1b]", partition(["\x00\x1b"], ["a", "b"]))


def courses_of(count, length=3):
    return {f"line {i}": (range(1, length + 1), [10.0**-i] * length) for i in range(count)}


def drawn(name="courses", count=3, **told):
    def draw(axes):
        figures.draw_courses(axes, courses_of(count), xlabel="x", ylabel="y", **told)

    svg = figures.inline(draw, name)
    assert svg is not None
    return svg


def test_lines_are_told_apart_without_colours():
    """Each of twelve has a mark or dashes of its own: what a path draws, its colour left out."""
    found = set()

    def draw(axes):
        figures.draw_courses(axes, courses_of(12), xlabel="x", ylabel="y")
        found.update((line.get_marker(), line.get_linestyle()) for line in axes.get_lines())

    figures.inline(draw, "many", height=6.0)
    assert len(found) == 12


def test_a_drawing_takes_the_colours_of_its_page():
    svg = drawn()
    first, second = figures.COLOURS[:2]
    assert f"stroke: {first}; stroke: var(--blue)" in svg
    assert f"stroke: {second}; stroke: var(--orange)" in svg
    assert f"fill: {figures.INK}; fill: var(--ink)" in svg
    # The page and a file of its own name every colour, by day and by night.
    for text in (html_page(svg), figures.document(svg)):
        for variable in set(re.findall(r"var\((--[a-z]+)\)", svg)):
            assert len(re.findall(rf"{variable}: #[0-9a-f]{{6}}", text)) == 2
        assert "prefers-color-scheme: dark" in text


def html_page(svg):
    from secure_fl.pages import html as pages

    return pages.page("t", pages.figure(svg, "caption"))


def test_by_day_colours_are_those_of_the_drawing_itself():
    """A reader of files that knows no variables shows what a page shows by day."""
    day = figures.document(drawn()).partition("@media")[0]
    pairs = re.findall(r"(#[0-9a-f]{6}); (?:fill|stroke): var\((--[a-z]+)\)", drawn(count=6))
    assert len({variable for _, variable in pairs}) == 9
    for colour, variable in pairs:
        assert re.search(rf"{variable}: {colour}\b", day)


def test_a_file_of_its_own_is_well_formed():
    root = ElementTree.fromstring(figures.document(drawn()))
    assert root.tag.endswith("svg")
    assert next(iter(root)).tag.endswith("style")


def test_numbers_of_a_logarithmic_axis_are_no_formulas():
    told = texts_of(drawn(logarithmic="xy"))
    assert {"0.01", "0.1", "1"} <= set(told)
    assert not [text for text in told if "$" in text or "\\" in text]


def test_numbers_in_words_keep_their_digits():
    assert "lambda 0.0001" in texts_of(drawn(title="lambda 0.0001"))


def test_rows_of_panels_are_drawn_one_after_the_other():
    def draw(axes):
        for i, each in enumerate(axes):
            each.set_title(f"panel {i}")

    svg = figures.inline(draw, "grid", panels=2, rows=3)
    assert [text for text in texts_of(svg or "") if text.startswith("panel")] == [
        f"panel {i}" for i in range(6)
    ]
