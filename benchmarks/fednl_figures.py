"""Do the claims of FedNL's Figure 1 hold: gap against bits a node, local, global, compressors?

Draws a picture for each penalty and one of the synthetic data (a row a data set, three panels), and
says in one line a panel whether the paper's claim held. Bits are those of the paper: what a client
sends, the initial Hessian included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._fednl_claims import COLUMNS, COMPRESSORS, FIGURE_1, GAPS, GLOBAL, LOCAL
from benchmarks._fednl_curves import AXES, BITS, GOAL, Curve, Panel, save_panels
from benchmarks._harness import Run, benchmark
from benchmarks._logistic import clients_of, iid, synthetic
from secure_fl.federation import Client, Federation
from secure_fl.trainers.fednl import (
    LogisticRidge,
    PowerSGD,
    RankR,
    TopK,
    adiana,
    diana,
    dingo,
    fednl,
    fednl_cr,
    fednl_ls,
    gradient_descent,
    gradient_descent_ls,
    mean_value,
    newton_learn,
    newton_zero,
    optimum,
    shifted_local_gd,
    smoothness,
)

OVER = 1.2
"""Peers stop once they have sent this many times the bits that FedNL needed to the goal."""
NEAR = 0.03
"""Distance of the local start from the optimum, in every coordinate."""


@dataclass
class Problem:
    """A data set with its reference optimum, and the option of FedNL that the paper takes on it."""

    clients: list[Client]
    d: int
    objective: LogisticRidge
    best: Any
    value: float
    option: int

    def federation(self) -> Federation:
        """The clients with nothing kept from another run but their prepared records."""
        return Federation(
            [Client(c.name, c.features, c.targets, cache=c.cache) for c in self.clients]
        )

    def run(self, trainer: Any, *arguments: Any, ours: Curve | None, **options: Any) -> Curve:
        """Follows a trainer until its gap is at the rounding, or it can no longer need fewer bits.

        DINGO is compared with ours in both directions, the others in what a node sends.
        """
        both = trainer is dingo
        budget = np.inf if ours is None else OVER * ours.bits_to(GOAL, both=both)
        fed, judge, curve = self.federation(), self.federation(), Curve()
        for state in fed.rounds(trainer(fed, self.objective, *arguments, d=self.d, **options)):
            gap = mean_value(judge, self.objective, state.weights) - self.value
            curve.add(fed, state, gap)
            used = curve.both[-1] if both else curve.bits[-1]
            if gap <= 1e-13 or not np.isfinite(gap) or used > budget:
                break
        return curve


def _problem(clients: list[Client], d: int, penalty: float, option: int) -> Problem:
    objective = LogisticRidge(penalty)
    best, value = optimum(Federation(clients), objective, d=d)
    return Problem(clients, d, objective, best, value, option)


def _panels(p: Problem, rounds: int, first: int) -> dict[str, dict[str, Curve]]:
    """The three rows of Figure 1; `rounds` of Newton-type methods, `first` of the others."""
    near, far = p.best + NEAR, np.zeros(p.d)
    constants = smoothness(p.federation(), p.objective, d=p.d)
    peers = {
        "GD": gradient_descent,
        "DIANA": diana,
        "ADIANA": adiana,
        "S-Local-GD": shifted_local_gd,
    }
    followed = {*peers.values(), gradient_descent_ls, dingo}
    panels: dict[str, dict[str, Curve]] = {LOCAL: {}, GLOBAL: {}, COMPRESSORS: {}}

    def add(panel: str, name: str, trainer: Any, *arguments: Any, **options: Any) -> None:
        ours = panels[panel].get("FedNL", panels[panel].get("FedNL-LS"))
        ours = ours if trainer in followed else None
        panels[panel][name] = p.run(trainer, *arguments, ours=ours, **options)

    rank = RankR(1)
    option = {"rounds": rounds, "option": p.option, "x0": near}
    add(LOCAL, "FedNL", fednl, compressor=rank, **option)
    add(LOCAL, "N0", newton_zero, rounds=rounds, x0=near)
    add(GLOBAL, "FedNL-LS", fednl_ls, rounds=rounds, compressor=rank, x0=far)
    add(GLOBAL, "N0-LS", newton_zero, rounds=rounds, line_search=True, x0=far)
    add(GLOBAL, "FedNL-CR", fednl_cr, rounds=rounds, compressor=rank, x0=far)
    add(LOCAL, "DINGO", dingo, rounds=rounds, x0=near)
    add(GLOBAL, "DINGO", dingo, rounds=rounds, x0=far)
    add(GLOBAL, "GD-LS", gradient_descent_ls, constants, rounds=first, x0=far)
    for name, trainer in peers.items():
        add(LOCAL, name, trainer, constants, rounds=first, x0=near)
        add(GLOBAL, name, trainer, constants, rounds=first, x0=far)
    for name, compressor in {"Rank-1": rank, "Top-d": TopK(p.d), "PowerSGD-1": PowerSGD(1)}.items():
        add(COMPRESSORS, name, fednl, compressor=compressor, rate="one", **option)
    add(COMPRESSORS, "NL1, K = 1", newton_learn, rounds=rounds, x0=near)
    return panels


def _settings(run: Run) -> Iterator[tuple[str, str, list[Client], int, float, int]]:
    """Picture, title, clients, features, penalty and FedNL's option of each row."""
    for penalty in (1e-3,) if run.quick else (1e-3, 1e-4):
        for name in ("a1a",) if run.quick else ("a1a", "a9a", "phishing", "w8a"):
            clients, d = clients_of(name, intercept=False)
            yield f"fednl_{penalty:g}", f"{name}, lambda {penalty:g}", clients, d, penalty, 1
    (seed,) = run.seeds(0)
    for level in () if run.quick else (None, 0.0, 0.5, 1.0):
        rng = np.random.default_rng(seed)
        made = iid(0.0, rng) if level is None else synthetic(level, level, rng)
        title = "IID" if level is None else f"Synthetic({level:g}, {level:g})"
        yield "fednl_synthetic", title, *made, 1e-3, 2


def _cells(curve: Curve) -> Iterator[float | None]:
    yield len(curve.gaps) - 1
    for both in (False, True):
        bits = curve.bits_to(GOAL, both=both)
        yield bits if np.isfinite(bits) else None
    yield from (curve.bits[-1], curve.both[-1], curve.gaps[-1])


def _note(run: Run, title: str, panel: str, rows: Sequence[Sequence[Any]]) -> None:
    """The paper's claims about a panel, and whether they held at the goal."""
    by_method = {str(row[2]): row for row in rows}
    told = {True: "held", False: "did NOT hold", None: "undecided"}
    for claim in FIGURE_1:
        if claim.panel == panel:
            holds, why = claim.judge(by_method)
            run.note(f"{title}, {panel}: {claim.text}: {told[holds]} ({why})")


@benchmark("do the claims of FedNL's Figure 1 hold: gap against bits a node?")
def main(run: Run) -> None:
    """Runs the methods of Figure 1, draws the panels and compares bits."""
    rounds, first = (60, 2000) if run.quick else (400, 10_000)
    run.parameter(rounds=rounds, first_order_rounds=first, goal=GOAL, near=NEAR)
    table = run.table(GAPS, COLUMNS)
    points = run.points("points of figures 1 and 10 to 13", ["data", "panel", "method", *AXES])
    pictures: dict[str, list[Panel]] = {}
    for picture, title, clients, d, penalty, option in _settings(run):
        run.progress(title)
        panels = _panels(_problem(clients, d, penalty, option), rounds, first)
        for panel, curves in panels.items():
            courses = {method: curve.points() for method, curve in curves.items()}
            pictures.setdefault(picture, []).append(Panel(f"{title}, {panel}", BITS, courses))
            for method, curve in curves.items():
                table.add(title, panel, method, *_cells(curve))
                for point in courses[method]:
                    points.add(title, panel, method, *point)
            _note(run, title, panel, table.rows[-len(curves) :])
    for picture, drawn in pictures.items():
        save_panels(run, picture, drawn, columns=len((LOCAL, GLOBAL, COMPRESSORS)))
    run.note("bits: 64 a float, 32 an index, the initial Hessian where it is sent")
    run.note(
        "both directions, as the paper compares with DINGO: and 64 a float that a node received"
    )


if __name__ == "__main__":
    main()
