"""Runs inputs through a parser and says what became of them."""

import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dp.errors
import fhe.errors
import kahm.errors
import secure_fl.errors
from tests.fuzz.parsers import NotFollowedError, Parser, Read

TYPED = tuple(
    each
    for module in (dp.errors, fhe.errors, kahm.errors, secure_fl.errors)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Exception) and each.__module__ == module.__name__
)
LONGEST = 30
"""Seconds after which an input counts as one that hangs."""


class HangError(BaseException):
    """An input took longer than LONGEST."""


@dataclass
class Outcomes:
    """What became of a parser's inputs.

    Attributes:
        parser: its name.
        inputs: tried.
        refused: with a typed error.
        parsed: read.
        bare: other errors, a line each with the number of the input.
        slowest: seconds of the slowest input.
        peak: bytes of memory beyond what was in use, of the input that took most.
    """

    parser: str
    inputs: int = 0
    refused: int = 0
    parsed: int = 0
    bare: list[str] = field(default_factory=list)
    slowest: float = 0.0
    peak: int = 0


def inputs_of(parser: Parser, samples: list[bytes], seed: int) -> Iterator[bytes]:
    """The samples, then changes of them without end; the same for a seed."""
    yield from samples
    rng = random.Random(f"{parser.name} {seed}")
    while True:
        yield parser.mutate(rng.choice(samples), rng)


def try_inputs(parser: Parser, *, count: int | None, seconds: float, seed: int = 0) -> Outcomes:
    """Feeds a parser.

    Args:
        parser: of the registry.
        count: inputs at most; None without a limit.
        seconds: at most.
        seed: of the changes.
    """
    found = Outcomes(parser.name)
    typed = _typed()
    with tempfile.TemporaryDirectory() as folder:
        samples, read = parser.make(Path(folder))
        for sample in samples:
            read(sample)
        end = time.monotonic() + seconds
        for number, data in enumerate(inputs_of(parser, samples, seed)):
            if number == count or time.monotonic() > end:
                break
            _try_one(found, read, data, number, typed)
    return found


def _try_one(
    found: Outcomes, read: Read, data: bytes, number: int, typed: tuple[type[Exception], ...]
) -> None:
    found.inputs += 1
    before, start = _reset_peak(), time.perf_counter()
    try:
        with _limited():
            read(data)
        found.parsed += 1
    except typed:
        found.refused += 1
    except (Exception, HangError) as error:
        found.bare.append(f"input {number}: {type(error).__name__}: {str(error)[:200]}")
    found.slowest = max(found.slowest, time.perf_counter() - start)
    found.peak = max(found.peak, _peak() - before)


def _typed() -> tuple[type[Exception], ...]:
    # The service's own typed answer to a request; its package needs an extra.
    from secure_fl.service.gate import Refusal

    return (*TYPED, NotFollowedError, Refusal)


@contextmanager
def _limited() -> Iterator[None]:
    def hangs(*_: object) -> None:
        raise HangError(f"over {LONGEST} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _reset_peak() -> int:
    """Forgets the largest memory of this process (Linux); returns what is in use, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status: no {name}")
