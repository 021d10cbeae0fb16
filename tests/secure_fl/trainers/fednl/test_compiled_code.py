"""Machine code on disk must not outlive the source of a function that it contains."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

INNER = """
from numba import njit

@njit(cache=True)
def inner():
    return {value}
"""

OUTER = """
import inner
from numba import njit
from secure_fl.trainers.fednl.compiled_code import forget_if_older

@njit(cache=True)
def outer():
    return inner.inner()

if {mended}:
    forget_if_older(outer, inner)
print(outer())
"""


def run(folder: Path) -> str:
    """What outer.py prints in a process of its own."""
    path = os.pathsep.join([str(folder), *(p or str(Path.cwd()) for p in sys.path)])
    done = subprocess.run(
        [sys.executable, folder / "outer.py"],
        env={**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("mended", [True, False])
def test_an_edit_of_a_called_module_reaches_the_code_that_contains_it(
    tmp_path: Path, mended: bool
) -> None:
    """Without the call numba goes on with what it kept: should it learn to look, drop ours."""
    (tmp_path / "outer.py").write_text(OUTER.format(mended=mended))
    inner = tmp_path / "inner.py"
    for value, wanted in ((1, "1"), (22, "22" if mended else "1")):
        inner.write_text(INNER.format(value=value))
        assert run(tmp_path) == wanted
        assert run(tmp_path) == wanted
