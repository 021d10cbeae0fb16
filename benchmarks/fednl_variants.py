"""What do FedNL's compressors, options and variants need to a gap of 1e-9?

After fednl.txt, figures 2 to 6 and 8: levels of compression, options 1 and 2, kinds of compressors,
update rules of the Hessians, FedNL-BC with K = p d, FedNL-PP with tau of n clients; and beside them
the FedNL that has all of it, which the paper leaves open. All start at x* + 0.03 in every
coordinate. Bits are what a client sends on average, 64 a float and 32 an index, the initial Hessian
included; those both ways count what it receives too. The paper draws curves and prints no numbers.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from benchmarks._fednl_curves import AXES, BOTH, GOAL, ROUNDS
from benchmarks._harness import COUNT, Run, benchmark
from benchmarks._logistic import SETTINGS, clients_of
from benchmarks.fednl_figures import NEAR, Problem
from benchmarks.fednl_peers import fresh, to_goal
from secure_fl.trainers.fednl import (
    LogisticRidge,
    PowerSGD,
    RandK,
    RankR,
    TopK,
    fednl,
    fednl_all,
    fednl_bc,
    fednl_pp,
    optimum,
)

LEVELS = (1, 2, 4, 8)
"""R of Rank-R and PowerSGD; K of Top-K over d."""
DEPTHS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""p of figure 6: share of gradients, and K over d for Hessians and models."""
SHARES = (0.1, 0.2, 0.4, 0.8, 1.0)
"""tau over n of figure 8."""
TABLE = "to a gap of 1e-9, by figure"
WHERE = ("figure", "data")
"""What tells pictures apart."""
DRAWN = {"5": ROUNDS, "6": BOTH, "8": ROUNDS}
"""What a figure's gaps are drawn against, where not against bits."""

Trainer = Callable[..., Any]


def figures(d: int, n: int, option: int) -> Iterator[tuple[str, str, Trainer]]:
    """Figure, method and trainer of every run.

    Args:
        d: features.
        n: clients.
        option: of FedNL, where a figure does not vary it.
    """
    run = partial(fednl, option=option, rate="one")
    for level in LEVELS:
        yield "2, Rank-R", f"R = {level}", partial(run, compressor=RankR(level))
        yield "2, Top-K", f"K = {level} d", partial(run, compressor=TopK(level * d))
        yield "2, PowerSGD", f"R = {level}", partial(run, compressor=PowerSGD(level))
    for which in (1, 2):
        rank = partial(fednl, option=which, compressor=RankR(1), rate="one")
        yield "3", f"option {which}", rank
    for name, compressor in (("Rank-1", RankR(1)), ("Top-d", TopK(d)), ("PowerSGD-1", PowerSGD(1))):
        yield "4", name, partial(run, compressor=compressor)
    for name, kept, rate in (
        ("Top-d, alpha 1", TopK(d), "one"),
        ("Top-d, alpha 1 - sqrt(1 - delta)", TopK(d), "contractive"),
        ("Rand-d, alpha 1/(omega + 1)", RandK(d), "unbiased"),
    ):
        yield "5", name, partial(fednl, option=option, compressor=kept, rate=rate)
    for p in DEPTHS:
        part = TopK(max(1, round(p * d)))
        both = partial(fednl_bc, compressor=part, p=p, option=1, rate="one")
        yield "6", f"p = {p:g}", both if p == 1 else partial(both, model_compressor=part)
    for share in SHARES:
        tau = max(1, round(share * n))
        yield "8", f"tau = {share:g} n", partial(fednl_pp, compressor=RankR(1), tau=tau)
    tau = max(1, round(0.4 * n))
    for share in (1.0, 0.9, 0.5):
        model = None if share == 1 else TopK(max(1, round(share * d)))
        for search in (True, False):
            told = f"tau = 0.4 n, K = {share:g} d" + (", line search" if search else "")
            whole = partial(fednl_all, compressor=RankR(1), tau=tau, search=search)
            yield "ours, fednl_all", told, partial(whole, model_compressor=model)


@benchmark(
    "what do FedNL's compressors, options and variants need to a gap of 1e-9?",
    click.option("--data", default="a1a,phishing", show_default=True, help=", ".join(SETTINGS)),
    click.option("--penalty", default=1e-3, show_default=True, help="lambda."),
    click.option(
        "--seconds", type=COUNT, default=5, show_default=True, help="A run's processor time."
    ),
)
def main(run: Run, data: str, penalty: float, seconds: int) -> None:
    """Runs every variant until the gap or the time is reached."""
    run.seeds(0)
    names, most = data.split(","), float(seconds)
    if run.quick:
        names, most = ["a1a"], 0.3
    run.parameter(goal=GOAL, start=f"x* + {NEAR}", most_seconds=most, penalty=penalty)
    columns = ["figure", "data", "method", "reached", "rounds", "bits", "bits both ways"]
    table = run.table(TABLE, [*columns, "CPU seconds", "gap"])
    points = run.points("points of figures 2 to 6 and 8", [*WHERE, "method", *AXES])
    for name in names:
        clients, d = clients_of(name, intercept=False)
        objective = LogisticRidge(penalty)
        option = 1
        p = Problem(clients, d, objective, *optimum(fresh(clients), objective, d=d), option=option)
        # What a first use compiles or loads is nobody's time.
        to_goal(p, partial(fednl, compressor=RankR(1), option=option), 0.0)
        for figure, method, trainer in figures(d, len(clients), option):
            run.progress(f"{name}, figure {figure}, {method}")
            went = to_goal(p, trainer, most)
            table.add(figure, name, method, *went.cells)
            for point in went.curve.points():
                points.add(figure, name, method, *point)
    run.note("reached: no where the time was over first; what follows is then where it stood")
    run.note("FedNL-PP and fednl_all count a client's share of what the drawn ones send")


if __name__ == "__main__":
    main()
