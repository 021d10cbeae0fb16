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
@settings(max_examples=6, deadline=None)
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
