"""Tables of FedRCO's studies."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from benchmarks import _fedrco_claims as claims
from benchmarks import _fedrco_compared as compared
from benchmarks import _fedrco_gradients as gradients
from benchmarks._fedrco import ALONE, FIRST, SECOND, TUNED, UNWATCHED, Task
from benchmarks._fedrco_curves import Curve, Triple, averaged
from benchmarks._fedrco_legs import Went, setting_of
from benchmarks._fedrco_studies import Study, parent
from benchmarks._harness import Run, Table

LINES = (10, 100, 1000)
"""Megabits a second, both ways."""

Row: TypeAlias = tuple[Task, list[Went]]
"""A run's task with seed 0, and how it went by every seed."""


def by_seed(found: Mapping[Task, Went], tasks: Iterable[Task]) -> list[Row]:
    """Runs that differ by their seeds alone, together; those without a leg are left out."""
    rows: dict[Task, list[Went]] = {}
    for task in tasks:
        if task in found:
            rows.setdefault(replace(task, seed=0), []).append(found[task])
    return list(rows.items())


def show(run: Run, name: str, study: Study, rows: list[Row], cases: Table) -> None:
    """Tables of one study, and its cases for the claims."""
    _accuracies(run, name, rows)
    if name == "gradients":
        _gradients(run, rows, cases)
    elif name == "communication":
        _communication(run, rows, cases)
    else:
        _compare(name, study, rows, cases)
        _against(run, name, rows)


# -------------------------------------------------------------------------------------- accuracy


def _accuracies(run: Run, name: str, rows: list[Row]) -> None:
    table = run.table(
        f"{name}: accuracy in percent",
        [
            "data",
            "partition",
            "clients",
            "participation",
            "method",
            "rate",
            "seeds",
            "rounds",
            "rounds in all",
            "global",
            "personal",
            "global, own mix",
            "personal, own mix",
        ],
    )
    for task, went in rows:
        curve = averaged([each.curve for each in went])
        reached = max(each.reached for each in went)
        where = (task.data, task.partition, task.clients, task.participation)
        own, own_mix, global_mix = last_own(curve) or (None, None, None)
        has_own = parent(task.method) in ("FedRCO", ALONE)
        common = (task.rate, len(went), len(curve.shared), reached)
        if curve.tuned is not None:
            tuned, tuned_mix, _ = curve.tuned
            table.add(*where, TUNED, *common, None, tuned, None, tuned_mix)
        table.add(
            *where,
            task.method,
            *common,
            curve.shared[-1] if curve.shared else None,
            own if has_own else None,
            global_mix,
            own_mix if has_own else None,
        )


def last_own(curve: Curve) -> Triple | None:
    """Accuracies of own models after the last measured round; None where none was."""
    return curve.own[max(curve.own)] if curve.own else None


def courses(run: Run, studies: Iterable[Mapping[Task, Went]]) -> None:
    """Accuracies by round and second of every run, of one in several studies the longest."""
    longest: dict[Task, Went] = {}
    for found in studies:
        for task, each in found.items():
            key = replace(task, rounds=0)
            if key not in longest or len(each.curve.shared) > len(longest[key].curve.shared):
                longest[key] = each
    table = run.table(
        "accuracy by round and second",
        ["setting", "clients", "method", "round", "seconds", "global", "personal"],
    )
    for task, went in by_seed(longest, longest):
        curve = averaged([each.curve for each in went])
        where = f"{task.data}, {task.partition}, participation {task.participation:g}"
        method = f"{task.method}, rate {task.rate:g}" if task.traced else task.method
        for number, (own, _, _) in curve.own.items():
            at = number - 1
            has_own = parent(task.method) in ("FedRCO", ALONE)
            figures = (curve.seconds[at], curve.shared[at], own if has_own else None)
            table.add(where, task.clients, method, number, *figures)


def _compare(name: str, study: Study, rows: list[Row], cases: Table) -> None:
    """FedRCO's own models beside its rivals, on the own mixes."""
    for claim in (each for each in claims.COMPARED if each.study == name):
        for partition, count, share in study.settings:
            runs = {
                task.method: [each.curve for each in went]
                for task, went in rows
                if (task.partition, task.clients, task.participation) == (partition, count, share)
            }
            if {"FedRCO", claim.runs} <= set(runs):
                setting = f"{partition}, {count} clients, participation {share:g}"
                both = runs["FedRCO"], claim.rival, runs[claim.runs]
                compared.add_case(cases, claim.number, setting, *both)


def _against(run: Run, name: str, rows: list[Row]) -> None:
    """Every method's global model against FedAvg's, seed by seed."""
    where = ["data", "partition", "clients", "participation"]
    table = run.table(
        f"{name}: global model against FedAvg's, in points",
        [*where, "method", "seeds", "mean difference", "t", "p"],
    )
    runs = {(setting_of(task), task.method): [w.curve for w in went] for task, went in rows}
    for (setting, method), curves in runs.items():
        baseline = runs.get((setting, "FedAvg"))
        if method in SECOND and baseline is not None:
            gain = compared.gained_globally(curves, baseline)
            if gain is not None:
                table.add(*setting, method, gain.seeds, gain.mean, gain.t, gain.p)


# ------------------------------------------------------------------------------------- gradients


def _gradients(run: Run, rows: list[Row], cases: Table) -> None:
    # A trajectory is one seed's.
    curves = {(task.rate, task.method): went[0].curve for task, went in rows}
    gradients.show(run, curves)
    (claim,) = (each for each in claims.COMPARED if each.study == "gradients")
    for rate in dict.fromkeys(rate for rate, _ in curves):
        with_it, without = (curves.get((rate, m)) for m in ("FedRCO", UNWATCHED))
        if with_it is None or without is None:
            continue
        most = [gradients.largest_applied(each) for each in (with_it, without)]
        rounds = len(with_it.shared)
        cases.add(claim.number, f"rate {rate:g}", rounds, 1, *most, None, most[0] < most[1])


# --------------------------------------------------------------------------------- communication


def _communication(run: Run, rows: list[Row], cases: Table) -> None:
    table = run.table(
        "communication: what a round costs a client",
        [
            "method",
            "rounds",
            "bytes down",
            "bytes up",
            "seconds computing",
            "inverting %",
            *(f"seconds at {line} Mbit/s" for line in LINES),
            *(f"% of the time at {line} Mbit/s" for line in LINES),
        ],
    )
    shares: dict[str, list[float]] = {}
    for task, went in rows:
        curve = averaged([each.curve for each in went])
        if not curve.shared:
            continue
        computing = curve.seconds[-1] / curve.turns
        on_line = [seconds_on(line, curve.traffic) for line in LINES]
        shares[task.method] = [100 * each / (each + computing) for each in on_line]
        table.add(
            task.method,
            len(curve.shared),
            *(round(each) for each in curve.traffic),
            computing,
            curve.inverting if task.method not in FIRST else None,
            *on_line,
            *shares[task.method],
        )
    (claim,) = (each for each in claims.COMPARED if each.study == "communication")
    if {"FedRCO", "FedAvg"} <= set(shares):
        runs = [went for task, went in rows if task.method in shares]
        rounds = min(len(each.curve.shared) for went in runs for each in went)
        pairs = zip(LINES, shares["FedRCO"], shares["FedAvg"], strict=True)
        for line, ours, theirs in pairs:
            counts = rounds, len(runs[0])
            cases.add(claim.number, f"{line} Mbit/s", *counts, ours, theirs, None, ours < theirs)
    run.note(
        "bytes: of the messages between a participant and the server, as the federation meters"
        " them, the mean over participants and rounds; seconds computing: all that training took,"
        " the server's part with it, by participant and round; on a line: the bytes at that many"
        " megabits a second, one direction after the other, no latency, computing meanwhile none"
    )


def seconds_on(line: float, traffic: tuple[float, float]) -> float:
    """What bytes down and up take at so many megabits a second."""
    return float(8 * np.sum(traffic) / (line * 1e6))
