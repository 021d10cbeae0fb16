"""What do networks lose when every record of every client is hidden, and which settings decide it?

MNIST in label shards (10 clients, 2 shards each, 3,000 records a client), by DP-SGD with each
client's own books, and without privacy. The table is made of one half of the training records and
of the test records. What the columns but the first chose (rate, clip, momentum, rounds), they chose
on the other half alone, anew for each epsilon, so no epsilon of the table includes it; `--search`
repeats most of those tries. The regularisers' weights are from the middle of the paper's grids.

- `few rounds`: the settings of this benchmark before: 32 Fourier features that learn, 10 rounds of
  10 local steps, one batch, rate and clip whatever epsilon is; the last round's parameters, and the
  rounds' average;
- `FedAvg`, `FedAvgR`: the same features, rounds of one step, the batch by `economical_batch`, the
  chosen settings, the rounds' average; 500 rounds without privacy, where steps cost nothing;
- `cnn`: FedAvg in that way for a convolutional network with group normalisation.

The default run takes about 13 minutes of processor, the search about 10, `--quick` half a minute.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import click

from benchmarks._harness import COUNT, Run, benchmark, spread
from benchmarks._private_networks import CLIENTS, DELTA, ETA, Recipe, Trial, trial
from benchmarks._private_search import NETWORKS, search

EPSILONS = (1.0, 3.0, 8.0, None)
BEFORE = Recipe("fourier", 10, 10, rate=8.0, clip=1.0, batch=64, momentum=0.5)
CHOSEN: dict[str, dict[float | None, Recipe]] = {
    "FedAvg": {
        1.0: Recipe("fourier", 100, 1, rate=160.0, clip=0.1),
        3.0: Recipe("fourier", 100, 1, rate=8.0, clip=1.0, beta=0.7),
        8.0: Recipe("fourier", 100, 1, rate=16.0, clip=1.0, beta=0.7),
        None: Recipe("fourier", 500, 1, rate=4.0, clip=1.0),
    },
    "FedAvgR": {
        1.0: Recipe("fourier", 100, 1, rate=160.0, clip=0.1, regularised=True),
        3.0: Recipe("fourier", 100, 1, rate=32.0, clip=1.0, regularised=True),
        8.0: Recipe("fourier", 100, 1, rate=32.0, clip=1.0, regularised=True),
        None: Recipe("fourier", 500, 1, rate=4.0, clip=1.0, regularised=True),
    },
    "cnn": {
        1.0: Recipe("cnn", 100, 1, rate=20.0, clip=0.1),
        3.0: Recipe("cnn", 100, 1, rate=1.0, clip=1.0, beta=0.7),
        8.0: Recipe("cnn", 200, 1, rate=1.0, clip=1.0, beta=0.7, batch=200),
        None: Recipe("cnn", 500, 1, rate=0.05, clip=1.0, beta=0.7),
    },
}
"""What tries on the first half found best; FedAvgR has no momentum of the server."""


def _recipes(epsilon: float | None) -> dict[str, Recipe]:
    return {"few rounds": BEFORE} | {name: chosen[epsilon] for name, chosen in CHOSEN.items()}


NAMES = ("few rounds", "FedAvg", "FedAvgR", "cnn")


@benchmark("how accurate are federated networks with record-level privacy on MNIST?")
@click.option(
    "--seeds", type=COUNT, default=1, show_default=True, help="Partitions and initial weights."
)
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="These columns.")
@click.option("--workers", type=COUNT, default=1, show_default=True, help="Processes.")
@click.option("--search", "searching", is_flag=True, help="Choose settings; no table.")
def main(run: Run, seeds: int, only: tuple[str, ...], workers: int, searching: bool) -> None:
    """Trains all columns at every epsilon and without privacy."""
    run.parameter(clients=CLIENTS, delta=DELTA, averaging=ETA)
    if searching:
        _search(run)
        return
    epsilons: tuple[float | None, ...] = (8.0, None) if run.quick else EPSILONS
    tasks = []
    for epsilon in epsilons:
        for name, recipe in _recipes(epsilon).items():
            if only and name not in only:
                continue
            if run.quick:
                recipe = replace(recipe, rounds=2, batch=64)
            tasks += [
                (name, recipe, epsilon, s) for s in run.seeds(*range(1 if run.quick else seeds))
            ]
    found: dict[tuple[str, float | None], list[Trial]] = {}
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        running = [pool.submit(trial, *task[1:]) for task in tasks]
        for (name, _, epsilon, seed), future in zip(tasks, running, strict=True):
            found.setdefault((name, epsilon), []).append(future.result())
            run.progress(f"{name}, epsilon {epsilon}, seed {seed}: {found[name, epsilon][-1]}")
    _show(run, found, epsilons)


def _search(run: Run) -> None:
    columns = [
        "network",
        "epsilon per record",
        "rounds",
        "rate",
        "clip",
        "momentum",
        "copies",
        "last",
        "average",
    ]
    table = run.table("tries, accuracy in percent on held-out records of the first half", columns)
    for network in NETWORKS:
        for epsilon in EPSILONS:
            for each in search(network, epsilon):
                r = each.recipe
                cells = (r.rounds, r.rate, r.clip, r.beta, r.copies, each.last, each.averaged)
                table.add(network, _named(epsilon), *cells)
                run.progress(str(table.rows[-1]))
    run.note(f"{len(table.rows)} tries, none on records of the table")


def _named(epsilon: float | None) -> str:
    return "none" if epsilon is None else f"{epsilon:g}"


def _show(
    run: Run, found: dict[tuple[str, float | None], list[Trial]], epsilons: tuple[float | None, ...]
) -> None:
    accuracies = run.table(
        "test accuracy in percent",
        ["epsilon per record", "few rounds", "few rounds, averaged", *NAMES[1:]],
    )
    facts = ("epsilon per record", "run", "spent", "noise multiplier", "batch", "last", "seconds")
    costs = run.table("what a run spent and took", facts)
    for epsilon in epsilons:
        row = {name: found.get((name, epsilon)) for name in NAMES}
        before = row["few rounds"]
        cells = [before and spread([t.last for t in before], 2)]
        cells += [each and spread([t.averaged for t in each], 2) for each in row.values()]
        accuracies.add(_named(epsilon), *cells)
        for name, trials in row.items():
            if trials:
                costs.add(
                    _named(epsilon),
                    name,
                    max(t.spent for t in trials),
                    max(t.multiplier for t in trials),
                    max(t.batch for t in trials),
                    spread([t.last for t in trials], 2),
                    sum(t.seconds for t in trials) / len(trials),
                )
    run.note(
        f"epsilon at delta {DELTA:g} per record (its contribution added or removed, how many there"
        " are is public); spent: the largest of a client's books; noise: largest multiplier"
    )
    run.note("seconds are of processor time, of all clients of a run, calibration included")
    run.note("last: accuracy of the last round; the first table has the rounds' average")


if __name__ == "__main__":
    main()
