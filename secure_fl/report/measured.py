"""How good a run's answers are on a labelled test file, and whether its codes fit the measures.

Only totals leave this module: counts over all test records, never one of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fhe import CodeRange, encode_measures
from kahm import classify
from secure_fl.data import ReadOptions
from secure_fl.errors import InputError
from secure_fl.heads.codes import threshold_code
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.queries import read_queries
from secure_fl.heads.run_folder import all_measures, load_run

BITS = (4, 5, 6, 8, 10, 12, 14, 16)
BINS = 40
CHUNK = 4096

Array = NDArray[Any]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """Totals over the test records.

    Attributes:
        records: of the test file.
        clients: whose heads were asked.
        exact: accuracy of the rule on exact measures, in [0, 1].
        coded: accuracy on the federation's integer codes, as the evaluator computes it.
        answered: share of records whose codes do not lie above the threshold of "unknown"; 1
            without one. Accuracies and confusion are those of all records' classes.
        right: share of the answered ones whose class is right; 0 where none is answered.
        confusion: true class by class found from codes, shape (classes, classes).
        agreement: share of records on which codes and exact measures give the same class, by bits.
        accuracy_at: accuracy by bits, on the federation's range.
        ties: share of records whose smallest code is shared by several classes.
        clipped_low: share of records whose smallest measure lies below the range.
        clipped_high: share of records whose smallest measure lies above the range, so that all
            classes get the largest code.
        winners: the records' smallest measures in bins of 1/40, shape (40,).
        others: the smallest measures of any other class, in the same bins.
        quantiles: of the smallest measures, at 0, 1, 50, 99 and 100 %.
    """

    records: int
    clients: int
    exact: float
    coded: float
    answered: float
    right: float
    confusion: Counts
    agreement: dict[int, float]
    accuracy_at: dict[int, float]
    ties: float
    clipped_low: float
    clipped_high: float
    winners: Counts
    others: Counts
    quantiles: tuple[float, ...]


def measure_run(run: Path, test: Path, options: ReadOptions) -> Measured:
    """Classifies a labelled file with all heads of a run folder.

    Args:
        run: the run folder; every client's head must be in it.
        test: a client file of records that no client trained on.
        options: how it is read.

    Raises:
        InputError: a head is missing, the file has no labels, or one that the federation does not
            know; or the rule is votes, whose answers are noisy and rest on no measure.
    """
    manifest, heads = load_run(run)
    if manifest.rule == "votes":
        raise InputError(
            f"{run}: the rule is votes, and the report's figures are of measures; `securefl infer`"
            " says how many answers are right, without noise with --mode plain; leave --test out"
        )
    if len(heads) < len(manifest.clients):
        raise InputError(
            f"{run}: {len(heads)} of {len(manifest.clients)} heads are here; accuracy needs all of"
            " them, leave --test out"
        )
    features, labels = read_queries(test, manifest, options, slice(None))
    truth = _codes_of(labels, manifest, test)
    # Measures of (queries, clients, classes) would not fit for many clients: smallest over clients.
    smallest = np.concatenate(
        [
            all_measures(heads, features[start : start + CHUNK], manifest).min(axis=1)
            for start in range(0, len(features), CHUNK)
        ]
    )
    return _totals(smallest, truth, manifest, len(heads))


def _codes_of(labels: list[str] | None, manifest: Manifest, test: Path) -> Counts:
    if labels is None:
        raise InputError(f"{test}: holds no labels; give a file with labels, or leave --test out")
    known = {label: c for c, label in enumerate(manifest.classes)}
    for label in labels:
        if label not in known:
            raise InputError(f'{test}: label "{label}" is unknown to the federation')
    return np.array([known[label] for label in labels], np.int64)


def _totals(smallest: Array, truth: Counts, manifest: Manifest, clients: int) -> Measured:
    """From the smallest measure of each record and class over all clients, (records, classes)."""
    spanned = CodeRange(manifest.low, manifest.high)
    exact = classify(smallest[:, None, :])
    by_bits = {p: _coded(smallest, p, spanned) for p in sorted({*BITS, manifest.bits})}
    coded = by_bits[manifest.bits]
    codes = encode_measures(smallest, manifest.bits, spanned)
    lowest = codes.min(axis=1, keepdims=True)
    answered = np.ones(len(truth), bool)
    if manifest.unknown_above is not None:
        answered = lowest[:, 0] <= threshold_code(manifest)
    confusion = np.zeros((len(manifest.classes),) * 2, np.int64)
    np.add.at(confusion, (truth, coded), 1)
    two = np.partition(smallest, 1, axis=1)[:, :2]
    return Measured(
        records=len(truth),
        clients=clients,
        exact=float(np.mean(exact == truth)),
        coded=float(np.mean(coded == truth)),
        answered=float(np.mean(answered)),
        right=float(np.mean((coded == truth)[answered])) if answered.any() else 0.0,
        confusion=confusion,
        agreement={p: float(np.mean(found == exact)) for p, found in by_bits.items()},
        accuracy_at={p: float(np.mean(found == truth)) for p, found in by_bits.items()},
        ties=float(np.mean((codes == lowest).sum(axis=1) > 1)),
        clipped_low=float(np.mean(two[:, 0] < manifest.low)),
        clipped_high=float(np.mean(two[:, 0] > manifest.high)),
        winners=_binned(two[:, 0]),
        others=_binned(two[:, 1]),
        quantiles=tuple(np.quantile(two[:, 0], [0, 0.01, 0.5, 0.99, 1]).tolist()),
    )


def _coded(smallest: Array, bits: int, spanned: CodeRange) -> Counts:
    return classify(encode_measures(smallest, bits, spanned)[:, None, :]).astype(np.int64)


def _binned(values: Array) -> Counts:
    return np.histogram(values, np.linspace(0, 1, BINS + 1))[0].astype(np.int64)
