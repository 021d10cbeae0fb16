"""The Python of docs/trainers.md, run from top to bottom."""

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "trainers.md"


def test_the_blocks_run_one_after_the_other_and_learn_the_digits(capsys):
    text = DOCUMENT.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 11
    names: dict[str, object] = {}
    exec(compile(blocks[0], str(DOCUMENT), "exec"), names)
    rows = capsys.readouterr().out.splitlines()
    assert float(rows[-1].split()[1]) > 0.97
    for block in blocks[1:]:
        exec(compile(block, str(DOCUMENT), "exec"), names)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
