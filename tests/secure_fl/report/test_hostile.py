"""Whatever stands in a file: its reader refuses it in one line, or the page shows it as text."""

import json
from html.parser import HTMLParser

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks._results import load
from secure_fl.errors import InputError
from secure_fl.heads.statements import load_statement
from secure_fl.pages import html
from secure_fl.report.rounds import read_rounds

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just("x" * 9000)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
)
QUICK = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Texts(HTMLParser):
    """Tags and text of a piece of a page."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data):
        self.text += data


def read_or_refuse(reader, path):
    """What the reader found; None where it refused in one short line that names the file."""
    try:
        return reader(path)
    except InputError as error:
        message = str(error)
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1
    assert len(message) < len(str(path)) + 300
    return None


def parsed(piece):
    reader = Texts()
    reader.feed(str(piece))
    reader.close()
    return reader


@QUICK
@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_text_is_shown_as_it_is_and_adds_no_tag(text):
    """The parser of the standard library is the oracle: same tags as for a harmless word."""
    for piece in (
        lambda t: html.paragraph(t),
        lambda t: html.bullets([t]),
        lambda t: html.facts([(t, t)]),
        lambda t: html.preformatted(t),
        lambda t: html.table("c", [t], [[t]]),
        lambda t: html.contents([(t, t)]),
        lambda t: html.folded(t),
    ):
        found, harmless = parsed(piece(text)), parsed(piece("word"))
        assert [tag for tag, _ in found.tags] == [tag for tag, _ in harmless.tags]
        assert [names for _, names in found.tags] == [names for _, names in harmless.tags]
        assert text in found.text


@QUICK
@given(field=st.integers(0, 30), value=VALUES)
def test_a_changed_statement_is_read_or_refused_in_one_line(private_run, tmp_path, field, value):
    content = json.loads((private_run / "clients" / "north" / "statement.json").read_text())
    names = sorted(content)
    content[names[field % len(names)]] = value
    path = tmp_path / "statement.json"
    path.write_text(json.dumps(content))
    found = read_or_refuse(load_statement, path)
    if found is not None:
        assert parsed(html.preformatted(found.text())).tags == [("pre", ())]


@QUICK
@given(value=VALUES)
def test_any_json_is_no_statement_no_result_and_no_log_without_its_members(tmp_path, value):
    path = tmp_path / "any.json"
    path.write_text(json.dumps(value))
    for reader in (load_statement, load, read_rounds):
        assert read_or_refuse(reader, path) is None


@QUICK
@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused(tmp_path, data):
    path = tmp_path / "any.json"
    path.write_bytes(data)
    for reader in (load_statement, load):
        assert read_or_refuse(reader, path) is None
    # No line at all is a log of no round.
    assert not read_or_refuse(read_rounds, path)
