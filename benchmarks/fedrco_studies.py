"""Where does FedRCO's gain hold: partitions, participation, clients, a harder set, and its costs?

After fedrco.txt, table 2 and figures 2, 4 and 6 to 26: the paper's CNN on MNIST, 20 mini-batches
of 32 a round, damping 0.03, moving average 0.95, T_inv 200. Studies: `partitions` (Dirichlet 0.1,
0.5 and 1, IID, 2 and 5 classes a client), `participation` (0.1 to 1 of 100 clients), `clients` (10,
50, 100), `gradients` (the course of the steps' norms with and without the monitor, at the searched
rate and at twice it), `communication` (bytes and seconds of every method) and `cifar10` (features
of long-tailed CIFAR-10, a perceptron). All runs of a study go to the same round before any goes
further, as far as --minutes allow; with --resume FOLDER a later call goes on from there.
"""

import math
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks import _fedrco_compared as compared
from benchmarks import _fedrco_gradients as gradients
from benchmarks import _fedrco_views as views
from benchmarks._fedrco import TESTED, Task
from benchmarks._fedrco_kept import Keep
from benchmarks._fedrco_legs import Map, Went, mapping, setting_of, went
from benchmarks._fedrco_search import MOST, searched
from benchmarks._fedrco_studies import (
    STUDIES,
    Key,
    Rate,
    Study,
    chosen,
    given_rates,
    limited,
    read_rates,
    short,
    tasks_of,
    to_search,
    wanted,
)
from benchmarks._harness import COUNT, MINUTES, WORKERS, Run, benchmark
from benchmarks._kept import RESUME
from cli.paths import ANY_PATH

SHORT = 6
"""Rounds of --quick: two legs."""


@benchmark("where does FedRCO's gain hold, and what does it cost?")
@click.option(
    "--study", type=click.Choice(list(STUDIES)), multiple=True, help="These alone; repeatable."
)
@click.option("--method", multiple=True, help="These of a study's methods alone; repeatable.")
@click.option(
    "--rounds", type=COUNT, default=1600, show_default=True, help="Of every run, in the end."
)
@click.option(
    "--minutes",
    type=MINUTES,
    default=30.0,
    show_default=True,
    help="Of this call; runs are left off between two rounds.",
)
@RESUME
@click.option(
    "--seeds", type=COUNT, default=1, show_default=True, help="Of partition and initial weights."
)
@WORKERS
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:N or auto.")
@click.option(
    "--rates",
    type=ANY_PATH,
    help="A saved full run of fedrco_tables whose rates are taken for MNIST.",
)
@click.option("--rate", multiple=True, help="METHOD=RATE instead, for every data set; repeatable.")
@click.option(
    "--search", is_flag=True, help="Search all other rates here, for every number of clients."
)
def main(
    run: Run,
    study: tuple[str, ...],
    method: tuple[str, ...],
    rounds: int,
    minutes: float,
    resume: Path | None,
    seeds: int,
    workers: int,
    device: str,
    rates: Path | None,
    rate: tuple[str, ...],
    search: bool,
) -> None:
    """Trains every method of the studies on the same partitions."""
    from secure_fl.trainers.networks import choose_device

    run.seeds(*range(seeds))
    device = choose_device(device)
    names = study or tuple(STUDIES)
    studies = {name: short(STUDIES[name]) if run.quick else STUDIES[name] for name in names}
    if method:
        studies = limited(studies, method)
    given = given_rates(rate)
    read = {} if rates is None else read_rates(rates)
    known = chosen(wanted(studies.values()), given, read, "" if rates is None else rates.name)
    with ExitStack() as stack:
        folder = resume or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keep = Keep(folder, math.inf if run.quick else time.time() + 60 * minutes)
        map_ = stack.enter_context(mapping(workers))
        if not run.quick:
            keys = to_search(known, again=search)
            known |= _searched(run, {key: known[key] for key in keys}, device, keep, map_)
        length = min(rounds, SHORT) if run.quick else rounds
        tasks = {
            name: tasks_of(each, known, length, device, run.seed_list)
            for name, each in studies.items()
        }
        groups: dict[tuple[str, *tuple[object, ...]], list[Task]] = {}
        for name, each in tasks.items():
            for task in each:
                groups.setdefault((name, *setting_of(task)), []).append(task)
        found = went(run, groups, keep, map_)
    run.parameter(rounds=length, device=device, tested=TESTED, studies=", ".join(names))
    by_study: dict[str, dict[Task, Went]] = {name: {} for name in studies}
    for (name, *_), runs in found.items():
        by_study[name] |= runs
    _show(run, studies, tasks, known, by_study)


def _searched(
    run: Run, before: Mapping[Key, Rate], device: str, keep: Keep, map_: Map
) -> dict[Key, Rate]:
    """Rates of searches made here, which on MNIST begin at those known before."""
    if not before:
        return {}
    keys = list(before)
    table = run.table(
        "learning rates tried, training accuracy in percent",
        ["data", "method", "clients", "rate", "accuracy"],
    )
    data, methods, counts = zip(*keys, strict=True)
    size = len(keys)
    # A search that was cut would choose by less: it ends, and the studies begin later.
    starts = [rate.value if key[0] == "mnist" else None for key, rate in before.items()]
    options = [device] * size, ["intervals"] * size, data, [keep.endless()] * size, starts
    found = {}
    for key, search in zip(keys, map_(searched, methods, counts, *options), strict=True):
        for tried, score in sorted(search.scores.items()):
            table.add(*key, tried, score)
        if not search.inside:
            run.note(f"{', '.join(map(str, key))}: its best rate is the last of the {MOST} tried")
        found[key] = Rate(search.best, "searched here over 2.5 T_inv")
        run.progress(f"{key[0]}, {key[1]}: rate {search.best:g} of {len(search.scores)}")
    return found


def _show(
    run: Run,
    studies: Mapping[str, Study],
    tasks: Mapping[str, list[Task]],
    rates: Mapping[Key, Rate],
    found: Mapping[str, Mapping[Task, Went]],
) -> None:
    cases = run.table(compared.TABLE, compared.COLUMNS)
    for name, study in studies.items():
        views.show(run, name, study, views.by_seed(found[name], tasks[name]), cases)
        missing = [task for task in tasks[name] if task not in found[name]]
        if missing:
            run.note(
                f"{name}: {len(missing)} of {len(tasks[name])} runs ended before all beside them"
                " had their first rounds; go on with --resume"
            )
    views.courses(run, found.values())
    table = run.table("learning rates", ["data", "method", "clients", "rate", "from"])
    for (data, method, count), rate in rates.items():
        table.add(data, method, count, rate.value, rate.source)
    run.note(
        "rounds: those that all runs of the setting have; rounds in all: how far this one went of"
        " the 1,600 that the paper has; a run with fewer than the others was refused all updates"
    )
    run.note("p: two-sided paired t-test over the seeds; empty for one seed or equal differences")
    run.note(
        f"accuracies on the first {TESTED} test records, means over seeds; personal ones and those"
        " on the own mix (test records weighted to the client's mix of classes) are means over the"
        " participants of the last round"
    )
    course = next((each for each in run.tables if each.name == gradients.COURSE), None)
    if course is not None:
        gradients.save_figure(run, course.rows)


if __name__ == "__main__":
    main()
