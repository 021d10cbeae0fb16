"""The wheel: what is in it, and that it works where it alone is installed."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("kahm", "dp", "fhe", "secure_fl", "cli", "benchmarks")
PROJECT = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, since a build leaves folders behind."""
    source = tmp_path_factory.mktemp("source")
    for name in PACKAGES:
        shutil.copytree(
            REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in PROJECT:
        shutil.copy(REPOSITORY / name, source / name)
    out = tmp_path_factory.mktemp("dist")
    command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [sys.executable, *command, "--wheel-dir", out, source],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (found,) = out.glob("*.whl")
    return found


def names_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_module_and_marker_is_in_the_wheel_and_no_test(wheel):
    found = names_in(wheel)
    for package in PACKAGES:
        for path in (REPOSITORY / package).rglob("*.py"):
            assert path.relative_to(REPOSITORY).as_posix() in found
        assert f"{package}/py.typed" in found
    assert not any(name.startswith(("tests/", "docs/")) for name in found)


def test_no_other_installed_package_has_a_module_of_the_same_place(wheel):
    """opacus also installs a folder `benchmarks`; only `__init__` may be in both, without code."""
    ours = names_in(wheel)
    theirs = {str(path) for path in importlib.metadata.files("opacus") or []}
    assert ours & theirs <= {"benchmarks/__init__.py"}
    empty = compile("", "", "exec").co_code
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read("benchmarks/__init__.py")
    place = Path(str(importlib.metadata.distribution("opacus").locate_file("benchmarks")))
    for each in (source, (place / "__init__.py").read_bytes()):
        lines = compile(each, "benchmarks", "exec", optimize=2)
        assert not lines.co_names or lines.co_names == ("__doc__",)
        assert len(lines.co_code) <= len(empty) + 8


@pytest.mark.slow  # an environment of its own; make wheel-test does the same from the registry
def test_the_wheel_works_alone(wheel, tmp_path):
    """In an environment of its own that sees this one's libraries and not this checkout.

    `make wheel-test` installs the libraries anew, too.
    """
    home = tmp_path / "clean"
    venv.create(home)
    python = home / "bin" / "python"
    (place,) = home.glob("lib/python*/site-packages")
    # A folder named in a .pth file is searched last, and its own .pth files are not read: the
    # editable install of this checkout stays out.
    (place / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--python", python]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, env=environment, timeout=120, cwd=tmp_path)
    done = subprocess.run(
        [python, REPOSITORY / "tests" / "smoke.py", home / "bin"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the installed wheel works" in done.stdout
