"""Runs every attack and prints the table: `python -m tests.attacks`; `--write` writes the page.

Exit code 1 where an attack got more than its file says.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.attacks.table import FOLDER, PAGE, Attack, attacks, page

_WIDTH = 100


def main(arguments: list[str]) -> int:
    """Prints or writes the table."""
    if arguments == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if arguments:
        print(f"tests.attacks: unknown argument {arguments[0]!r}; --write or none", file=sys.stderr)
        return 2
    held = [_run(FOLDER / f"{file}.py", attack) for file, attack in attacks().items()]
    print(f"{sum(held)} of {len(held)} attacks get no more than the table says")
    return 0 if all(held) else 1


def _run(file: Path, attack: Attack) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    summary = (done.stdout.strip().splitlines() or ["no output"])[-1]
    # The summary is read as well: a process may end with 0 whatever failed in it.
    held = done.returncode == 0 and "passed" in summary and "failed" not in summary
    print(attack.name)
    for what, text in (("holds", attack.holds), ("before", attack.before), ("now", attack.after)):
        print(textwrap.fill(text, _WIDTH, initial_indent=f"  {what:8}", subsequent_indent=" " * 10))
    print(f"  {'tests':8}{file.name}: {summary}")
    print()
    if not held:
        print(done.stdout)
    sys.stdout.flush()
    return held


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
