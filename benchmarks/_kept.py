"""What a long benchmark has found, kept in a folder: a later call with it goes on from there.

A file holds what was run, what was found, and a digest of both: damaged ones are refused.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import click

from cli.paths import FOLDER
from fhe.envelope import write_atomic
from secure_fl.errors import InputError
from secure_fl.files import make_folder, read_json_object

FORMAT = 1
MAX_BYTES = 2**28
"""Of a curve; one with the trajectories of 10 clients over 1,600 rounds has 30 MB."""

RESUME = click.option(
    "--resume",
    type=FOLDER,
    help="A folder that keeps every run: another call with it goes on to the same figures.",
)

Described: TypeAlias = Mapping[str, Any]
"""A run: "task" with its fields, and "settings", of which a file must have the same."""


def kept(path: Path, run: Described, what: str) -> Any:
    """What a file holds of a run under the name `what`; None where there is no file.

    Raises:
        InputError: the file is damaged, or of another run or format.
    """
    if not path.exists():
        return None
    content = read_json_object(path, MAX_BYTES, "kept run")
    if content.get("format") != FORMAT:
        raise InputError(
            f"{path}: not a kept run of format {FORMAT}; delete it, and the run is made anew"
        )
    if content.get("digest") != digest([content.get("run"), content.get(what)]):
        raise InputError(
            f"{path}: damaged, its digest is not that of its content; delete it, and the run is"
            " made anew"
        )
    changed = _difference(content["run"], run)
    if changed:
        raise InputError(
            f"{path}: a run of other settings ({changed}); go on with the same, or give another"
            " folder"
        )
    return content[what]


def keep(path: Path, run: Described, what: str, found: Any) -> None:
    """Writes what was found, whole or not at all."""
    make_folder(path.parent)
    known, value = json.loads(json.dumps([run, found], allow_nan=False))
    content = {"format": FORMAT, "run": known, "digest": digest([known, value]), what: value}
    write_atomic(path, json.dumps(content).encode())


def digest(content: object) -> str:
    """Of what JSON can hold, in hexadecimal digits."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def slug(words: str) -> str:
    """Words as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _difference(found: Described, wanted: Described) -> str:
    """The first setting of which a file has another value, with both; "" where it has none.

    Those that both know are compared: a setting that is new has been its default.
    """
    before, now = ({**run["task"], **run["settings"]} for run in (found, wanted))
    for key in sorted({*before} & {*now}):
        if before[key] != now[key]:
            return f"{key} was {before[key]}, is {now[key]}"
    return ""


@dataclass(frozen=True)
class Numbers:
    """Numbers that take long to make, each in a file by what it is of.

    Attributes:
        folder: made where it is absent; None keeps nothing.
        known: of all numbers asked of this object.
    """

    folder: Path | None
    known: Mapping[str, Any] = field(default_factory=dict)

    def about(self, **known: Any) -> "Numbers":
        """The same folder, for numbers of which more is known."""
        return replace(self, known={**self.known, **known})

    def number(self, make: Callable[[], float], **task: Any) -> float:
        """The kept number of a task, or what `make` gives, which is then kept.

        Raises:
            InputError: its file is damaged.
        """
        if self.folder is None:
            return make()
        whole = {**self.known, **task}
        path = self.folder / f"{slug(whole['data'])}-{digest(whole)[:20]}.json"
        run = {"task": whole, "settings": {}}
        found = kept(path, run, "number")
        if found is None:
            found = make()
            keep(path, run, "number", found)
        return float(found)
