"""The documentation runs: every block of every page, in the page's order, in an empty folder.

A block that cannot be run has the words "not run by the tests" in the line before it, where a
reader sees them. The README's own blocks are run by test_readme.py; here they are counted.
"""

import importlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

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
    return block.language in ("sh", "python") and NOT_RUN not in block.before.lower()


PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
TO_RUN = [page for page in PAGES if any(map(runnable, blocks_of(DOCS / page)))]


@pytest.mark.parametrize("page", TO_RUN)
def test_every_block_of_a_page_runs(page, tmp_path):
    """A variable that a block exports is there in the blocks after it, as in one shell."""
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
    }
    for block in filter(runnable, blocks_of(DOCS / page)):
        interpreter = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
        done = subprocess.run(
            [*interpreter[block.language], block.text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{page}, line {block.line}:\n{done.stdout}{done.stderr}"
        exported = re.findall(r'^export (\w+)="?([^"\n]*)"?$', block.text, re.MULTILINE)
        environment |= dict(exported)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_is_run_or_says_that_it_is_not(page):
    for block in blocks_of(DOCS / page):
        fine = runnable(block) or block.language in SHOWN_ONLY or NOT_RUN in block.before.lower()
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
    assert "Bank" in (tmp_path / "site" / "reference" / "kahm" / "index.html").read_text()
