"""What SECURITY.md and the documentation say of tests: every line of a coalition names one."""

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
PAGES = [REPOSITORY / "SECURITY.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@lru_cache
def names_in(path):
    """Names of the tests of a file."""
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def missing(text):
    """Tests that a text names and nobody wrote."""
    return [
        f"{path}::{name}" if name else path
        for path, name in NAMED.findall(text)
        if not (REPOSITORY / path).is_file() or (name and name not in names_in(path))
    ]


def coalitions():
    """The rows of the tables, cell by cell."""
    text = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
    section = text.split("\n## Coalitions\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [cells for cells in rows if cells[0].strip(" -") not in ("", "together")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_a_page_names_exist(page):
    assert missing(page.read_text(encoding="utf-8")) == []


def test_a_test_that_nobody_wrote_is_found():
    gone = ("`tests/test_nothing.py`", "`tests/test_security.py::test_of_nothing`")
    assert len(missing(" ".join(gone))) == 2


def test_every_coalition_says_what_it_learns_and_which_test_shows_it():
    rows = coalitions()
    assert len(rows) >= 20
    for cells in rows:
        assert len(cells) == 3, cells
        assert cells[1].strip(), cells
        assert all(name for _, name in NAMED.findall(cells[2])), cells
        assert NAMED.search(cells[2]), cells
