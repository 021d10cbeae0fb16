"""What a full run says to a claim, and how cells of its tables are read and counted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from benchmarks._harness import Table
from benchmarks._results import Result

Holds: TypeAlias = Literal["holds", "does not hold", "holds in part", "not judged"]


@dataclass(frozen=True)
class Verdict:
    """What a full run says.

    Attributes:
        holds: in short.
        found: by which figures.
    """

    holds: Holds
    found: str


Judge: TypeAlias = Callable[[Result], Verdict]
"""Makes the verdict of a full run."""

NO_TABLE = Verdict("not judged", "the run has no such table")


def mean_of(cell: object) -> float | None:
    """The mean in a cell such as `79.1 ± 0.2`; None where there is none."""
    try:
        return float(str(cell).partition("±")[0])
    except ValueError:
        return None


def grouped(table: Table, keys: tuple[str, ...], name: str) -> dict[str, dict[str, list[object]]]:
    """Rows by setting, then by method."""
    places = [table.columns.index(key) for key in keys]
    found: dict[str, dict[str, list[object]]] = {}
    for row in table.rows:
        setting = ", ".join(str(row[place]) for place in places)
        found.setdefault(setting, {})[str(row[table.columns.index(name)])] = list(row)
    return found


def gain(difference: object, p: object) -> bool:
    """Whether a mean difference is above 0 with p below 0.05."""
    mean, chance = mean_of(difference), mean_of(p)
    return mean is not None and mean > 0 and chance is not None and chance < 0.05


def counted(pairs: Iterable[tuple[str, bool]], what: str) -> Verdict:
    """A verdict of cases: held in all, in none, or in part, and the fewer of both are named."""
    cases = list(pairs)
    good = [name for name, held in cases if held]
    bad = [name for name, held in cases if not held]
    if not cases:
        return Verdict("not judged", "the run has no figures for it")
    text = f"{what} on {len(good)} of {len(cases)}"
    if len(good) == len(cases):
        return Verdict("holds", text)
    if not good:
        return Verdict("does not hold", text)
    named = f": {', '.join(good)}" if len(good) <= len(bad) else f"; not on {', '.join(bad)}"
    return Verdict("holds in part", text + named)


def mostly(pairs: Iterable[tuple[str, bool]], what: str) -> Verdict:
    """A verdict on a claim about most cases: it holds in more than half of them, or not."""
    cases = list(pairs)
    found = counted(cases, what)
    if found.holds != "holds in part":
        return found
    most = 2 * sum(held for _, held in cases) > len(cases)
    return Verdict("holds" if most else "does not hold", found.found)


def left_out(found: Verdict, names: list[str], why: str) -> Verdict:
    """A verdict that says which cases it leaves out, and why."""
    if not names:
        return found
    return Verdict(found.holds, f"{found.found}; {why}, and not judged: {', '.join(names)}")
