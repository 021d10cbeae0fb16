"""What an attack file says of its attack: one line of the table on docs/attacks.md."""

import importlib
from pathlib import Path

from attrs import frozen


@frozen
class Attack:
    """One attack with its variations; a file of `tests/attacks` has one, named ATTACK.

    Attributes:
        name: what is done, in a few words.
        holds: who the attacker is and what it has.
        before: what it got from the version that had no defence.
        after: what it gets now.
    """

    name: str
    holds: str
    before: str
    after: str


FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent.parent / "docs" / "attacks.md"

_HEAD = (
    "# Attacks that are tests\n\n"
    "Every line is a file of `tests/attacks`: the cheating party is real code that speaks the real"
    ' protocol, and the tests assert what it learned. "Before" is what the same code got from the'
    " version that had no defence. `make attacks` runs them all and prints this table with the"
    " results. This page is written by `python -m tests.attacks --write`.\n\n"
    "| attack | what the attacker holds | before | now |\n|---|---|---|---|\n"
)


def attacks() -> dict[str, Attack]:
    """All attacks by the name of their file, in its order."""
    files = sorted(path.stem for path in FOLDER.glob("test_*.py"))
    modules = {file: importlib.import_module(f"tests.attacks.{file}") for file in files}
    return {file: each.ATTACK for file, each in modules.items() if hasattr(each, "ATTACK")}


def page() -> str:
    """The page of the documentation."""
    rows = (
        f"| {each.name} (`{file}`) | {each.holds} | {each.before} | {each.after} |\n"
        for file, each in attacks().items()
    )
    return _HEAD + "".join(rows)
