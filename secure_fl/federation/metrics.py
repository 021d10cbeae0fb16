"""A run's rounds as JSON lines: one object a round, readable while the run goes on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fhe.envelope import write_atomic
from secure_fl.federation.errors import FederationError


class RoundLog:
    """Appends to a file of JSON lines.

    Args:
        path: the file.
        keep: rounds of an earlier run to keep, from 0; the others' lines are taken out, because a
            resumed run writes them again.

    Raises:
        FederationError: the file cannot be read or written.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self._path = path
        write_atomic(path, b"".join(_kept(path, keep)))

    def write(self, line: Mapping[str, Any]) -> None:
        """Adds one round."""
        text = json.dumps(line, allow_nan=False) + "\n"
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise FederationError(f"{self._path}: cannot be written ({error.strerror})") from None


def _kept(path: Path, keep: int) -> list[bytes]:
    try:
        lines = path.read_bytes().splitlines(keepends=True) if keep else []
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FederationError(f"{path}: cannot be read ({error.strerror})") from None
    return [line for line in lines if _round_of(line) < keep]


def _round_of(line: bytes) -> float:
    # A line that was cut by the end of an earlier run belongs to no round.
    try:
        return float(json.loads(line)["round"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
