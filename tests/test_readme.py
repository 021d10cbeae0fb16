"""The README's commands and Python, run as they stand in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.command import securefl

REPOSITORY = Path(__file__).resolve().parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands(language: str) -> list[str]:
    """The `securefl` lines, without the remarks behind them."""
    lines = [line for block in blocks(language) for line in block.splitlines()]
    return [line.partition("#")[0].strip() for line in lines if line.startswith("securefl ")]


def test_the_commands_of_one_day_end_in_ten_classes_and_a_passed_audit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    day, private = commands(""), commands("sh")
    found = {command: securefl(*command.split()[1:])[0] for command in [*day, *private]}
    assert day[-1].startswith("securefl decrypt")
    assert len(found[day[-1]].split()) == 10
    said = {command.split(" --")[0]: out for command, out in found.items()}
    assert "epsilon 8" in said["securefl train clients/"]
    assert "epsilon is at least" in said["securefl dp audit"]


def test_the_python_block_scores_on_digits(tmp_path):
    (block,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) > 0.98


def test_every_folder_of_the_layout_table_is_there():
    for folder in re.findall(r"^\| `(\w+)/` \|", README, re.MULTILINE):
        assert (REPOSITORY / folder / "__init__.py").is_file(), folder
