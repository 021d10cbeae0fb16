"""FedRCO on MNIST beside first- and second-order peers: accuracy by round and by second.

After fedrco.txt, section 6 and E.3: the paper's CNN, 20 mini-batches of 32 a round, participation
0.8, damping 0.03, moving average 0.95, Dirichlet 0.1 and 2 classes a client, 10 and 50 clients. The
monitor, T_inv, the norm and the records that judge are varied on Dirichlet 0.1 with 10 clients.
Every method gets, for every number of clients, the learning rate that is best on training records
after 2.5 T_inv steps (or fewer with warm-up inversions), searched until it lies between two others;
the paper's, 0.00625, is one of those of second-order methods. The paper's accuracies are those of
the clients' own models (eq. 12): FedRCO's stand beside FedAvg's global model, FedAvg tuned at every
client, and training alone. Fewer rounds than the paper's 1600.
"""

import time
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np

from benchmarks._drawings import save
from benchmarks._fedrco import (
    ABLATIONS,
    ALONE,
    CLIENTS,
    FIRST,
    PARTITIONS,
    SECOND,
    TESTED,
    TUNED,
    Task,
    measured,
)
from benchmarks._fedrco_claims import TABLE_1
from benchmarks._fedrco_compared import COLUMNS, TABLE, add_case, gained_globally
from benchmarks._fedrco_curves import Curve, averaged
from benchmarks._fedrco_kept import Keep
from benchmarks._fedrco_legs import Map, longest_first, mapping, setting_of, went
from benchmarks._fedrco_search import LAST, MOST, START, TRIED, searched
from benchmarks._harness import COUNT, MINUTES, WORKERS, Run, benchmark
from benchmarks._kept import RESUME
from secure_fl.report import figures

SLOWER = 5
"""50 clients get a fifth of the rounds: their rounds cost five times as much."""

Setting: TypeAlias = tuple[str, int, str]


@benchmark("does curvature pay in federated MNIST?")
@click.option(
    "--rounds",
    type=COUNT,
    default=500,
    show_default=True,
    help=f"The most rounds with 10 clients; with 50 one in {SLOWER} of them.",
)
@click.option(
    "--minutes",
    type=MINUTES,
    default=30.0,
    show_default=True,
    help="The rounds are those that fit; with --resume runs are left off then.",
)
@click.option(
    "--seeds", type=COUNT, default=1, show_default=True, help="Of partition and initial weights."
)
@WORKERS
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:N or auto.")
@click.option(
    "--search",
    type=click.Choice(list(TRIED)),
    default="intervals",
    show_default=True,
    help="Trials of 2.5 T_inv; warm-up: short ones, with inversions at steps 10 and 50 everywhere.",
)
@click.option(
    "--clients",
    type=click.Choice([*map(str, CLIENTS)]),
    multiple=True,
    help="These numbers alone.",
)
@RESUME
def main(
    run: Run,
    rounds: int,
    minutes: float,
    seeds: int,
    workers: int,
    device: str,
    search: str,
    clients: tuple[str, ...],
    resume: Path | None,
) -> None:
    """Trains every method for the same rounds on the same partitions."""
    from secure_fl.trainers.networks import choose_device

    run.seeds(*range(seeds))
    device = choose_device(device)
    counts = tuple(map(int, clients)) or CLIENTS
    settings = [each for each in _settings(run.quick) if each[1] in counts]
    run.parameter(search=search)
    keep = None if resume is None else Keep(resume, time.time() + 60 * minutes)
    with mapping(workers) as map_:
        if run.quick:
            rates, rounds = {(method, n): START[method] for method in START for n in counts}, 2
        else:
            rates, seconds = _rates(run, map_, device, counts, search, keep)
            each = seeds * sum(
                seconds[_parent(method), n] / (1 if n == CLIENTS[0] else SLOWER)
                for _, n, method in settings
            )
            if keep is None:
                rounds = min(rounds, max(SLOWER, int((60 * minutes - run.elapsed) / each)))
        length = {CLIENTS[0]: rounds, CLIENTS[1]: max(1, rounds // SLOWER)}
        run.parameter(rounds=rounds, rounds_of_50=length[CLIENTS[1]], device=device, tested=TESTED)
        tasks = [
            Task(
                partition,
                count,
                method,
                length[count],
                device,
                rates[_parent(method), count],
                seed,
                warm_up=search == "warm-up",
            )
            for seed in range(seeds)
            for partition, count, method in settings
        ]
        curves: dict[Setting, list[Curve]] = {setting: [] for setting in settings}
        for task, curve in _curves(run, tasks, map_, keep).items():
            curves[task.partition, task.clients, task.method].append(curve)
    missing = [setting for setting, found in curves.items() if not found]
    for setting in missing:
        del curves[setting]
    if missing:
        run.note(f"{len(missing)} settings ended before their first rounds; go on with --resume")
    _show(run, curves, rates)
    if CLIENTS[0] in counts:
        _save_drawing(run, curves)


def _curves(run: Run, tasks: list[Task], map_: Map, keep: Keep | None) -> dict[Task, Curve]:
    """Every run; with a folder to keep them in as far as the time goes, all of a setting alike."""
    if keep is not None:
        groups: dict[tuple[object, ...], list[Task]] = {}
        for task in tasks:
            groups.setdefault(setting_of(task), []).append(task)
        found = went(run, groups, keep, map_)
        return {task: each.curve for runs in found.values() for task, each in runs.items()}
    curves = {}
    order = longest_first(tasks)
    for task, curve in zip(order, map_(measured, order), strict=True):
        setting = f"{task.partition}, {task.clients} clients, {task.method}, seed {task.seed}"
        run.progress(f"{setting}: {curve.shared[-1]:.1f}" if curve.shared else f"{setting}: -")
        curves[task] = curve
    return curves


def _settings(quick: bool) -> list[Setting]:
    """Partition, number of clients and method of every run."""
    if quick:
        return [(PARTITIONS[0], CLIENTS[0], method) for method in ("FedAvg", "FedPM", "FedRCO")]
    varied = [(PARTITIONS[0], CLIENTS[0], method) for method in ABLATIONS]
    return [
        (partition, count, method)
        for count in CLIENTS
        for partition in PARTITIONS
        for method in (*FIRST, *SECOND)
    ] + varied


Rated: TypeAlias = dict[tuple[str, int], float]
"""Of a method with a number of clients."""


def _rates(
    run: Run,
    map_: Map,
    device: str,
    counts: tuple[int, ...],
    kind: str,
    keep: Keep | None,
) -> tuple[Rated, Rated]:
    """Best rates, and seconds by the clock that a round takes the pool."""
    began = time.perf_counter()
    table = run.table(
        "learning rates tried, training accuracy in percent",
        ["method", "clients", "rate", "accuracy"],
    )
    # The longest first.
    sought = [(method, n) for n in sorted(counts, reverse=True) for method in (*SECOND, *FIRST)]
    some, many = zip(*sought, strict=True)
    # A search that was cut would choose by less: it ends, and the runs begin later.
    endless = None if keep is None else keep.endless()
    size = len(sought)
    options = [device] * size, [kind] * size, ["mnist"] * size, [endless] * size
    found = {}
    for (method, n), search in zip(sought, map_(searched, some, many, *options), strict=True):
        found[method, n] = search
        for rate, score in sorted(search.scores.items()):
            table.add(method, n, rate, score)
        run.progress(f"{method}, {n} clients: rate {search.best:g} of {len(search.scores)}")
        if not search.inside:
            run.note(f"{method}, {n} clients: its best rate is the last one of the {MOST} tried")
    # Processes share the machine: what they spend and what the clock shows are in one ratio.
    spent = sum(TRIED[kind] * len(each.scores) * each.seconds for each in found.values())
    ratio = (time.perf_counter() - began) / spent
    return (
        {key: each.best for key, each in found.items()},
        {key: ratio * each.seconds for key, each in found.items()},
    )


def _parent(method: str) -> str:
    """The method whose rate and pace it shares."""
    return "FedRCO" if method in ABLATIONS else method


# ---------------------------------------------------------------------------------------- results


def _show(run: Run, curves: dict[Setting, list[Curve]], rates: Rated) -> None:
    table = run.table(
        "accuracy in percent after the last round",
        [
            "partition",
            "clients",
            "method",
            "rate",
            "seeds",
            "rounds",
            "global",
            "deviation",
            "personal",
            "global, own mix",
            "personal, own mix",
        ],
    )
    spent = run.table(
        "time and events of these runs",
        [
            "partition",
            "clients",
            "method",
            "seconds",
            "inverting %",
            "rollbacks",
            "resets",
            "inversions",
        ],
    )
    steps = run.table(
        "accuracy by round and second",
        ["partition", "clients", "method", "round", "seconds", "global", "personal"],
    )
    soon = run.table(
        "rounds until the global model has an accuracy",
        ["partition", "clients", "method", "percent", "seeds", "reached it", "round"],
    )
    for setting, found in curves.items():
        mean, method = averaged(found), setting[2]
        last = max(mean.own, default=0)
        personal, personal_mix, global_mix = mean.own.get(last, (None, None, None))
        has_own = _parent(method) in ("FedRCO", ALONE)
        for target in TARGETS:
            met = [each.reached(target) for each in found]
            soon.add(*setting, target, len(found), *_first_rounds(met))
        rate = rates[_parent(method), setting[1]]
        if mean.tuned is not None:
            own, own_mix, _ = mean.tuned
            title = (*setting[:2], TUNED)
            table.add(*title, rate, len(found), len(mean.shared), None, None, own, None, own_mix)
        table.add(
            *setting,
            rate,
            len(found),
            len(mean.shared),
            mean.shared[-1] if mean.shared else None,
            _deviation([each.shared[-1] for each in found if each.shared]),
            personal if has_own else None,
            global_mix,
            personal_mix if has_own else None,
        )
        spent.add(
            *setting,
            mean.seconds[-1] if mean.seconds else None,
            mean.inverting if method not in FIRST else None,
            *mean.counted,
        )
        for number, (own, _, _) in mean.own.items():
            place = number - 1
            steps.add(
                *setting,
                number,
                mean.seconds[place],
                mean.shared[place],
                own if has_own else None,
            )
    _against(run, curves)
    _compare(run, curves)
    run.note(f"accuracies on the first {TESTED} test records; means over the seeds")
    run.note(
        f"rates: best mean accuracy of the global model on {TESTED} training records in the last"
        f" {LAST} rounds of a trial, Dirichlet 0.1, seed 0, by number of clients; FedRCO's variants"
        f" take its; {ALONE}: of the own models on their mixes"
    )
    run.note(
        "own mix: test records weighted to the client's mix of classes; personal accuracies and"
        " those on the own mix are means over the participants of the round"
    )
    run.note("seconds: of the processor (on a graphics card: of the clock), measuring left out")
    run.note(
        f"{TUNED}: its global model after one more round's steps at every client of the round;"
        f" {ALONE}: no averaging, its global model is the initial one"
    )
    run.note(
        "LocalNewton: fresh factors every round, no monitor; FedPM preconditions by input factors"
        " alone"
    )


TARGETS = (70, 80, 90)
"""In percent."""


def _first_rounds(met: list[int | None]) -> tuple[int, float | None]:
    """How many runs reached it, and their mean round."""
    rounds = [each for each in met if each is not None]
    return len(rounds), float(np.mean(rounds)) if rounds else None


def _deviation(values: list[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _against(run: Run, curves: dict[Setting, list[Curve]]) -> None:
    """Every second-order method's global model against FedAvg's, seed by seed."""
    table = run.table(
        "global model against FedAvg's, in points",
        ["partition", "clients", "method", "seeds", "mean difference", "t", "p"],
    )
    for (partition, count, method), found in curves.items():
        if method in SECOND and (baseline := curves.get((partition, count, "FedAvg"))):
            each = gained_globally(found, baseline)
            if each is not None:
                table.add(partition, count, method, each.seeds, each.mean, each.t, each.p)
    run.note("p: two-sided paired t-test over the seeds; empty for one seed or equal differences")


def _compare(run: Run, curves: dict[Setting, list[Curve]]) -> None:
    """FedRCO's own models beside its rivals, on the own mixes."""
    cases = run.table(TABLE, COLUMNS)
    for partition, count, method in curves:
        if method != "FedRCO":
            continue
        for claim in TABLE_1:
            rival = curves.get((partition, count, claim.runs))
            if rival is not None:
                both = curves[partition, count, method], claim.rival, rival
                add_case(cases, claim.number, f"{partition}, {count} clients", *both)


def _save_drawing(run: Run, curves: dict[Setting, list[Curve]]) -> None:
    """Global accuracy with 10 clients against rounds and seconds."""
    shown = (*FIRST[:1], "FedAdam", *SECOND)
    panels = [(p, by_second) for p in PARTITIONS for by_second in (False, True)]

    def draw(axes: Any) -> None:
        for each, (partition, by_second) in zip(axes, panels, strict=True):
            averages = {
                method: averaged(found)
                for method in shown
                if (found := curves.get((partition, CLIENTS[0], method)))
            }
            courses = {
                method: (
                    curve.seconds if by_second else range(1, len(curve.shared) + 1),
                    curve.shared,
                )
                for method, curve in averages.items()
            }
            figures.draw_courses(
                each,
                courses,
                xlabel="seconds of training" if by_second else "round",
                ylabel="accuracy of the global model, %",
                title=partition,
            )

    save(run, "fedrco", draw, width=18.0, height=4.2, panels=len(panels))


if __name__ == "__main__":
    main()
