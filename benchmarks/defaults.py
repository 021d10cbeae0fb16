"""What a first run gives: every method and the head, everything at its default.

Ten clients at Dirichlet 0.5. Beside them, on the pooled records, scikit-learn's logistic
regression, nearest neighbour and random forest at their defaults, on features as they are and
standardised, the better of both. The head is also shown on features as they are (`--scaling none`),
on features that were scaled to [0, 1] by hand, and with what `securefl tune` finds.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks._data import LIBSVM_FEATURES, Split, libsvm, mnist, newsgroups, shared_data
from benchmarks._harness import Run, benchmark
from secure_fl.data import Dataset, Scaling, dirichlet
from secure_fl.data.samples import digits_split
from secure_fl.data.scaling import ranges_of
from secure_fl.errors import DivergedError, InputError
from secure_fl.trainers import registry
from secure_fl.trainers.head_tuning import best_of, tune_head
from secure_fl.trainers.methods.kahm import KAHMHeads
from secure_fl.trainers.settings import Settings
from secure_fl.training.preparing import DEFAULT_SCALING, chosen_head, scalings_for
from secure_fl.training.settling import open_ended
from secure_fl.training.train import train

CLIENTS, ALPHA = 10, 0.5
WIDE = {"a9a": 123, "w8a": 300}
"""Further sets of LIBSVM's collection, with a test part, and their d."""
SMALL = ("digits", "wine", "breast_cancer", "iris")
SETS = (*SMALL, *WIDE, "phishing", "pendigits", "satimage", "usps", "mnist", "newsgroups")
QUICK_SETS, QUICK_METHODS = ("wine", "iris"), ("fednewton-head", "fedavg")
QUICK_RECORDS = 300
NEAR = 2.0
"""Points below the better pooled method within which a set counts as reached."""
NEEDS_A_PROMISE = {"kahm-record-private", *registry.hiding_records()}


def _halves(X: Any, y: Any, classes: Sequence[Any], source: str, seed: int) -> Split:
    """A quarter of a set that has no test part."""
    order = np.random.default_rng(seed).permutation(len(y))
    test, rest = np.split(order, [len(y) // 4])
    X = np.asarray(X, np.float32)
    y = np.asarray(y, np.int64)
    return Split(X[rest], y[rest], X[test], y[test], tuple(map(str, classes)), source)


def load(name: str, seed: int) -> Split:
    """One of SETS, as its source has it: nothing is scaled.

    Raises:
        DataMissingError: the files are absent.
    """
    from sklearn import datasets

    if name == "digits":
        train_part, test_part = digits_split(np.random.default_rng(seed))
        found = train_part.X * np.float32(16), train_part.y, test_part.X * np.float32(16)
        return Split(*found, test_part.y, train_part.classes, "scikit-learn's digits")
    if name in SMALL:
        bunch = getattr(datasets, f"load_{name}")()
        return _halves(bunch.data, bunch.target, bunch.target_names, f"scikit-learn's {name}", seed)
    if name == "mnist":
        images = mnist()
        full = np.float32(255)
        return replace(images, X_train=images.X_train * full, X_test=images.X_test * full)
    if name == "newsgroups":
        return newsgroups(scale=1.0)
    if name in LIBSVM_FEATURES:
        return libsvm(name)
    width = WIDE.get(name, 68)
    files = [f"{name}.bz2"] + ([f"{name}.t.bz2"] if name in WIDE else [])
    (X, y), *more = [
        datasets.load_svmlight_file(str(shared_data("libsvm", each)), n_features=width)
        for each in files
    ]
    classes, codes = np.unique(y, return_inverse=True)
    source = f"{name} of LIBSVM's collection"
    if not more:
        return _halves(X.toarray(), codes, classes, source, seed)
    ((X_test, y_test),) = more
    dense = [each.toarray().astype(np.float32) for each in (X, X_test)]
    return Split(
        dense[0],
        codes,
        dense[1],
        np.searchsorted(classes, y_test),
        tuple(map(str, classes)),
        source,
    )


def drawn(split: Split, records: int, seed: int) -> Split:
    """At most so many training and test records."""
    rng = np.random.default_rng([seed, 1])
    rows = rng.permutation(len(split.y_train))[:records]
    tests = rng.permutation(len(split.y_test))[:records]
    return split.rows(rows, tests)


def clients_of(split: Split, seed: int) -> list[Dataset]:
    """The training records over the clients."""
    rng = np.random.default_rng([seed, 2])
    parts = dirichlet(split.y_train, CLIENTS, ALPHA, rng)
    return [
        Dataset(split.X_train[rows], split.y_train[rows], split.classes, f"c{i}")
        for i, rows in enumerate(parts)
        if len(rows)
    ]


def pooled(split: Split) -> dict[str, float]:
    """Test accuracies of scikit-learn's methods at their defaults, in percent."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(split.X_train)
    spaces = [
        (split.X_train, split.X_test),
        (scaler.transform(split.X_train), scaler.transform(split.X_test)),
    ]
    makers: dict[str, Callable[[], Any]] = {
        "logistic": LogisticRegression,
        "1-NN": lambda: KNeighborsClassifier(1),
        "forest": lambda: RandomForestClassifier(random_state=0),
    }
    found = {}
    for name, make in makers.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the default number of iterations is what it is
            found[name] = 100 * max(
                make().fit(X, split.y_train).score(X_test, split.y_test) for X, X_test in spaces
            )
    return found


def accuracy(
    split: Split, clients: Sequence[Dataset], method: Settings, scaling: Any, seed: int
) -> float | str:
    """Of one run on the test records, in percent; or what went wrong, in a word.

    Methods of rounds go on until the objective stops falling, as `securefl train` has it.
    """
    settle = method.by_rounds()
    try:
        fitted = train(clients, method, scaling=scaling, seed=seed, settle=settle)
    except DivergedError:
        return "diverged"
    except InputError:
        return "refused"
    labels: NDArray[Any] = np.array(split.classes)[split.y_test]
    return 100 * float(np.mean(fitted.predict(split.X_test) == labels))


def default_methods() -> list[Settings]:
    """Every method of models that runs without a promise, at its default."""
    found = []
    for each in registry.methods("linear", "network"):
        if each.method not in NEEDS_A_PROMISE:
            found.append(open_ended(registry.make(each.method, each.family, {})))
    return found


def tuned(clients: Sequence[Dataset]) -> tuple[KAHMHeads, Scaling]:
    """The head and the scaling that `securefl tune` finds, with nothing said to it."""
    scalings = scalings_for(clients, DEFAULT_SCALING, 1.0, KAHMHeads())
    best = best_of(tune_head(clients, scalings))
    return chosen_head(KAHMHeads(), best.choice), scalings[best.scaling]


def head_accuracies(
    split: Split, clients: Sequence[Dataset], seed: int, *, tune: bool
) -> dict[str, float | str]:
    """Of the head by column of the table."""
    head = registry.make("kahm", "heads", {})
    spaces: dict[str, Scaling | str] = {
        "raw": "none",
        "by hand": ranges_of(split.X_train),
        "default": DEFAULT_SCALING,
    }
    found = {
        name: accuracy(split, clients, head, scaling, seed) for name, scaling in spaces.items()
    }
    if tune:
        found["tuned"] = accuracy(split, clients, *tuned(clients), seed)
    return found


def mean_of(values: Sequence[float | str]) -> float | str:
    """The mean, or the first word among them that says what went wrong."""
    words = [each for each in values if isinstance(each, str)]
    return words[0] if words else float(np.mean(np.array(values, np.float64)))


def reached(rows: Sequence[dict[str, Any]], column: str) -> list[Any] | None:
    """How one column compares with the better pooled method, over the sets of one seed or more.

    Returns:
        Mean gap, sets within NEAR, sets, worst gap, and the sets below their most frequent class;
        None where a run gave no number.
    """
    if any(isinstance(row[column], str) for row in rows):
        return None
    gaps = [row[column] - row["better"] for row in rows]
    below = [row["set"] for row in rows if row[column] < row["majority"]]
    within = sum(gap >= -NEAR for gap in gaps)
    return [float(np.mean(gaps)), within, len(gaps), min(gaps), " ".join(below) or "none"]


def _seeds(_: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected whole numbers with commas") from None


@benchmark(
    "what does a first run give, everything at its default?",
    click.option("--sets", help="Data sets, with commas; default: all."),
    click.option(
        "--methods", help="Methods, with commas; 'kahm' alone for the head; default: all."
    ),
    click.option("--records", default=1000, show_default=True, help="Of training and of testing."),
    click.option(
        "--seeds",
        default="0",
        show_default=True,
        callback=_seeds,
        help="Of records and their division over clients, with commas.",
    ),
    click.option("--tuned", "tune", is_flag=True, help="Also the head as `securefl tune` has it."),
)
def main(
    run: Run,
    sets: str | None,
    methods: str | None,
    records: int,
    seeds: tuple[int, ...],
    tune: bool,
) -> None:
    """Every method and the head, everything at its default."""
    run.seeds(*seeds)
    chosen = tuple(sets.split(",")) if sets else QUICK_SETS if run.quick else SETS
    wanted = methods.split(",") if methods else QUICK_METHODS if run.quick else None
    records = min(records, QUICK_RECORDS) if run.quick else records
    run.parameter(clients=CLIENTS, alpha=ALPHA, records=records, scaling=DEFAULT_SCALING)
    models = [each for each in default_methods() if wanted is None or each.method in wanted]
    rows: list[dict[str, Any]] = []
    others: dict[tuple[str, str], list[float | str]] = defaultdict(list)
    for seed in seeds:
        for name in chosen:
            split = drawn(load(name, seed), records, seed)
            clients = clients_of(split, seed)
            run.progress(f"seed {seed}, {name}: {len(split.y_train)} records")
            majority = 100 * float(np.mean(split.y_test == np.bincount(split.y_train).argmax()))
            found = head_accuracies(split, clients, seed, tune=tune)
            facts: dict[str, Any] = {"seed": seed, "set": name, "majority": majority}
            facts |= {**pooled(split), **found}
            rows.append(facts | {"better": max(facts["logistic"], facts["1-NN"])})
            for each in models:
                run.progress(f"seed {seed}, {name}: {each.method}")
                key = f"{each.method} ({each.family})", name
                others[key].append(accuracy(split, clients, each, DEFAULT_SCALING, seed))
    _show_heads(run, rows, seeds, chosen)
    table = run.table("the other methods, %, mean over the seeds", ["method", *chosen])
    for method in dict.fromkeys(method for method, _ in others):
        table.add(method, *(mean_of(others[method, name]) for name in chosen))
    run.note("pooled methods: the better of features as they are and standardised ones")


def _show_heads(
    run: Run, rows: Sequence[dict[str, Any]], seeds: Sequence[int], chosen: Sequence[str]
) -> None:
    columns = list(rows[0])
    table = run.table("the head, % of test records", columns)
    for row in rows:
        table.add(*row.values())
    means = []
    for name in chosen:
        own = [row for row in rows if row["set"] == name]
        mean: dict[str, Any] = {c: mean_of([row[c] for row in own]) for c in columns[2:]}
        means.append({"set": name, **mean})
    if len(seeds) > 1:
        table = run.table("the head, means over the seeds, %", columns[1:])
        for row in means:
            table.add(*row.values())
    compared = ["seed", "head", "mean gap", f"within {NEAR:g} points", "sets", "worst gap", "below"]
    table = run.table("the head less the better of logistic regression and 1-NN, points", compared)
    for column in [each for each in ("default", "tuned") if each in columns]:
        parts: list[tuple[Any, Sequence[dict[str, Any]]]] = [
            (seed, [row for row in rows if row["seed"] == seed]) for seed in seeds
        ]
        for label, part in [*parts, ("means", means)] if len(seeds) > 1 else parts:
            result = reached(part, column)
            if result is not None:
                table.add(label, column, *result)
    run.note(
        "better: of logistic regression and 1-NN; below: sets on which the head is below the most"
        " frequent class"
    )


if __name__ == "__main__":
    main()
