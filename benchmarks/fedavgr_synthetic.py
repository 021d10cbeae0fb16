"""Do FedAvgR's terms bring the clients of a synthetic power-law set together, and is it worth it?

After figure 2 and the synthetic row of table 2 of fedavgr.txt: Synthetic(u, v) of Li et al. 2020
over 10 clients of at least 100 records, 100 trainable random Fourier features sqrt(2) cos(.),
momentum 0.9, batches of 10, 10 local epochs. Table: (u, v) = (0.5, 0.5), 250 rounds, a federation
drawn anew with every seed, rates and weights by 3-fold cross-validation on seed 0's. Figure:
(1, 1), 100 rounds, at those settings and at the largest weight of the grid. Beside the paper's MMD
stands the one between features of one class. A full run takes about an hour of the processor, a
third of them for seed 3, one client of which has 42,124 records; with --resume the table's
accuracies and scores are kept, and the figure's are not.
"""

import functools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks._drawings import save
from benchmarks._harness import COUNT, MINUTES, WORKERS, Run, Table, benchmark, spread
from benchmarks._kept import RESUME, Numbers
from benchmarks._regularised import (
    ALL,
    ALL_BY_CLASS,
    BY_CLASS,
    CLASS_MOST,
    FOLDS,
    GRIDS,
    MMD_BY_CLASS,
    MMD_MOST,
    NONE,
    OF_CLASSES,
    SINGLE,
    WIDTH,
    Chosen,
    Problem,
    Settings,
    by_class,
    one_by_one,
    problem,
    run_trials,
    scorer,
    searches,
    states,
)
from benchmarks._regularised_tables import (
    columns,
    raw_rows,
    show_chosen,
    show_gains,
    table_of_chosen,
    table_of_gains,
)
from benchmarks._synthetic_clients import CLASSES, CLIENTS, LEAST, drawn
from secure_fl.federation import Client

TABLE_SET, FIGURE_SET = "synthetic (0.5, 0.5)", "synthetic (1, 1)"
LEVELS = {TABLE_SET: (0.5, 0.5), FIGURE_SET: (1.0, 1.0)}
METHODS = ("FedAvg", "FedAvgR", BY_CLASS)
SHARES = (0.0, 0.3, 0.6, 1.0)
"""Of the rounds, after which figure 2 looks."""
FIGURE_SEEDS = 3
POINTS = 100
"""Of every client and of all, in the picture."""
DELTA = 0.05

Array = NDArray[np.float64]


@benchmark("do FedAvgR's terms bring the clients of a synthetic set together, and is it worth it?")
@click.option("--rounds", type=COUNT, default=250, show_default=True, help="Of the table.")
@click.option("--figure-rounds", type=COUNT, default=100, show_default=True, help="Of figure 2.")
@click.option("--epochs", type=COUNT, default=10, show_default=True, help="Local, of a round.")
@click.option("--seeds", type=COUNT, default=10, show_default=True, help="The most of the table.")
@click.option(
    "--minutes",
    type=MINUTES,
    default=240.0,
    show_default=True,
    help="The table's next seed is begun if it should end within them; the first always is.",
)
@WORKERS
@RESUME
def main(
    run: Run,
    rounds: int,
    figure_rounds: int,
    epochs: int,
    seeds: int,
    minutes: float,
    workers: int,
    resume: Path | None,
) -> None:
    """Settings by cross-validation, the course of the discrepancy, and accuracies by seed."""
    if run.quick:
        rounds, figure_rounds, epochs, seeds = min(rounds, 3), min(figure_rounds, 3), 1, 1
    run.parameter(rounds=rounds, figure_rounds=figure_rounds, epochs=epochs, minutes=minutes)
    run.parameter(clients=CLIENTS, least=LEAST, width=WIDTH, features="sqrt(2) cos")
    numbers = Numbers(resume)
    deadline = run.started + 60 * minutes
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        lengths = {TABLE_SET: rounds}
        chosen = searches(run, pool, _problem, lengths, METHODS, epochs, numbers)[TABLE_SET]
        show_chosen(run, table_of_chosen(run), TABLE_SET, chosen)
        _figure(run, pool, chosen, figure_rounds, epochs, min(seeds, FIGURE_SEEDS))
        work = {TABLE_SET: functools.partial(_trial, numbers, rounds, epochs, chosen)}
        found = run_trials(run, pool, workers, work, {TABLE_SET: 1}, seeds, deadline)[TABLE_SET]
    run.seeds(*range(min(seeds, FIGURE_SEEDS)), *sorted(found))
    of = columns(found)
    before = ("FedAvg", NONE, *SINGLE.values())
    single = run.table(
        "regularisers one by one, test accuracy in percent",
        ["data", "seeds", *before, "all", *OF_CLASSES],
    )
    shown = (*before, "FedAvgR", *OF_CLASSES)
    single.add(TABLE_SET, len(found), *(spread(of[each], 2) for each in shown))
    show_gains(table_of_gains(run), TABLE_SET, found)
    raw = run.table("every seed", ["data", "seed", *shown])
    raw_rows(raw, TABLE_SET, found)
    run.note("FedAvg: at its own rate; terms are compared with none at one rate, FedAvgR's")
    run.note("p: two-sided paired t-test over the seeds; empty where the differences are equal")
    run.note(
        f"{FOLDS}-fold cross-validation on the training records of seed 0 at (0.5, 0.5), as many"
        " steps as the table's runs have; the figure's runs take FedAvgR's rate and these weights"
    )
    run.note(
        "distance: of a client's mean features from all records' mean, averaged over the clients;"
        " within classes: of a client's class's, averaged over the records"
    )
    run.note(
        "theorem 4: B is the trace norm of W, discrepancies are these distances and 0 for the"
        f" estimated mixture; the bound is theorems 1 to 3 at delta {DELTA} with losses in [0, 1]"
    )


# ------------------------------------------------------------------------------------ one process


def _problem(name: str, seed: int, epochs: int) -> Problem:
    """A federation drawn by the seed, its features divided by the norm of their deviations."""
    rng = np.random.default_rng(seed)
    found = drawn(*LEVELS[name], rng)
    deviations = np.concatenate([each.features for each in found.clients]).std(axis=0)
    scale = np.float32(1 / np.linalg.norm(deviations))
    clients = [Client(c.name, c.features * scale, c.targets) for c in found.clients]
    test = found.test[0] * scale, found.test[1]
    return problem(clients, CLASSES, test, seed, epochs, rng)


def _trial(
    numbers: Numbers, rounds: int, epochs: int, chosen: Chosen, seed: int
) -> dict[str, float]:
    """Test accuracy in percent of every method on one federation."""
    setting, told = _problem(TABLE_SET, seed, epochs), chosen.settings
    numbers = numbers.about(**setting.known(TABLE_SET, rounds), records="test")
    score = scorer(setting, rounds, numbers)
    return {
        **{method: score(method, told[method]) for method in ("FedAvg", "FedAvgR")},
        **one_by_one(score, told["FedAvgR"]),
        **by_class(score, told[BY_CLASS]),
    }


@dataclass(frozen=True)
class Look:
    """A model's features at the clients, and what theorem 4 says of it.

    Attributes:
        round: after which.
        distance: of figure 2; see `apart`.
        within: the same within classes.
        accuracy: of the test records, in percent.
        trace: |W|_*.
        terms: G_1, G_2 and G_3 of theorem 4.
        bound: of theorems 1 to 3, with their constants.
        points: features of records of every client and of all, (clients + 1, POINTS, D); None
            where nothing is drawn.
    """

    round: int
    distance: float
    within: float
    accuracy: float
    trace: float
    terms: tuple[float, float, float]
    bound: float
    points: Array | None


def apart(features: Sequence[Array], labels: Sequence[Any]) -> tuple[Array, float]:
    """How far clients' mean features lie apart.

    Args:
        features: of each client's records, shape (n_k, D).
        labels: their class codes, shape (n_k,).

    Returns:
        The distance of each client's mean from the mean of all records, shape (K,); and that of a
        client's class's mean from the class's, averaged over the records.
    """
    phi, y = np.concatenate(features), np.concatenate(labels)
    middle = phi.mean(axis=0)
    distances = np.array([np.linalg.norm(each.mean(axis=0) - middle) for each in features])
    within = 0.0
    for c in np.unique(y):
        own = phi[y == c].mean(axis=0)
        for each, codes in zip(features, labels, strict=True):
            if (codes == c).any():
                gap = np.linalg.norm(each[codes == c].mean(axis=0) - own)
                within += float(gap) * int((codes == c).sum())
    return distances, within / len(y)


def _course(
    method: str, told: Settings, seed: int, rounds: int, epochs: int, draw: bool
) -> list[Look]:
    """What there is to see at the start and on the way of one run on the figure's set."""
    setting = _problem(FIGURE_SET, seed, epochs)
    wanted = [round(share * rounds) for share in SHARES]
    fed = setting.federation()
    found = [_look(setting, setting.start, draw)] if 0 in wanted else []
    for state in fed.rounds(states(setting, method, rounds, told)(fed)):
        if state.round in wanted:
            found.append(_look(setting, state, draw))
    return found


def _look(setting: Problem, state: Any, draw: bool) -> Look:
    import torch

    from secure_fl.trainers.networks import excess_risk, load

    network = setting.model.build()
    load(network, state.parameters)
    with torch.no_grad():
        features = [
            network.features(torch.from_numpy(each.features)).double().numpy()
            for each in setting.clients
        ]
        W = network.head.weight.double().numpy()
    distances, within = apart(features, [each.targets for each in setting.clients])
    space = excess_risk.Hypotheses(CLASSES, float(np.linalg.norm(W, "nuc")))
    norms = [float(np.linalg.norm(each)) for each in features]
    sample = excess_risk.Sample([len(each) for each in features], norms)
    gaps: dict[str, Any] = {"discrepancy": 0.0, "discrepancies": distances.tolist()}
    terms = excess_risk.terms(space, sample, **gaps)
    return Look(
        state.round,
        float(distances.mean()),
        within,
        setting.accuracy(state.parameters),
        space.trace,
        (terms.agnostic, terms.approximation, terms.federated),
        excess_risk.excess_risk(space, sample, **gaps, delta=DELTA),
        _points(features) if draw else None,
    )


def _points(features: list[Array]) -> Array:
    rng = np.random.default_rng(0)
    groups = [*features, np.concatenate(features)]
    return np.stack([each[rng.choice(len(each), POINTS, replace=False)] for each in groups])


# ----------------------------------------------------------------------------------------- figure


def _runs(chosen: Chosen) -> dict[str, tuple[str, Settings]]:
    """Method and settings of the figure's runs, all at FedAvgR's rate."""
    full, own = chosen.settings["FedAvgR"], chosen.settings[BY_CLASS]
    rate = {"learning_rate": full["learning_rate"]}
    most = {**rate, "mmd": max(GRIDS["mmd"])}
    return {
        "FedAvg": ("FedAvg", rate),
        "MMD": ("FedAvgR", {**rate, "mmd": full["mmd"]}),
        MMD_MOST: ("FedAvgR", most),
        ALL: ("FedAvgR", full),
        MMD_BY_CLASS: (BY_CLASS, {**rate, "mmd": own["mmd"]}),
        CLASS_MOST: (BY_CLASS, most),
        ALL_BY_CLASS: (BY_CLASS, {**own, **rate}),
    }


def _figure(
    run: Run, pool: ProcessPoolExecutor, chosen: Chosen, rounds: int, epochs: int, seeds: int
) -> None:
    course = run.table(
        "distance of the clients' mean features, (u, v) = (1, 1)",
        ["method", "gamma", "seeds", "round", "distance", "within classes", "accuracy, %"],
    )
    theorem = run.table(
        "theorem 4, (u, v) = (1, 1)",
        ["method", "round", "trace norm of W", "G1", "G2", "G3", "sum", "bound with constants"],
    )
    tasks = [(title, seed) for title in _runs(chosen) for seed in range(seeds)]
    waiting = {
        (title, seed): pool.submit(
            _course, *_runs(chosen)[title], seed, rounds, epochs, title == ALL and seed == 0
        )
        for title, seed in tasks
    }
    for title, (_, told) in _runs(chosen).items():
        looks = [waiting[title, seed].result() for seed in range(seeds)]
        for at in zip(*looks, strict=True):
            _add(course, title, told.get("mmd"), at)
        for place in (0, -1):
            _add_theorem(theorem, title, [each[place] for each in looks])
        first, last = looks[0][0], looks[0][-1]
        run.progress(f"{title}: distance {first.distance:.2f} to {last.distance:.2f}")
        if title == ALL:
            _save_drawing(run, looks[0])


def _add(table: Table, title: str, gamma: float | None, looks: Sequence[Look]) -> None:
    seen = ("distance", "within", "accuracy")
    cells = [spread([getattr(each, name) for each in looks], 2) for name in seen]
    table.add(title, gamma, len(looks), looks[0].round, *cells)


def _add_theorem(table: Table, title: str, looks: Sequence[Look]) -> None:
    terms = np.mean([each.terms for each in looks], axis=0).tolist()
    trace, bound = (
        float(np.mean([getattr(e, name) for e in looks])) for name in ("trace", "bound")
    )
    table.add(title, looks[0].round, trace, *terms, sum(terms), bound)


def _save_drawing(run: Run, looks: list[Look]) -> None:
    def draw(axes: Any) -> None:
        axes[0].figure.set_dpi(RASTER)
        for each, look in zip(axes, looks, strict=True):
            _panel(each, look)
        axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8, title="client")

    save(run, "fedavgr_figure2", draw, width=12.0, height=3.4, panels=len(looks))


RASTER = 180
"""Dots an inch of the clouds: as shapes, thousands of points are most of a megabyte."""
MARKS = "os^Dv<>Phd"
"""One a client: they tell the clients apart in black and white too."""


def _panel(axes: Any, look: Look) -> None:
    from sklearn.decomposition import PCA

    assert look.points is not None
    groups, _, width = look.points.shape
    plane = PCA(2, random_state=0).fit_transform(look.points.reshape(-1, width))
    plane = plane.reshape(groups, -1, 2)
    for k, points in enumerate(plane[:-1]):
        colour = f"C{k}"
        cloud = {"color": colour, "markersize": 2.5, "label": str(k), "alpha": 0.6}
        axes.plot(*points.T, MARKS[k], **cloud, rasterized=True)
    axes.plot(*plane[-1].T, "+", color="black", markersize=4, label="all", rasterized=True)
    for k, points in enumerate(plane[:-1]):
        box = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "linewidth": 0.6}
        axes.annotate(str(k), points.mean(axis=0), fontsize=8, ha="center", va="center", bbox=box)
    axes.set_title(f"round {look.round}", fontsize=10)
    axes.set_xlabel(f"distance {look.distance:.2f}")
    axes.set_xticks([])
    axes.set_yticks([])


if __name__ == "__main__":
    main()
