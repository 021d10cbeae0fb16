"""The round driver: closes rounds, keeps checkpoints and the log of rounds, reports progress."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fhe.envelope import write_atomic
from secure_fl.errors import FederationError
from secure_fl.federation import checkpoint as checkpoints
from secure_fl.federation.checkpoint import Snapshot
from secure_fl.federation.divergence import require_sound
from secure_fl.federation.engine import Engine
from secure_fl.federation.privacy import statement

S = TypeVar("S")

_REMEDY = "steps that are too long are the likely cause: shorten them or scale the features down"


def drive(
    engine: Engine,
    states: Iterator[S],
    *,
    resumed: object,
    snapshot: Callable[[S], Snapshot],
    checkpoint: Path | None,
    metrics: Path | None,
    progress: Callable[[str], None] | None,
    measure: Callable[[S], Mapping[str, float]] | None,
) -> Iterator[S]:
    """See `Federation.rounds`; `resumed` is the state of a checkpoint, whose round is closed, and
    `snapshot` what a checkpoint keeps after a state.
    """
    lines = None if metrics is None else RoundLog(metrics, engine.round)
    started = time.perf_counter()
    while (state := engine.next_of(states)) is not None:
        # A trainer that was resumed may yield once more what it started from.
        if resumed is None or state is not resumed:
            require_sound(state, who=f"round {engine.round}", remedy=_REMEDY)
            figures = _finite({} if measure is None else measure(state))
            line: dict[str, Any] = {}
            if lines is not None or progress is not None:
                line = {**_facts(engine, time.perf_counter() - started), **figures}
            engine.close_round()
            # In this order: a line without its checkpoint is written again by a resumed run.
            if lines is not None:
                lines.write(line)
            if checkpoint is not None:
                checkpoints.save(checkpoint, snapshot(state))
            if progress is not None:
                progress(_text(line, figures))
        yield state
        started = time.perf_counter()
    accountant = engine.stages.accountant
    if progress is not None and accountant is not None:
        progress(statement(accountant))


def _facts(engine: Engine, seconds: float) -> dict[str, Any]:
    traffic = engine.meter.of_round()
    accountant = engine.stages.accountant
    spent = None if accountant is None else accountant.spent()
    return {
        "round": engine.round,
        "seconds": round(seconds, 4),
        "participants": len(engine.participants),
        "survivors": len(engine.survivors),
        "calls": engine.calls,
        "bytes_down": traffic.bytes_down,
        "bytes_up": traffic.bytes_up,
        "floats_down": traffic.floats_down,
        "floats_up": traffic.floats_up,
        "clients": engine.meter.rows(engine.participants),
        "refused": list(engine.refused),
        "outside": dict(engine.outside),
        "epsilon": None if spent is None or math.isinf(spent.epsilon) else spent.epsilon,
    }


def _finite(figures: Mapping[str, float]) -> dict[str, float | None]:
    # JSON has neither NaN nor infinity.
    return {key: float(v) if math.isfinite(v) else None for key, v in figures.items()}


def _text(line: Mapping[str, Any], figures: Mapping[str, float | None]) -> str:
    parts = [
        f"round {line['round']}: {line['survivors']} of {line['participants']} clients",
        f"{line['bytes_up'] / 1e6:.3g} MB up, {line['bytes_down'] / 1e6:.3g} MB down",
        *(f"{key} {value:.5g}" for key, value in figures.items() if value is not None),
        f"{line['seconds']:.3g} s",
    ]
    return ", ".join(parts)


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
