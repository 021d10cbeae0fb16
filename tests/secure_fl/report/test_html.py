from secure_fl.report import html


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
        html.figure("", evil),
        html.folded(evil, ""),
    ]
    for piece in pieces:
        assert "<b" not in piece.replace("<body", "").replace("<blockquote", "")
        assert "&lt;b onload=&quot;x&quot;&gt;&amp;" in piece


def test_numbers_stand_on_the_right_and_words_on_the_left():
    table = html.table("t", ["name", "n"], [["a", 1], ["b", None]])
    assert '<td class="text">a</td>' in table
    assert '<td class="number">1</td>' in table
    assert '<td class="number">-</td>' in table


def test_a_page_loads_nothing():
    page = html.page("t", html.paragraph("x"))
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    assert "http:" not in page
    assert "https:" not in page
