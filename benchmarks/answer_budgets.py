"""At how many contributors does a budget for answers become useful?

The rule `votes` on 20 Newsgroups: heads of the records themselves, whose answers alone have noise.
For a number of queries and an epsilon per record added or removed, the noise is the least that
keeps them; the accuracy is that of all test queries under it, as an estimate for any such number of
them. All contributors are there, so that a sum has more noise than is counted: parts are sized for
drop-outs and a third that tells its own. Beside it the rules without noise, and noise on the codes
themselves, which the smallest of all would be taken of. Noise is drawn as continuous by the
experiment's generator; on the grid it is the same to a millionth.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._federations import cells_of
from benchmarks._harness import Run, Split, benchmark, newsgroups, spread
from kahm import classify
from secure_fl.data import dirichlet
from secure_fl.federation.privacy import calibrate
from secure_fl.masked.votes import VoteCoding, majority, vote_counts

DELTA = 1e-5
EPSILONS = (1.0, 3.0, 8.0)
QUERIES = (10, 100, 1000)
ALPHAS = (5.0, 1.0)
BATCH = 100
CODES = 255.0
"""Steps that one record may move a class's 8-bit code."""

Array = NDArray[np.float64]


def noisy_votes(values: Array, noise: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Classes of most noisy votes, all contributors present.

    Args:
        values: measures, shape (queries, contributors, classes).
        noise: that is surely in a sum, in votes.
        rng: of the noise.
    """
    queries, clients, classes = values.shape
    coding = VoteCoding(classes=classes, contributors=clients, noise=noise)
    spread_of_all = noise * math.sqrt(clients / coding.parts)
    return (vote_counts(values) + rng.normal(0, spread_of_all, (queries, classes))).argmax(axis=1)


def noisy_codes(values: Array, noise: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Classes of the smallest of all codes, each with noise of its contributor, in steps."""
    codes = values * CODES
    return np.asarray(classify(codes + rng.normal(0, noise, codes.shape)))


def rows_of(
    values: Array, y: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[tuple[str, float]]:
    """Accuracy in percent of every rule and budget."""

    def right(found: NDArray[Any]) -> float:
        return 100.0 * float(np.mean(found == y))

    yield "smallest code, no noise", right(classify(values))
    yield "votes, no noise", right(majority(values))
    for queries in QUERIES:
        for epsilon in EPSILONS:
            # One vote goes from a class to another: sqrt(2).
            noise = calibrate(epsilon, DELTA, queries) * math.sqrt(2)
            name = f"votes, {queries:,} queries at epsilon {epsilon:g}"
            yield name, right(noisy_votes(values, noise, rng))
    noise = calibrate(EPSILONS[-1], DELTA, QUERIES[0]) * CODES
    name = f"noise on codes, {QUERIES[0]} queries at epsilon {EPSILONS[-1]:g}"
    yield name, right(noisy_codes(values, noise, rng))


def _measures(data: Split, clients: int, alpha: float, seed: int) -> Array:
    parts = dirichlet(data.y_train, clients, alpha, np.random.default_rng(seed))
    cells = cells_of(data.X_train, data.y_train, parts, len(data.classes), BATCH)
    found: Array = cells.measures(cells.fit(), data.X_test)
    return found


@benchmark("at how many contributors does a budget for answers become useful?")
def main(run: Run) -> None:
    """Accuracy of noisy votes by contributors, queries and epsilon per record."""
    data = newsgroups()
    seeds = run.seeds(0) if run.quick else run.seeds(0, 1, 2)
    numbers = (10, 100) if run.quick else (10, 30, 100, 300)
    run.parameter(delta=DELTA, batch_size=BATCH, contributors=list(numbers), alphas=list(ALPHAS))
    for alpha in ALPHAS[:1] if run.quick else ALPHAS:
        columns: dict[int, dict[str, list[float]]] = {}
        for clients in numbers:
            for seed in seeds:
                run.progress(f"alpha {alpha:g}, {clients} contributors, seed {seed}")
                values = _measures(data, clients, alpha, seed)
                rng = np.random.default_rng([seed, clients])
                for name, score in rows_of(values, data.y_test, rng):
                    columns.setdefault(clients, {}).setdefault(name, []).append(score)
        table = run.table(
            f"test accuracy %, {data.source}, Dirichlet {alpha:g}, delta {DELTA:g},"
            " per record added or removed",
            ["answers", *(f"{clients} contributors" for clients in numbers)],
        )
        for name in columns[numbers[0]]:
            table.add(name, *(spread(columns[clients][name]) for clients in numbers))


if __name__ == "__main__":
    main()
