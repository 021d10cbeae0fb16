"""What do FedNL's peers need to a gap of 1e-9: rounds, bits, seconds?

The comparisons of fednl.txt, figures 7 and 9, and the field's other second-order methods: FedNL-BC
beside DORE, FedNL-PP beside Artemis at 0.2, 0.4 and 0.8 of the clients, FedNL beside SHED and
FedNS. All start at x* + 0.03 in every coordinate. Bits are what a client sends, 64 a float and 32
an index, the initial Hessian included; those both ways count what it receives, 64 a number or as
the method compresses it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import numpy as np

from benchmarks._fednl_curves import AXES, GOAL, Curve
from benchmarks._harness import COUNT, Run, benchmark
from benchmarks._logistic import SETTINGS, clients_of
from benchmarks.fednl_figures import NEAR, Problem
from secure_fl.trainers.fednl import (
    LogisticRidge,
    RankR,
    Smoothness,
    TopK,
    artemis,
    dore,
    fednl,
    fednl_bc,
    fednl_ls,
    fednl_pp,
    fedns,
    mean_value,
    newton_zero,
    optimum,
    shed,
    smoothness,
)

SHARES = (0.2, 0.4, 0.8)
WHERE = ("figure", "data", "lambda")
"""What tells pictures apart."""


def _methods(d: int, n: int, constants: Smoothness) -> dict[str, Callable[..., Any]]:
    """Trainers by name; each takes federation, objective, d, rounds and x0."""
    found: dict[str, Callable[..., Any]] = {
        "FedNL, Rank-1": partial(fednl, compressor=RankR(1), option=2),
        "FedNL-LS, Rank-1": partial(fednl_ls, compressor=RankR(1)),
        "N0": newton_zero,
        "SHED, 1 pair": shed,
        "SHED, 5 pairs": partial(shed, pairs=5),
        "FedNS, k = d": partial(fedns, k=d),
        "FedNS, k = 4 d": partial(fedns, k=4 * d),
        "FedNL-BC, Top-d": partial(fednl_bc, compressor=TopK(d), p=1.0, option=2),
        "DORE": _with(dore, constants),
    }
    for share in SHARES:
        tau = max(1, round(share * n))
        found[f"FedNL-PP, {share:g} n"] = partial(fednl_pp, compressor=RankR(1), tau=tau)
        found[f"Artemis, {share:g} n"] = _with(artemis, constants, tau=tau)
    return found


def _with(trainer: Callable[..., Any], constants: Smoothness, **more: Any) -> Callable[..., Any]:
    return lambda fed, objective, **options: trainer(fed, objective, constants, **more, **options)


@dataclass(frozen=True)
class Went:
    """A run to the goal, or to where its time was over.

    Attributes:
        rounds: of it.
        seconds: of the processor.
        curve: its gaps.
    """

    rounds: int
    seconds: float
    curve: Curve

    @property
    def cells(self) -> tuple[bool, int, float, float, float, float]:
        """Of a row: whether it got there, rounds, bits, bits both ways, seconds and gap."""
        last = (self.curve.bits[-1], self.curve.both[-1], self.seconds, self.curve.gaps[-1])
        return self.curve.gaps[-1] <= GOAL, self.rounds, *last


def to_goal(p: Problem, trainer: Callable[..., Any], most: float) -> Went:
    """Follows a trainer from near the optimum until the gap or the seconds are reached."""
    fed, judge, curve = p.federation(), p.federation(), Curve()
    states = fed.rounds(trainer(fed, p.objective, d=p.d, rounds=10**6, x0=p.best + NEAR))
    spent, began = 0.0, time.process_time()
    for state in states:
        spent += time.process_time() - began
        gap = mean_value(judge, p.objective, state.weights) - p.value
        curve.add(fed, state, gap)
        if gap <= GOAL or spent > most or not np.isfinite(gap):
            break
        began = time.process_time()
    states.close()  # type: ignore[attr-defined]  # a generator
    return Went(state.round, spent, curve)


def _figure(title: str) -> str:
    """Of the paper, in which a method stands."""
    if title.startswith(("FedNL-BC", "DORE")):
        return "7"
    share = title.partition(", ")[2]
    return f"9, {share}" if title.startswith(("FedNL-PP", "Artemis")) else "second-order peers"


@benchmark(
    "what do FedNL's peers need to a gap of 1e-9?",
    click.option("--data", default="a1a,phishing,a9a", show_default=True, help=", ".join(SETTINGS)),
    click.option(
        "--seconds", type=COUNT, default=60, show_default=True, help="A run's processor time."
    ),
)
def main(run: Run, data: str, seconds: int) -> None:
    """Runs every method on every data set and penalty until the gap or the time is reached."""
    run.seeds(0)
    names, most = data.split(","), float(seconds)
    if run.quick:
        names, most = ["a1a"], 2.0
    run.parameter(goal=GOAL, start=f"x* + {NEAR}", most_seconds=most)
    columns = ["data", "lambda", "method", "reached", "rounds", "bits", "bits both ways"]
    table = run.table("to a gap of 1e-9", [*columns, "CPU seconds", "gap"])
    points = run.points("points of figures 7 and 9", [*WHERE, "method", *AXES])
    for name in names:
        clients, d = clients_of(name, intercept=False)
        for penalty in (1e-3,) if run.quick else (1e-3, 1e-4):
            objective = LogisticRidge(penalty)
            p = Problem(clients, d, objective, *optimum(fresh(clients), objective, d=d), option=2)
            constants = smoothness(p.federation(), objective, d=d)
            for title, trainer in _methods(d, len(clients), constants).items():
                run.progress(f"{name}, lambda {penalty:g}, {title}")
                went = to_goal(p, trainer, most)
                table.add(name, penalty, title, *went.cells)
                for point in went.curve.points():
                    points.add(_figure(title), name, f"lambda {penalty:g}", title, *point)
    run.note("reached: no where the time was over first; what follows is then where it stood")
    run.note("Artemis sends the descent direction whole, DORE and it dither with sqrt(d) levels")


def fresh(clients: Any) -> Any:
    """A federation of them with nothing kept from another run."""
    from secure_fl.federation import Federation

    return Federation(clients)


if __name__ == "__main__":
    main()
