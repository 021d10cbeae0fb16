"""What full runs say to the claims of fednl.txt."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks._results import Result
from benchmarks._verdicts import NO_TABLE, Judge, Verdict, counted, grouped, left_out

LOCAL, GLOBAL, COMPRESSORS = "local", "global", "compressors"
"""Panels of figures 1 and 10 to 13: from near the optimum, from afar, kinds of compressors."""
FIRST_ORDER = ("GD", "GD-LS", "DIANA", "ADIANA", "S-Local-GD")
GAPS = "gap against bits"
COLUMNS: tuple[str, ...] = (
    *("data", "panel", "method", "rounds", "bits to 1e-9", "both ways to 1e-9", "bits"),
    *("bits both ways", "last gap"),
)
"""Of that table: what the goal needed, empty where it was not reached, and where a run ended."""


@dataclass(frozen=True)
class Fewest:
    """A claim that one method needs the fewest bits to the goal.

    Attributes:
        text: the claim.
        panel: in which.
        ours: the method.
        rivals: those of them that the panel has.
        both: bits both ways, not those sent alone.
    """

    text: str
    panel: str
    ours: str
    rivals: tuple[str, ...]
    both: bool = False

    def judge(self, rows: Mapping[str, Sequence[object]]) -> tuple[bool | None, str]:
        """Of a panel's rows by method: whether it holds, None if undecided, and by which bits."""
        rivals = [name for name in self.rivals if name in rows]
        if not rivals:
            return None, "none of its rivals was run"
        need = {name: self._bits(rows[name], to_goal=True) for name in (self.ours, *rivals)}
        mine = need[self.ours]
        if not math.isfinite(mine):
            return False, f"{self.ours} ended at a gap of {float(str(rows[self.ours][-1])):.1e}"
        short = [
            name
            for name in rivals
            if not math.isfinite(need[name]) and self._bits(rows[name], to_goal=False) < mine
        ]
        if short:
            return None, f"{', '.join(short)} ran out of rounds"
        best = min(rivals, key=lambda name: need[name])
        rest = f"{best} {need[best]:.3g}" if math.isfinite(need[best]) else "none got there"
        return mine < need[best], f"{self.ours} {mine:.3g} bits; {rest}"

    def _bits(self, row: Sequence[object], *, to_goal: bool) -> float:
        name = "both ways to 1e-9" if self.both else "bits to 1e-9"
        if not to_goal:
            name = "bits both ways" if self.both else "bits"
        cell = row[COLUMNS.index(name)]
        return math.inf if cell is None else float(str(cell))


_BOTH = "both directions counted"
FIGURE_1 = (
    Fewest(
        "Near the optimum FedNL needs fewer bits than first-order methods",
        LOCAL,
        "FedNL",
        FIRST_ORDER,
    ),
    Fewest(
        f"Near the optimum FedNL needs fewer bits than DINGO, {_BOTH}",
        LOCAL,
        "FedNL",
        ("DINGO",),
        both=True,
    ),
    Fewest(
        "From afar FedNL-LS needs fewer bits than first-order methods",
        GLOBAL,
        "FedNL-LS",
        FIRST_ORDER,
    ),
    Fewest(
        f"From afar FedNL-LS needs fewer bits than DINGO, {_BOTH}",
        GLOBAL,
        "FedNL-LS",
        ("DINGO",),
        both=True,
    ),
    Fewest(
        "Rank-1 needs fewer bits than Top-K, PowerSGD and NL1",
        COMPRESSORS,
        "Rank-1",
        ("Top-d", "PowerSGD-1", "NL1, K = 1"),
    ),
)


def fewest(claim: Fewest) -> Judge:
    """Over the data sets of a run."""

    def judge(result: Result) -> Verdict:
        table = result.table(GAPS)
        if table is None or table.columns != COLUMNS:
            return NO_TABLE
        cases, undecided = [], []
        for name, rows in grouped(table, ("panel", "data"), "method").items():
            if not name.startswith(claim.panel):
                continue
            data = name.removeprefix(f"{claim.panel}, ")
            holds, _ = claim.judge(rows)
            if holds is None:
                undecided.append(data)
            else:
                cases.append((data, holds))
        found = counted(cases, f"{claim.ours} with the fewest bits to 1e-9")
        return left_out(found, undecided, "rivals ran out of rounds")

    return judge


def fewer_bits(ours: str, theirs: str, factor: float) -> Judge:
    def judge(result: Result) -> Verdict:
        table = result.table("to a gap of")
        if table is None:
            return NO_TABLE
        reached, bits = table.columns.index("reached"), table.columns.index("bits")
        cases = []
        for name, rows in grouped(table, ("data", "lambda"), "method").items():
            a, b = rows[ours], rows[theirs]
            # Bits of a run that did not reach the goal are a lower bound of what it needs.
            fewer = factor * float(str(a[bits])) <= float(str(b[bits]))
            if a[reached] is True and b[reached] is not True and not fewer:
                continue  # the rival was given up too early to tell
            cases.append((name, a[reached] is True and fewer))
        return counted(cases, f"{ours} with a {factor:g}th of the bits of {theirs} or less")

    return judge


def cheapest(figure: str, ours: str, column: str, rivals: tuple[str, ...] = ()) -> Judge:
    """Whether a variant needs least of a column; of rivals that are named, or of all."""

    def judge(result: Result) -> Verdict:
        table = result.table("to a gap of")
        if table is None:
            return NO_TABLE
        reached, place = table.columns.index("reached"), table.columns.index(column)
        cases = []
        for name, rows in grouped(table, ("figure", "data"), "method").items():
            if not name.startswith(f"{figure}, "):
                continue
            a = rows[ours]
            others = [row for other, row in rows.items() if other in (rivals or {*rows} - {ours})]
            need = float(str(a[place]))
            # What a run that did not reach the goal has used is a lower bound of what it needs.
            least = all(need < float(str(row[place])) for row in others)
            early = any(row[reached] is not True for row in others)
            if a[reached] is True and (least or not early):
                cases.append((name.removeprefix(f"{figure}, "), least))
            elif a[reached] is not True and not early:
                cases.append((name.removeprefix(f"{figure}, "), False))
        return counted(cases, f"{ours} with the fewest {column}")

    return judge


VARIANTS: tuple[tuple[str, str, str, tuple[str, ...], str], ...] = (
    ("2, Rank-R", "R = 1", "bits", (), "Rank-R: the smaller R, the fewer bits (judged: R = 1)."),
    ("2, Top-K", "K = 1 d", "bits", (), "Top-K: the smaller K, the fewer bits (judged: K = d)."),
    (
        "2, PowerSGD",
        "R = 1",
        "bits",
        (),
        "PowerSGD: the smaller R, the fewer bits (judged: R = 1).",
    ),
    ("3", "option 1", "bits", (), "Option 1, projection, needs fewer bits than option 2."),
    ("4", "Rank-1", "bits", (), "Rank-R needs fewer bits than Top-K and PowerSGD."),
    ("5", "Top-d, alpha 1", "rounds", (), "Top-K with alpha = 1 needs the fewest rounds."),
    (
        "6",
        "p = 1",
        "bits both ways",
        ("p = 0.5", "p = 0.6"),
        "Deep compression both ways (p = 0.5, 0.6) costs FedNL-BC more bits than none (p = 1).",
    ),
    ("8", "tau = 1 n", "rounds", (), "FedNL-PP: the fewer clients a round, the more rounds."),
)
"""Figure, the variant that should need least, of what, its rivals (all if none), and the claim."""
