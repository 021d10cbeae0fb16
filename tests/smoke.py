"""What an installed wheel must do, run by the interpreter that has it: `python smoke.py BIN`.

Needs no test library. Works in a temporary folder, so that no checkout is imported by accident.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = ("kahm", "dp", "fhe", "secure_fl", "cli", "benchmarks")


def run(bin_folder: Path, folder: Path, *arguments: str) -> str:
    """Standard output of a command that must succeed."""
    environment = {
        **os.environ,
        "PYTHONPATH": "",
        "SECUREFL_PASSPHRASE": "smoke",
        "SECUREFL_CACHE": os.environ.get("SECUREFL_CACHE", str(folder / "cache")),
    }
    done = subprocess.run(
        [str(bin_folder / "securefl"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=600,
    )
    if done.returncode != 0:
        raise SystemExit(f"securefl {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_imports(folder: Path) -> None:
    """Every package comes from the environment, with its marker that types are stated."""
    names = ", ".join(PACKAGES)
    code = f"import {names}; print(*[m.__path__[0] for m in ({names})], sep=chr(10))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    for line in done.stdout.split():
        assert Path(line).is_relative_to(sys.prefix), f"{line} is not in {sys.prefix}"
        assert (Path(line) / "py.typed").is_file(), f"{line}: no py.typed"


def main(bin_folder: Path) -> None:
    """Version, a run from files to encrypted answers, a report, and the benchmarks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_imports(folder)
        version = run(bin_folder, folder, "--version")
        assert version.startswith("securefl "), version
        assert "concrete-python" in version, version
        run(bin_folder, folder, "data", "digits", "digits")
        run(
            bin_folder, folder, "data", "partition", "digits/train.npz", "clients", "--clients", "2"
        )
        run(bin_folder, folder, "train", "clients", "--out", "run")
        run(bin_folder, folder, "keys", "new", "run", "--out", "keys", "--failure", "40")
        batch = ("digits/test.npz", "--run", "run", "--keys", "keys", "--rows", "0:2")
        run(bin_folder, folder, "encrypt", *batch, "--out", "sent")
        run(bin_folder, folder, "infer", "sent", "--keys", "keys", "--out", "answer")
        found = run(bin_folder, folder, "decrypt", "answer", "--keys", "keys", "--run", "run")
        plain = run(
            bin_folder, folder, "infer", "digits/test.npz", "--run", "run", "--mode", "simulate",
            "--rows", "0:2",
        )  # fmt: skip
        assert found == plain, f"{found!r} and {plain!r}"
        run(bin_folder, folder, "report", "run", "--out", "page.html", "--test", "digits/test.npz")
        assert "Who could learn what" in (folder / "page.html").read_text(encoding="utf-8")
        listed = json.loads(run(bin_folder, folder, "bench", "list", "--json"))["benchmarks"]
        assert "kahm_accuracy" in listed, listed
        # opacus installs modules into a folder of the same name.
        assert "run_benchmarks" not in listed, listed
        assert "--quick" in run(bin_folder, folder, "bench", "dp_samplers", "-h")
    print("the installed wheel works")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
