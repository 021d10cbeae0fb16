import pytest
from markupsafe import Markup

from secure_fl.pages import html


def test_cells_are_read_by_people():
    assert html.shown(None) == "-"
    assert html.shown(True) == "yes"
    assert html.shown(1234567) == "1,234,567"
    assert html.shown(0.123456) == "0.1235"
    assert html.shown(float("inf")) == "unlimited"
    assert html.shown("text") == "text"


def test_text_is_escaped_wherever_it_enters():
    evil = '<b onload="x">&'
    pieces = [
        html.paragraph(evil),
        html.bullets([evil]),
        html.facts([(evil, evil)]),
        html.preformatted(evil),
        html.table(evil, [evil], [[evil]]),
        html.section(evil, anchor=evil),
        html.contents([(evil, evil)]),
        html.page(evil),
        html.figure(Markup(), evil),
        html.folded(evil),
        html.heading(evil),
        html.origin(evil, evil),
        html.boxed("wide", evil),
        html.joined([evil]),
    ]
    for piece in map(str, pieces):
        assert "<b onload" not in piece
        assert "&lt;b onload=&#34;x&#34;&gt;&amp;" in piece


def test_numbers_stand_on_the_right_and_words_on_the_left():
    table = html.table("t", ["name", "n"], [["a", 1], ["b", None]])
    assert '<td class="text">a</td>' in table
    assert '<td class="number">1</td>' in table
    assert '<td class="number">-</td>' in table


def test_a_page_loads_nothing():
    page = html.page("t", html.paragraph("x"))
    assert "default-src 'none'" in page.replace("&#39;", "'")
    assert "http:" not in page
    assert "https:" not in page


def test_a_row_of_another_length_is_no_table():
    with pytest.raises(ValueError, match="expected 2 cells, found 1"):
        html.table("t", ["name", "n"], [["a"]])


def test_shades_are_of_their_cells_and_dark_ones_have_white_letters():
    table = html.table("t", ["a", "b", "c"], [["x", "y", "z"]], shades=[[0, 0.5, 1.0]])
    assert '<td class="text">x</td>' in table
    assert '<td class="text" style="background: rgba(31, 78, 121, 0.375)">y</td>' in table
    assert '<td class="text" style="background: rgba(31, 78, 121, 0.750); color: #fff">z' in table


def test_the_largest_bar_fills_its_cell():
    assert '<i style="height:50%"></i><i style="height:100%"></i>' in html.bars([2, 4])
    assert '<i style="height:0%"></i>' in html.bars([0])
