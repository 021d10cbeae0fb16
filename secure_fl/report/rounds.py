"""A trainer's rounds as its handle logs them: JSON lines, one a round."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secure_fl.errors import InputError

MAX_BYTES = 256 * 2**20
COUNTS = ("round", "participants", "survivors", "bytes_down", "bytes_up")


@dataclass(frozen=True)
class Round:
    """One line.

    Attributes:
        round: its number.
        participants: clients that were asked.
        survivors: clients that are in the sums.
        bytes_down: server to clients.
        bytes_up: clients to server.
        figures: other numbers in the line, by name, such as accuracy and epsilon.
    """

    round: int
    participants: int
    survivors: int
    bytes_down: int
    bytes_up: int
    figures: dict[str, float]


def read_rounds(path: Path) -> tuple[Round, ...]:
    """Reads the log of a trainer's run.

    Raises:
        InputError: not such a log; names the line.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES} bytes, not a log of rounds")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({type(error).__name__})") from error
    return tuple(_round(line, f"{path}, line {i}") for i, line in enumerate(lines, 1))


def columns_of(rounds: Sequence[Round]) -> list[str]:
    """Names of the figures that any round has, in order of first use."""
    return list(dict.fromkeys(name for each in rounds for name in each.figures))


def _round(line: str, source: str) -> Round:
    try:
        content = json.loads(line)
        counts = {name: _count(content[name]) for name in COUNTS}
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{source}: not a round's log ({type(error).__name__}); give the file that the"
            " trainer's metrics= wrote"
        ) from error
    skipped = {*COUNTS, "sums", "floats_down", "floats_up"}
    figures = {
        str(name): float(value)
        for name, value in content.items()
        if name not in skipped
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }
    return Round(**counts, figures=figures)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is not a count")
    return value
