"""The README's commands and Python, run as they stand in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The `securefl` lines, without the remarks behind them."""
    lines = [line for block in blocks("") for line in block.splitlines()]
    return [line.partition("#")[0].strip() for line in lines if line.startswith("securefl ")]


def test_the_commands_of_one_day_end_in_twenty_classes(tmp_path):
    found = ""
    for command in commands():
        done = subprocess.run(
            command.split(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={
                **os.environ,
                "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
                "SECUREFL_PASSPHRASE": "correct horse",
            },
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        found = done.stdout
    assert commands()[-1].startswith("securefl decrypt")
    assert len(found.split()) == 20


def test_the_python_block_scores_on_digits(tmp_path):
    (block,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) > 0.98


def test_every_folder_of_the_layout_table_is_there():
    for folder in re.findall(r"^\| `(\w+)/` \|", README, re.MULTILINE):
        assert (REPOSITORY / folder / "__init__.py").is_file(), folder
