"""Whether the queries still look like a client's own records: a watch that stays with the client.

What is usual is how far a record must be folded by machines that did not see it: the smallest
measure of each of the client's records over all machines but its own. Queries that come from where
the records came from have measures of that distribution; after a scanner was replaced they do not.
Only counts are kept, by day and by bin; the bins are equally likely where nothing drifted.
"""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from fhe.envelope import PRIVATE, write_atomic
from kahm import Bank, Measure
from secure_fl.errors import InputError
from secure_fl.files import read_json_object

Array = NDArray[Any]

BINS = 20
RECORDS = 500
"""Records that the usual measures are taken of, spread evenly over the head."""
DAYS = 7
"""Days that the gauge looks back."""
KEPT = 366
"""Days that are kept."""
CHANCE = 0.01
"""How often queries that do not drift are above the limit."""
FORMAT = "securefl watch"
VERSION = 1
MAX_BYTES = 2**20


def usual_measures(bank: Bank, measure: Measure, most: int = RECORDS) -> Array:
    """Smallest measures of a head's records over machines of other batches, ascending.

    Args:
        bank: with at least 2 machines.
        measure: of the federation.
        most: records that are looked at, at least 1.

    Raises:
        InputError: fewer than 2 machines: nothing is left when one is left out.
    """
    if bank.n_machines < 2:
        raise InputError("watch: a head of 1 machine cannot say what is usual; 2 are needed")
    n = len(bank.records)
    rows = np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))
    values = bank.machine_measures(bank.records[rows], measure)
    own = np.repeat(np.arange(bank.n_machines), bank.sizes)[rows]
    values[np.arange(len(rows)), own] = np.inf
    return np.sort(values.min(axis=1))


@attrs.frozen(eq=False)
class Watch:
    """Counts of queries by day and by how usual their measure is.

    Attributes:
        usual: the reference, ascending, shape (n,).
        days: counts of each bin by day (ISO, UTC); bin 0 is the most usual, the least folding.
    """

    usual: Array
    days: Mapping[str, NDArray[np.int64]] = attrs.field(factory=dict)

    def seen(self, measures: Array, now: float) -> "Watch":
        """The watch after some queries.

        Args:
            measures: each query's smallest over all machines, shape (q,).
            now: seconds since 1970.
        """
        day = datetime.fromtimestamp(now, UTC).date().isoformat()
        low = np.searchsorted(self.usual, measures, "left")
        high = np.searchsorted(self.usual, measures, "right")
        # The middle of its ties, so that equal measures do not all fall on one side of a bin.
        rank = (low + high) / (2.0 * len(self.usual))
        bins = np.minimum((rank * BINS).astype(np.int64), BINS - 1)
        new = np.bincount(bins, minlength=BINS)
        days = {**self.days, day: self.days.get(day, np.zeros(BINS, np.int64)) + new}
        return attrs.evolve(self, days=dict(sorted(days.items())[-KEPT:]))

    def counts(self, days: int | None = None) -> NDArray[np.int64]:
        """Queries of each bin over the last days that had some, shape (20,); None for all."""
        chosen = list(self.days.values())[-days if days else None :]
        return np.sum(chosen, axis=0) if chosen else np.zeros(BINS, np.int64)


@attrs.frozen
class Drift:
    """How far queries are from what is usual.

    Attributes:
        queries: how many.
        distance: largest difference of the two distribution functions, in [0, 1]
            (Kolmogorov-Smirnov, at the bins' ends); 0 without a query.
        limit: above it queries that do not drift are in `CHANCE` of all cases, about.
    """

    queries: int
    distance: float
    limit: float

    @property
    def drifted(self) -> bool:
        """Whether the distance is above the limit."""
        return self.distance > self.limit


def drift(counts: NDArray[np.int64], reference: int) -> Drift:
    """The drift of queries.

    Args:
        counts: of each bin, shape (20,).
        reference: records that the usual measures were taken of.
    """
    n = int(counts.sum())
    if not n:
        return Drift(0, 0.0, 1.0)
    expected = np.arange(1, BINS + 1) / BINS
    distance = float(np.max(np.abs(np.cumsum(counts) / n - expected)))
    # Two samples, large enough: c(alpha) sqrt((n + m) / (n m)); Smirnov 1948.
    scale = math.sqrt(-0.5 * math.log(CHANCE / 2))
    return Drift(n, distance, min(1.0, scale * math.sqrt((n + reference) / (n * reference))))


def save_watch(path: Path, watch: Watch) -> None:
    """Writes the counts, mode 0600, whole or not at all."""
    days = {day: counts.tolist() for day, counts in watch.days.items()}
    content = {"format": FORMAT, "version": VERSION, "days": days}
    write_atomic(path, json.dumps(content).encode(), mode=PRIVATE)


def load_watch(path: Path, usual: Array) -> Watch:
    """A watch that goes on where it was, or begins.

    Args:
        path: of its counts; need not exist.
        usual: as `usual_measures`.

    Raises:
        InputError: another file.
    """
    if not path.exists():
        return Watch(usual)
    content = read_json_object(path, MAX_BYTES, "watch")
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise InputError(f"{path}: not a watch of version {VERSION}; move it away")
    try:
        days = {
            datetime.fromisoformat(day).date().isoformat(): _counts(counts)
            for day, counts in content["days"].items()
        }
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: holds no counts by day ({error}); move it away") from error
    return Watch(usual, dict(sorted(days.items())))


def _counts(value: Any) -> NDArray[np.int64]:
    found = np.asarray(value, np.int64)
    if found.shape != (BINS,) or found.min() < 0:
        raise ValueError(f"found counts of shape {found.shape}, expected {BINS} from 0")
    return found
