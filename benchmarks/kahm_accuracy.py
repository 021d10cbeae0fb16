"""How accurate is a federation of heads beside pooled classifiers, and what do integer codes cost?

20 Newsgroups (100 clients) and handwritten digits (10 clients) under Dirichlet label skew, as in
kahm.txt table 1, beside federated linear heads on the same features and partitions; and its tables
2, 7 and 9 in shape on long-tailed CIFAR-10 (20 clients).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks._federations import Cells, cells_of
from benchmarks._harness import (
    Run,
    Split,
    benchmark,
    cifar10_long_tail,
    digits,
    newsgroups,
    spread,
)
from fhe.code import CodeRange, encode_measures, range_from_public_measures
from kahm import classify
from secure_fl.data import Dataset, dirichlet
from secure_fl.trainers.registry import make
from secure_fl.training.train import train

ALPHAS = (5.0, 1.0, 0.1)
BITS = (3, 4, 5, 6, 8, 12, 16)
PUBLIC_PER_CLASS = 25
"""Records of a class taken as public, which then belong to no client, to choose a code range."""
REGULARISATION = (0.01, 0.03, 0.1, 1.0)
"""Inverse strengths tried by logistic regression's three-fold cross-validation."""

VARIANTS = (
    ("federation", 100, 1.0),
    ("federation, N_b = 20", 20, 1.0),
    ("federation, features divided by 10", 100, 0.1),
    ("federation, N_b = 20, features divided by 10", 20, 0.1),
)
"""Name, batch size and public factor on the features: none of them touches the privacy story."""

IntArray = NDArray[np.int64]


def _accuracy(values: NDArray[Any], y: IntArray) -> float:
    """Percent of queries whose class the global rule finds; values (queries, clients, classes)."""
    return 100.0 * float(np.mean(classify(values) == y))


def _scaled(data: Split, factor: float) -> Split:
    by = np.float32(factor)
    return replace(data, X_train=data.X_train * by, X_test=data.X_test * by)


def _federation(data: Split, clients: int, alpha: float, seed: int, batch_size: int) -> Cells:
    parts = dirichlet(data.y_train, clients, alpha, np.random.default_rng(seed))
    return cells_of(data.X_train, data.y_train, parts, len(data.classes), batch_size)


def _pooled(data: Split, batch_size: int) -> Cells:
    everyone = (np.arange(len(data.y_train)),)
    return cells_of(data.X_train, data.y_train, everyone, len(data.classes), batch_size)


def _peers(data: Split) -> Iterator[tuple[str, float]]:
    """Classifiers that see the pooled features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

    logistic = GridSearchCV(LogisticRegression(max_iter=500), {"C": list(REGULARISATION)}, cv=3)
    for name, model in (
        ("pooled logistic regression", logistic),
        ("pooled 1-nearest neighbour", KNeighborsClassifier(1, algorithm="brute")),
        ("pooled class means", NearestCentroid()),
    ):
        fitted = model.fit(data.X_train, data.y_train)
        yield name, 100.0 * float(fitted.score(data.X_test, data.y_test))


def _split_public(data: Split, per_class: int) -> tuple[Split, Split]:
    """The first records of each class as public data, and the data set without them.

    The public part's test records are its second half, so that measures on them are those of
    queries the public heads have not seen.
    """
    y = data.y_train
    public = np.concatenate([np.flatnonzero(y == c)[:per_class] for c in range(len(data.classes))])
    half = np.zeros(len(y), bool)
    half[public[::2]] = True
    other = np.zeros(len(y), bool)
    other[public[1::2]] = True
    rest = ~(half | other)
    sample = Split(
        data.X_train[half], y[half], data.X_train[other], y[other], data.classes, "public"
    )
    private = Split(
        data.X_train[rest], y[rest], data.X_test, data.y_test, data.classes, data.source
    )
    return sample, private


def _public_range(sample: Split) -> CodeRange:
    cells = _pooled(sample, 1)
    return range_from_public_measures(cells.measures(cells.fit(), sample.X_test))


def _coded(values: NDArray[Any], bits: int, code_range: CodeRange) -> NDArray[Any]:
    return encode_measures(values, bits, code_range)


def _skewed(
    run: Run, data: Split, clients: int, seeds: tuple[int, ...], bits: tuple[int, ...]
) -> None:
    """One table: rows are methods, columns are alphas."""
    title = f"test accuracy %, {data.source}, {clients} clients, N_b = 100"
    table = run.table(title, ["method", *(f"alpha {alpha:g}" for alpha in ALPHAS)])
    sample, private = _split_public(data, PUBLIC_PER_CLASS)
    code_range = _public_range(sample)
    rows: dict[str, dict[float, list[float]]] = {}

    def record(name: str, alpha: float, value: float) -> None:
        rows.setdefault(name, {}).setdefault(alpha, []).append(value)

    for alpha in ALPHAS:
        for seed in seeds:
            run.progress(f"alpha {alpha:g}, seed {seed}")
            for name, batch_size, factor in VARIANTS:
                scaled = _scaled(data, factor)
                cells = _federation(scaled, clients, alpha, seed, batch_size)
                values = cells.measures(cells.fit(), scaled.X_test)
                record(name, alpha, _accuracy(values, data.y_test))
                if name == "federation":
                    record("machines of the federation", alpha, len(cells.batches))
                    for p in bits:
                        codes = _coded(values, p, CodeRange())
                        record(f"{p}-bit codes on [0, 1]", alpha, _accuracy(codes, data.y_test))
            cells = _federation(private, clients, alpha, seed, 100)
            values = cells.measures(cells.fit(), data.X_test)
            for p in bits:
                codes = _coded(values, p, code_range)
                record(f"{p}-bit codes on the public range", alpha, _accuracy(codes, data.y_test))
    for name, found in rows.items():
        table.add(name, *(spread(found[alpha]) for alpha in ALPHAS))
    pooled = _pooled(data, 100)
    score = _accuracy(pooled.measures(pooled.fit(), data.X_test), data.y_test)
    for name, value in (("pooled KAHM", score), *_peers(data)):
        table.add(name, *[f"{value:.1f}"] * len(ALPHAS))
    run.note(
        f"{data.source}: public range [{code_range.low:.3f}, {code_range.high:.3f}] from"
        f" {PUBLIC_PER_CLASS} public records a class, which no client holds in those rows"
    )


LINEAR = {
    "FedAvg, softmax loss, 50 rounds": ("fedavg", {"rounds": 50}),
    "FedNewton, squared loss, 10 rounds": ("fednewton", {}),
    "pooled ridge regression, one sum (krr)": ("krr", {}),
}
"""Linear heads on the same features, at the defaults of their methods otherwise."""


def _linear_heads(run: Run, data: Split, clients: int, seeds: tuple[int, ...]) -> None:
    """A linear head of the same clients, by rounds of sums; features scaled by all moments."""
    title = f"test accuracy %, {data.source}, {clients} clients, a federated linear head"
    table = run.table(title, ["method", *(f"alpha {alpha:g}" for alpha in ALPHAS)])
    found: dict[str, list[list[float]]] = {name: [[] for _ in ALPHAS] for name in LINEAR}
    for place, alpha in enumerate(ALPHAS):
        for seed in seeds:
            run.progress(f"linear heads, alpha {alpha:g}, seed {seed}")
            for name, score in _linear(data, clients, alpha, seed):
                found[name][place].append(score)
    for name, scores in found.items():
        table.add(name, *(spread(each) for each in scores))


def _linear(data: Split, clients: int, alpha: float, seed: int) -> Iterator[tuple[str, float]]:
    parts = dirichlet(data.y_train, clients, alpha, np.random.default_rng(seed))
    own = [
        Dataset(data.X_train[part], data.y_train[part], data.classes, f"c{i:03d}")
        for i, part in enumerate(parts)
    ]
    for name, (method, settings) in LINEAR.items():
        fitted = train(own, make(method, "linear", settings), scaling="moments", seed=seed)
        right = fitted.predict(data.X_test) == np.array(data.classes)[data.y_test]
        yield name, 100.0 * float(np.mean(right))


LONG_TAILED_CLIENTS, LONG_TAILED_ALPHA = 20, 0.5


def _long_tailed(run: Run, seeds: tuple[int, ...], rhos: tuple[float, ...]) -> None:
    """Batch sizes and measures on long-tailed images, beside linear heads and pooled peers."""
    table = run.table(
        f"test accuracy %, long-tailed CIFAR-10, {LONG_TAILED_CLIENTS} clients,"
        f" alpha {LONG_TAILED_ALPHA}",
        ["method", *(f"rho {rho:g}" for rho in rhos)],
    )
    columns: dict[str, list[str]] = {}
    for rho in rhos:
        data = cifar10_long_tail(rho)
        scores: dict[str, list[float]] = {}
        for seed in seeds:
            run.progress(f"long-tailed CIFAR-10, rho {rho:g}, seed {seed}")
            for batch_size in (20, 50, 100):
                cells = _federation(data, LONG_TAILED_CLIENTS, LONG_TAILED_ALPHA, seed, batch_size)
                bank = cells.fit()
                measures = ("folding", "product", "minimum", "maximum")
                for measure in measures if batch_size == 20 else measures[:1]:
                    values = cells.measures(bank, data.X_test, measure)
                    name = f"federation, N_b = {batch_size}, {measure}"
                    scores.setdefault(name, []).append(_accuracy(values, data.y_test))
            for name, score in _linear(data, LONG_TAILED_CLIENTS, LONG_TAILED_ALPHA, seed):
                scores.setdefault(f"a federated linear head: {name}", []).append(score)
        for name, found in scores.items():
            columns.setdefault(name, []).append(spread(found))
        run.progress(f"long-tailed CIFAR-10, rho {rho:g}, pooled peers")
        for name, value in _peers(data):
            columns.setdefault(name, []).append(f"{value:.1f}")
    for name, shown in columns.items():
        table.add(name, *shown)
    run.note("the CIFAR-10 images came from a JPEG copy, not the lossless original")


@benchmark(
    "how accurate is a federation of heads, in the clear and as integer codes?",
    click.option("--linear-only", is_flag=True, help="The federated linear heads alone."),
)
def main(run: Run, linear_only: bool) -> None:
    """Accuracy of the federation beside linear heads and pooled classifiers, and of its codes."""
    seeds = run.seeds(0) if run.quick else run.seeds(0, 1, 2)
    bits = (4, 8, 12) if run.quick else BITS
    run.parameter(bits=list(bits), alphas=list(ALPHAS))
    for data, clients in ((newsgroups(), 100), (digits(np.random.default_rng(0)), 10)):
        if not linear_only:
            _skewed(run, data, clients, seeds, bits)
        _linear_heads(run, data, clients, seeds)
    if linear_only:
        run.note("the linear heads alone (--linear-only)")
        return
    if run.quick:
        run.note("long-tailed CIFAR-10 is left out of --quick")
    else:
        _long_tailed(run, seeds, (10.0, 50.0, 100.0))
    run.note("XGLUE-NC, CIFAR-100-LT and the paper's larger encoders: not run here (no data)")


if __name__ == "__main__":
    main()
