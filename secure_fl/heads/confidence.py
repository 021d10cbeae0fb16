"""How sure an answer is: none of the classes, the k best ones, and probabilities.

A smallest measure above a public threshold says that no client's records are like the query. The
threshold and the temperature of the probabilities come from public data alone (`calibrate`): heads
of public records measure other public records. Those of the federation hold more records, so that
their measures are smaller; both numbers are estimates for it, not promises.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from fhe import CodeRange, encode_measures
from kahm import classify
from secure_fl.errors import InputError
from secure_fl.heads.codes import threshold_code
from secure_fl.heads.head import train_head
from secure_fl.heads.manifest import Manifest, make_manifest
from secure_fl.masked.votes import majority
from secure_fl.progress import Progress, quiet

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

FOLDS = 5
FEWEST = 30
"""Public records on whose answers an accuracy is stated at least."""
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
"""Shares of answered records that a curve shows."""
_TEMPERATURES = (1e-6, 1e2)


def decide(measures: NDArray[Any], manifest: Manifest) -> Codes:
    """The rule in the clear: the class of the smallest measure, or none; of votes, the majority's.

    Args:
        measures: exact, shape (queries, clients, classes).
        manifest: the federation's facts.

    Returns:
        Indices of `manifest.answers`, shape (queries,).
    """
    if manifest.rule == "votes":
        return majority(measures)
    found = classify(measures).astype(np.int64)
    if manifest.unknown_above is not None:
        found[measures.min(axis=(1, 2)) > manifest.unknown_above] = len(manifest.classes)
    return found


def probabilities(smallest: NDArray[Any], temperature: float) -> Array:
    """exp(-measure / temperature) over their sum, shape (queries, classes).

    Args:
        smallest: of each class over all clients, shape (queries, classes).
        temperature: above 0.
    """
    found: Array = softmax(-np.asarray(smallest, np.float64) / temperature, axis=1)
    return found


def fitted_temperature(smallest: NDArray[Any], y: NDArray[np.integer[Any]]) -> float:
    """The temperature of the largest likelihood (Guo et al. 2017, section 4.2).

    The labels are taken as right with probability (n + 1) / (n + 2), as Platt (1999) does for
    sigmoids: where all records are told apart, likelihood alone would make every answer certain.

    Args:
        smallest: of each class over all clients, shape (n, classes).
        y: class codes, shape (n,).
    """
    measures = np.asarray(smallest, np.float64)
    doubt = 1 / (len(y) + 2)
    others = measures.shape[1] - 1
    targets = np.full_like(measures, doubt / others)
    targets[np.arange(len(y)), y] = 1 - doubt

    def loss(log_temperature: float) -> float:
        scaled = -measures / np.exp(log_temperature)
        return float(np.mean(logsumexp(scaled, axis=1) - (targets * scaled).sum(axis=1)))

    found = minimize_scalar(loss, bounds=tuple(np.log(_TEMPERATURES)), method="bounded")
    return float(np.exp(found.x))


@attrs.frozen
class Point:
    """What a threshold does to public records.

    Attributes:
        threshold: measure above which a query is unknown.
        answered: share of the records that get a class.
        accuracy: share of the answered ones whose class is right; 0 where none is answered.
        strangers: share of the records that would be called unknown if nobody had their class.
    """

    threshold: float
    answered: float
    accuracy: float
    strangers: float


@dataclass(frozen=True)
class Held:
    """Measures of public records under heads of other public records.

    Attributes:
        smallest: of each class, shape (n, classes).
        y: class codes, shape (n,).
    """

    smallest: Array
    y: Codes

    def at(self, threshold: float) -> Point:
        """What a threshold does."""
        best = self.smallest.min(axis=1)
        answered = best <= threshold
        right = self.smallest.argmin(axis=1) == self.y
        others = self.smallest.copy()
        others[np.arange(len(self.y)), self.y] = np.inf
        return Point(
            threshold=threshold,
            answered=float(answered.mean()),
            accuracy=float(right[answered].mean()) if answered.any() else 0.0,
            strangers=float((others.min(axis=1) > threshold).mean()),
        )

    def curve(self, shares: Sequence[float] = SHARES) -> list[Point]:
        """Accuracy against share answered."""
        best = np.sort(self.smallest.min(axis=1))
        places = [max(1, round(share * len(best))) - 1 for share in shares]
        return [self.at(float(best[place])) for place in places]

    def threshold_for_share(self, share: float) -> float:
        """The smallest threshold that answers such a share of the records."""
        best = np.sort(self.smallest.min(axis=1))
        return float(best[max(1, int(np.ceil(share * len(best)))) - 1])

    def threshold_for_accuracy(self, accuracy: float) -> float:
        """The largest threshold below which answers are right so often.

        Raises:
            InputError: none of those that answer `FEWEST` records is.
        """
        best = self.smallest.min(axis=1)
        order = np.argsort(best, kind="stable")
        right = np.cumsum((self.smallest.argmin(axis=1) == self.y)[order])
        rates = right / np.arange(1, len(right) + 1)
        fine = np.flatnonzero(rates >= accuracy)
        fine = fine[fine >= FEWEST - 1]
        if not len(fine):
            raise InputError(
                f"calibration: no threshold answers {FEWEST} of the {len(best)} public records with"
                f" an accuracy of {accuracy:g}; ask for less, or give more public data"
            )
        return float(best[order[fine[-1]]])


def held_out(
    X: NDArray[Any],
    y: NDArray[np.integer[Any]],
    manifest: Manifest,
    rng: np.random.Generator,
    *,
    progress: Progress = quiet,
) -> Held:
    """Measures of public records by cross-validation, with the federation's options.

    Args:
        X: features of public records, scaled as queries are, shape (n, n_features).
        y: class codes, shape (n,).
        manifest: the federation's facts.
        rng: divides the records.
        progress: told after every fold.

    Raises:
        InputError: too few records.
    """
    if len(y) < 2 * FEWEST:
        raise InputError(f"calibration: {len(y)} public records, at least {2 * FEWEST} are needed")
    parts = np.array_split(rng.permutation(len(y)), FOLDS)
    smallest = np.empty((len(y), len(manifest.classes)))
    for i, part in enumerate(parts):
        rest = np.setdiff1d(np.arange(len(y)), part)
        head = train_head("public", X[rest], y[rest], manifest, rng)
        smallest[part] = head.measures(X[part], manifest)
        progress("measuring public records", i + 1, FOLDS)
    return Held(smallest, y.astype(np.int64))


def set_threshold(manifest: Manifest, threshold: float, temperature: float) -> Manifest:
    """The manifest with a threshold and a temperature; its fingerprint changes, its heads stay.

    Raises:
        InputError: the threshold is outside of what the codes span, or has their largest code; or
            the federation has members on a network.
    """
    facts = {**attrs.asdict(manifest), "unknown_above": threshold, "temperature": temperature}
    found = make_manifest(**facts)
    threshold_code(found)
    return found


def coded_share(held: Held, manifest: Manifest) -> float:
    """Share of the public records that integer codes answer as the exact measures do."""
    spanned = CodeRange(manifest.low, manifest.high)
    codes = encode_measures(np.clip(held.smallest, 0, 1), manifest.bits, spanned)
    exact = decide(held.smallest[:, None], manifest)
    coded = codes.argmin(axis=1)
    coded[codes.min(axis=1) > threshold_code(manifest)] = len(manifest.classes)
    return float(np.mean(coded == exact))
