"""The documentation runs: every block of every page, in the page's order, in an empty folder.

A block that cannot be run has the words "not run by the tests" in the line before it, where a
reader sees them. Blocks that several parties type are run by test_walk.py, and the README's own by
test_readme.py; here they are counted.
"""

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import walk
from tests.cli.command import environment_of_commands

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = REPOSITORY / "docs"
BIN = Path(sys.executable).parent

NOT_RUN = "not run by the tests"
SHOWN_ONLY = {"text", "json", "toml", "diff"}
"""Languages of what is read and not run: output, file formats."""


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        language: the word after the fence, "" without.
        text: its lines.
        before: the last line of text before it.
        line: where its fence opens, from 1.
    """

    language: str
    text: str
    before: str
    line: int


def blocks_of(path):
    """The fenced blocks of a page, in order."""
    found, before, opened = [], "", None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"\s*```(\w*)", line)
        if opened is None and fence:
            opened, lines = (fence[1], number), []
        elif opened is not None and fence:
            found.append(Block(opened[0], "\n".join(lines), before, opened[1]))
            opened = None
        elif opened is not None:
            lines.append(line)
        elif line.strip():
            before = line
    assert opened is None, f"{path}: a block is never closed"
    return found


def runnable(block):
    unmarked = NOT_RUN not in block.before.lower() and not walk.is_walked(block.before)
    return block.language in ("sh", "python") and unmarked


PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
SLOW = {"fednl.md", "how-to/three-machines.md", "private-networks.md", "report.md"}
"""Pages whose commands other tests run every day, as the README's; `make test-all` runs them."""

TO_RUN = [
    pytest.param(page, marks=pytest.mark.slow if page in SLOW else ())
    for page in PAGES
    if any(map(runnable, blocks_of(DOCS / page)))
]


SESSION = """
import json, os, sys, traceback

def securefl(*arguments):
    from cli.main import main
    try:
        main(list(arguments))
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"securefl {' '.join(arguments)}: exit code {end.code}")

names = {}
for line in sys.stdin:
    kind, content = json.loads(line)
    try:
        if kind == "page":
            os.chdir(content)
            names = {"__name__": "__main__"}
        elif kind == "command":
            securefl(*content)
        elif kind == "environment":
            os.environ.update(content)
        else:
            exec(compile(content, "<page>", "exec"), names)
        problem = ""
    except BaseException:
        problem = traceback.format_exc()
    sys.stdout.flush(), sys.stderr.flush()
    print(chr(0) + json.dumps(problem), file=sys.__stdout__, flush=True)
"""
"""Runs pages one after the other in one warm process: a block sees the names of those before it.

Commands of securefl run in it too; whatever else a shell is asked for gets a shell.
"""


class Session:
    """One Python process for the blocks of pages."""

    def __init__(self, environment):
        self.environment = environment
        self.folder = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", SESSION],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def begin(self, folder):
        """A page that starts in an empty folder, with no names."""
        self.folder = folder
        assert self._asked("page", str(folder)) == ""

    def problem_with(self, block):
        """The traceback of a block of Python, "" if it ran."""
        return self._asked("python", block)

    def problem_in_shell(self, block):
        """What a block of commands said when it failed, "" if it ran."""
        lines = [line for line in map(str.strip, block.replace("\\\n", " ").splitlines()) if line]
        words = [shlex.split(line, comments=True) for line in lines]
        plain = not set(block) & set("|<>$&;*`(") and all(
            each == [] or each[0] == "securefl" for each in words
        )
        if not plain:
            return problem_in_shell(block, self.folder, self.environment)
        for each in filter(None, words):
            problem = self._asked("command", each[1:])
            if problem:
                return problem
        return ""

    def export(self, variables):
        """Sets variables for the blocks that follow."""
        self.environment = {**self.environment, **variables}
        assert self._asked("environment", variables) == ""

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _asked(self, kind, content):
        self._process.stdin.write(json.dumps([kind, content]) + "\n")
        self._process.stdin.flush()
        said = []
        for line in self._process.stdout:
            text, mark, answer = line.rpartition("\0")
            said.append(text)
            if mark:
                return json.loads(answer) and "".join(said) + json.loads(answer)
        return "the session ended\n" + "".join(said)


def problem_in_shell(block, folder, environment):
    """What a block of commands said when it failed, "" if it ran."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def session():
    found = Session(environment_of_commands())
    yield found
    found.close()


@pytest.mark.parametrize("page", TO_RUN)
def test_every_block_of_a_page_runs(page, tmp_path, session):
    """Names and exported variables of a block are there in the blocks after it."""
    session.begin(tmp_path)
    for block in filter(runnable, blocks_of(DOCS / page)):
        if block.language == "python":
            problem = session.problem_with(block.text)
        else:
            problem = session.problem_in_shell(block.text)
        assert problem == "", f"{page}, line {block.line}:\n{problem}"
        session.export(dict(re.findall(r'^export (\w+)="?([^"\n]*)"?$', block.text, re.MULTILINE)))


def test_a_block_that_fails_is_told(tmp_path, session):
    """The test above can fail."""
    session.begin(tmp_path)
    assert session.problem_with("x = 1") == ""
    assert session.problem_with("print('so far', x)") == ""
    assert "ZeroDivisionError" in session.problem_with("x / 0")
    assert "exit code 2" in session.problem_in_shell("securefl train nowhere --out x")
    assert "no-such-command" in session.problem_in_shell("true\nno-such-command")
    session.begin(tmp_path)
    assert "NameError" in session.problem_with("x")


@pytest.mark.parametrize("page", PAGES)
def test_a_block_is_run_or_says_that_it_is_not(page):
    for block in blocks_of(DOCS / page):
        walked = walk.is_walked(block.before) and page in walk.PAGES
        marked = walked or NOT_RUN in block.before.lower()
        fine = runnable(block) or block.language in SHOWN_ONLY or marked
        assert fine, f"{page}, line {block.line}: neither run nor marked"


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md"])
def test_the_readmes_blocks_are_run_or_marked(name):
    """test_readme.py runs the Python and all lines that start with securefl."""
    for block in blocks_of(REPOSITORY / name):
        lines = [line for line in block.text.splitlines() if line.strip()]
        commands = all(line.startswith("securefl ") for line in lines)
        fine = block.language == "python" or commands or NOT_RUN in block.before.lower()
        assert fine, f"{name}, line {block.line}: neither run nor marked"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("papers/")])
def test_every_function_that_a_papers_page_names_exists(page):
    rows = re.findall(r"^\|.*\|$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert len(names) > 10
    for name in names:
        assert resolve(name) is not None, name


def resolve(name):
    """What a dotted name leads to; modules are imported as far as they go."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{name} leads nowhere")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_that_are_there(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert ((DOCS / page).parent / target).resolve().exists(), target


def test_every_page_is_in_the_contents():
    """Named in mkdocs.yml, so that a reader finds it."""
    contents = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\s*- (?:\w[\w ]*: )?([\w/-]+\.md)$", contents, re.MULTILINE))
    assert listed == set(PAGES)


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    for package in ("kahm", "dp", "fhe"):
        page = (tmp_path / "site" / "reference" / package / "index.html").read_text()
        source = (REPOSITORY / package / "__init__.py").read_text(encoding="utf-8")
        public = ast.literal_eval(re.search(r"__all__ = (\[.*?\])", source, re.DOTALL)[1])
        code = "".join(path.read_text() for path in (REPOSITORY / package).glob("*.py"))
        documented = set(re.findall(r"^(?:def|class) (\w+)", code, re.MULTILINE)) & set(public)
        assert len(documented) > 5
        for name in documented:
            assert re.search(rf'id="{package}[\w.]*\.{name}"', page), f"{package}.{name}"
