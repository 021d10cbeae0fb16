"""Do the claims of FedNL's Figure 1 hold: gap against bits a node, local, global, compressors?

Draws one picture a data set and penalty (three panels) into the folder given by
SECUREFL_FIGURES, or the working directory, and says in one line a panel whether the paper's claim
held. Bits are those of the paper: what a client sends, the initial Hessian included.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._harness import Run, Table, benchmark
from benchmarks._logistic import clients_of, synthetic
from secure_fl.federation import Client, Federation
from secure_fl.fednl import (
    LogisticRidge,
    PowerSGD,
    RankR,
    TopK,
    adiana,
    diana,
    fednl,
    fednl_cr,
    fednl_ls,
    gradient_descent,
    gradient_descent_ls,
    mean_value,
    newton_zero,
    optimum,
    shifted_local_gd,
    smoothness,
)

LOCAL, GLOBAL, COMPRESSORS = "local", "global", "compressors"
GOAL = 1e-9
"""The gap at which methods are compared in words."""
OVER = 1.2
"""Peers stop once they have sent this many times the bits that FedNL needed to the goal."""
NEAR = 0.03
"""Distance of the local start from the optimum, in every coordinate."""


@dataclass
class Curve:
    """One method's run: bits a node and gap, one entry a state."""

    bits: list[float]
    gaps: list[float]

    def bits_to(self, goal: float) -> float:
        """Bits at which the gap first reached a goal; infinite where it never did."""
        for bits, gap in zip(self.bits, self.gaps, strict=True):
            if gap <= goal:
                return bits
        return float("inf")


@dataclass
class Problem:
    """A data set with its reference optimum."""

    clients: list[Client]
    d: int
    objective: LogisticRidge
    best: Any
    value: float

    def federation(self) -> Federation:
        """The clients with nothing kept from another run but their prepared records."""
        return Federation(
            [Client(c.name, c.features, c.targets, cache=c.cache) for c in self.clients]
        )

    def run(self, fed: Federation, states: Iterator[Any], budget: float = np.inf) -> Curve:
        """Follows a trainer until its gap is at the rounding, or it has sent more than a budget."""
        curve = Curve([], [])
        for state in fed.rounds(states):
            gap = mean_value(fed, self.objective, state.weights) - self.value
            curve.bits.append(state.bits)
            curve.gaps.append(max(gap, 1e-16))
            if gap <= 1e-13 or not np.isfinite(gap) or state.bits > budget:
                break
        return curve


def _problem(clients: list[Client], d: int, penalty: float) -> Problem:
    objective = LogisticRidge(penalty)
    best, value = optimum(Federation(clients), objective, d=d)
    return Problem(clients, d, objective, best, value)


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
    panels: dict[str, dict[str, Curve]] = {LOCAL: {}, GLOBAL: {}, COMPRESSORS: {}}

    def add(panel: str, name: str, trainer: Any, *arguments: Any, **options: Any) -> None:
        fed, ours = p.federation(), panels[panel].get("FedNL", panels[panel].get("FedNL-LS"))
        states = trainer(fed, p.objective, *arguments, d=p.d, **options)
        # A peer is followed for as long as it could still be the one with fewer bits.
        spend = OVER * ours.bits_to(GOAL) if arguments and ours else np.inf
        panels[panel][name] = p.run(fed, states, spend)

    rank = RankR(1)
    add(LOCAL, "FedNL", fednl, rounds=rounds, compressor=rank, x0=near)
    add(LOCAL, "N0", newton_zero, rounds=rounds, x0=near)
    add(GLOBAL, "FedNL-LS", fednl_ls, rounds=rounds, compressor=rank, x0=far)
    add(GLOBAL, "N0-LS", newton_zero, rounds=rounds, line_search=True, x0=far)
    add(GLOBAL, "FedNL-CR", fednl_cr, rounds=rounds, compressor=rank, x0=far)
    add(GLOBAL, "GD-LS", gradient_descent_ls, constants, rounds=first, x0=far)
    for name, trainer in peers.items():
        add(LOCAL, name, trainer, constants, rounds=first, x0=near)
        add(GLOBAL, name, trainer, constants, rounds=first, x0=far)
    for name, compressor in {"Rank-1": rank, "Top-d": TopK(p.d), "PowerSGD-1": PowerSGD(1)}.items():
        add(COMPRESSORS, name, fednl, rounds=rounds, compressor=compressor, rate="one", x0=near)
    return panels


def _verdict(panel: str, curves: dict[str, Curve]) -> str:
    """The paper's claim about a panel, and whether it held at the goal."""
    bits = {name: curve.bits_to(GOAL) for name, curve in curves.items()}
    claims = {
        LOCAL: ("FedNL needs fewer bits than all first-order methods", "FedNL", ("N0", "FedNL")),
        GLOBAL: (
            "FedNL-LS needs fewer bits than all first-order methods",
            "FedNL-LS",
            ("N0-LS", "FedNL-LS", "FedNL-CR"),
        ),
        COMPRESSORS: ("Rank-1 needs the fewest bits of the compressors", "Rank-1", ("Rank-1",)),
    }
    claim, ours, aside = claims[panel]
    others = {name: value for name, value in bits.items() if name not in aside}
    best = min(others, key=lambda name: others[name])
    if not np.isfinite(bits[ours]):
        return f"{claim}: NOT shown, {ours} ended at a gap of {curves[ours].gaps[-1]:.1e}"
    short = [n for n in others if others[n] == np.inf and curves[n].bits[-1] < bits[ours]]
    if short:
        return f"{claim}: undecided, {', '.join(short)} ran out of rounds"
    held = "held" if bits[ours] < others[best] else "did NOT hold"
    rest = "none got there" if not np.isfinite(others[best]) else f"{best} {others[best]:.3g}"
    return f"{claim}: {held} ({ours} {bits[ours]:.3g} bits to {GOAL:g}; {rest})"


def _draw(path: Path, title: str, panels: dict[str, dict[str, Curve]]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(15, 4.5), sharey=True)
    for axis, (panel, curves) in zip(axes, panels.items(), strict=True):
        for name, curve in curves.items():
            axis.semilogy(curve.bits, curve.gaps, label=name)
        axis.set(title=f"{title}, {panel}", xlabel="bits sent by a node")
        longest = max(c.bits_to(GOAL) for n, c in curves.items() if n.startswith(("Fed", "Rank")))
        axis.set_xlim(0, 4 * longest if np.isfinite(longest) else None)
        axis.set_ylim(1e-13, 10)
        axis.legend(fontsize=8)
    axes[0].set_ylabel("f(x) - f(x*)")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _settings(run: Run) -> Iterator[tuple[str, list[Client], int, float]]:
    names = ("a1a",) if run.quick else ("a1a", "a9a", "phishing", "w8a")
    for name in names:
        for penalty in (1e-3,) if run.quick else (1e-3, 1e-4):
            yield (name, *clients_of(name, intercept=False), penalty)
    (seed,) = run.seeds(0)
    for level in () if run.quick else (0.0, 0.5, 1.0):
        rng = np.random.default_rng(seed)
        yield (f"synthetic({level:g}, {level:g})", *synthetic(level, level, rng), 1e-3)


@benchmark("do the claims of FedNL's Figure 1 hold: gap against bits a node?")
def main(run: Run) -> None:
    """Runs the methods of Figure 1, draws the panels and compares bits."""
    folder = Path(os.environ.get("SECUREFL_FIGURES", "."))
    rounds, first = (60, 2000) if run.quick else (400, 10_000)
    run.parameter(rounds=rounds, first_order_rounds=first, goal=GOAL, near=NEAR)
    columns = ["data", "penalty", "panel", "method", "rounds", "bits to 1e-9", "last gap"]
    table: Table = run.table("gap against bits", columns)
    for name, clients, d, penalty in _settings(run):
        run.progress(f"{name}, penalty {penalty:g}")
        panels = _panels(_problem(clients, d, penalty), rounds, first)
        for panel, curves in panels.items():
            for method, curve in curves.items():
                bits = curve.bits_to(GOAL)
                shown = bits if np.isfinite(bits) else None
                table.add(name, penalty, panel, method, len(curve.gaps) - 1, shown, curve.gaps[-1])
            run.note(f"{name}, lambda {penalty:g}, {panel}: {_verdict(panel, curves)}")
        text = f"{name}, lambda {penalty:g}"
        safe = "".join(c if c.isalnum() else "_" for c in text)
        _draw(folder / f"fednl_{safe}.svg", text, panels)
    run.note("bits: 64 a float, 32 an index, the initial Hessian where it is sent")


if __name__ == "__main__":
    main()
