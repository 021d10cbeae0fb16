"""Many runs side by side in a bounded time: all go to the same round before any goes further."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, TypeAlias, TypeVar

from benchmarks._fedrco import FIRST, Task, measured
from benchmarks._fedrco_curves import Curve
from benchmarks._fedrco_kept import Keep
from benchmarks._harness import Run

LEGS = (5, 25, 50, 100, 200, 400, 800)
"""Rounds at which runs are compared where not all of them came to their ends."""

Map: TypeAlias = Callable[..., Iterator[Any]]
G = TypeVar("G", bound=Hashable)


@dataclass(frozen=True)
class Went:
    """How far one run went.

    Attributes:
        curve: to the last leg that every run beside it finished, or to where its updates were
            refused before that.
        reached: rounds that it has in all.
    """

    curve: Curve
    reached: int


@contextmanager
def mapping(workers: int) -> Iterator[Map]:
    """A `map` over processes; over none but this one for a single worker."""
    if workers == 1:
        yield map
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield pool.map


def legs(rounds: int) -> list[int]:
    """Where runs of that many rounds are compared, their end last."""
    return [*(each for each in LEGS if each < rounds), rounds]


def setting_of(task: Task) -> tuple[str, str, int, float]:
    """Data, partition, clients, participation: what runs that are compared have in common."""
    return task.data, task.partition, task.clients, task.participation


def went(
    run: Run, groups: Mapping[G, Sequence[Task]], keep: Keep, map_: Map
) -> dict[G, dict[Task, Went]]:
    """Runs of tasks, as far as the time goes.

    Args:
        run: for progress.
        groups: tasks that are compared, with the rounds that they are to have in the end; a task
            may be in several.
        keep: where runs are kept, and until when there is time.
        map_: see `mapping`.

    Returns:
        Of every group its runs at the last leg that all of them finished; empty where there is
        none.
    """
    tasks = list(dict.fromkeys(task for group in groups.values() for task in group))
    together: dict[G, dict[Task, Curve]] = {name: {} for name in groups}
    reached: dict[Task, int] = {}
    refused: dict[Task, Curve] = {}
    for leg in legs(max((task.rounds for task in tasks), default=0)):
        found = dict(refused)
        left = [task for task in longest_first(tasks) if task not in refused]
        parts = [replace(task, rounds=min(leg, task.rounds)) for task in left]
        # Runs of several groups may be the same as far as this.
        curves = _mapped(run, list(dict.fromkeys(parts)), keep, map_)
        for task, part in zip(left, parts, strict=True):
            curve = curves[part]
            reached[task] = max(len(curve.shared), reached.get(task, 0))
            if curve.refused or len(curve.shared) == part.rounds:
                found[task] = curve
            if curve.refused:
                refused[task] = curve
        for name, group in groups.items():
            if all(task in found for task in group):
                together[name] = {task: found[task] for task in group}
        if not any(task in found for task in left):
            break  # the time is over
    return {
        name: {task: Went(curve, reached[task]) for task, curve in curves.items()}
        for name, curves in together.items()
    }


def _mapped(run: Run, parts: list[Task], keep: Keep, map_: Map) -> dict[Task, Curve]:
    found = {}
    for part, curve in zip(parts, map_(measured, parts, [keep] * len(parts)), strict=True):
        found[part] = curve
        run.progress(_line(part, curve))
    return found


def longest_first(tasks: Sequence[Task]) -> list[Task]:
    """So that no process is left with one of them at the end."""
    return sorted(tasks, key=lambda task: (-task.clients, task.method in FIRST))


def _line(task: Task, curve: Curve) -> str:
    accuracy = f"{curve.shared[-1]:.1f}" if curve.shared else "-"
    where = f"{task.data}, {task.partition}, {task.clients} clients, {task.participation:g}"
    ended = ", refused" if curve.refused else ""
    return f"{where}, {task.method}, round {len(curve.shared)}: {accuracy}{ended}"
