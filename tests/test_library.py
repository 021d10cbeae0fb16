"""The scripts of docs/library.md are short and complete; test_docs.py runs them."""

import builtins
import symtable

import pytest

from tests.test_docs import DOCS, blocks_of, runnable

SCRIPTS = [each for each in blocks_of(DOCS / "library.md") if each.language == "python"]
MOST_LINES, WIDEST = 8, 100


def unknown_names(source):
    """Names that a script uses and neither makes nor imports."""
    table = symtable.symtable(source, "<script>", "exec")
    tables, unknown = [table], set()
    while tables:
        each = tables.pop()
        tables += each.get_children()
        unknown |= {s.get_name() for s in each.get_symbols() if s.is_global() or s.is_referenced()}
    made = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    return unknown - made - set(dir(builtins))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: f"line {each.line}")
def test_a_script_has_at_most_eight_lines_runs_and_leans_on_no_other(script):
    lines = list(filter(str.strip, script.text.splitlines()))
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDEST
    assert runnable(script) or "test_asking.py" in script.before
    assert unknown_names(script.text) == set()


def test_a_script_that_leans_on_another_is_found():
    """The test above can fail."""
    assert unknown_names("import dp\nprint(dp.release(X))") == {"X"}
    assert unknown_names("x = 1\nprint(x, len([x]))") == set()


def test_the_scripts_are_there():
    assert len(SCRIPTS) >= 3
