"""What a release will be like, before anything private is read or spent.

Noise and the epsilon of whole records follow from public choices. The accuracy is measured on
public records of the same shape, which are dealt to clients, released and trained on as private
ones would be, in books that are thrown away.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from dp import Element
from dp.release import implied_for_records
from dp.release_plan import make_plan
from dp.statement import RecordLevel
from secure_fl.data import Dataset, Scaling, iid
from secure_fl.errors import InputError
from secure_fl.privacy.promises import ReleasePromise
from secure_fl.privacy.remarks import noise_of, release_remarks
from secure_fl.progress import Progress, quiet
from secure_fl.trainers.settings import Settings
from secure_fl.training.preparing import AskedScaling
from secure_fl.training.released_scaling import MomentsClip, terms_of
from secure_fl.training.train import train

HELD_OUT = 4
"""One of so many public records is a query."""
POOR = 0.05
"""Accuracy lost to the noise from which on it is remarked on."""


@attrs.frozen(kw_only=True)
class Expected:
    """Accuracies on public records that were left out, in [0, 1].

    Attributes:
        private: one a run, each under noise of its own.
        plain: without noise, all else alike.
        majority: share of the most frequent class.
        records: that were left out.
    """

    private: tuple[float, ...]
    plain: float
    majority: float
    records: int

    @property
    def mean(self) -> float:
        """Over the runs."""
        return float(np.mean(self.private))

    def text(self) -> str:
        """One line."""
        low, high = min(self.private), max(self.private)
        runs = len(self.private)
        spread = "one run" if runs == 1 else f"{low:.1%} to {high:.1%} in {runs} runs"
        return (
            f"expected accuracy {self.mean:.1%} ({spread}), {self.plain:.1%} without noise; the"
            f" most frequent class alone {self.majority:.1%}; on {self.records:,} public records"
        )

    def remarks(self) -> tuple[str, ...]:
        """What is wrong with it; empty where nothing is."""
        if self.mean <= self.majority:
            return (
                "the release is of no use: its accuracy is not above that of always naming the most"
                " frequent class; do not spend on it",
            )
        if self.mean < self.plain - POOR:
            lost = 100 * (self.plain - self.mean)
            return (
                f"the noise costs {lost:.1f} points; more records a client, fewer features or a"
                " larger epsilon help",
            )
        return ()


@attrs.frozen(kw_only=True)
class Outlook:
    """A release that was not made.

    Attributes:
        promise: what it would promise.
        columns: features of a record.
        noise: standard deviation on an entry, in units of scaled features.
        record_level: what the promise implies for whole records; empty where they are its unit.
        expected: on public records; None where there are none.
        remarks: what a person should look at.
        left: promise of the heads' own releases, where their scaling is released before; else None.
    """

    promise: ReleasePromise
    columns: int
    noise: float
    record_level: tuple[RecordLevel, ...]
    expected: Expected | None
    remarks: tuple[str, ...]
    left: ReleasePromise | None = None

    @property
    def share(self) -> float:
        """The noise in units of the width of the bounds."""
        low, high = self.promise.bounds
        return self.noise / (high - low)

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        left = {} if self.left is None else {"left": self.left.to_json()}
        return {
            "promise": self.promise.to_json(),
            **left,
            "unit": self.promise.adjacency.unit,
            "columns": self.columns,
            "noise": self.noise,
            "noise_of_range": self.share,
            "record_level": [attrs.asdict(each) for each in self.record_level],
            "expected": None if self.expected is None else attrs.asdict(self.expected),
            "remarks": list(self.remarks),
        }

    def text(self) -> str:
        """Readable lines, without the remarks."""
        low, high = self.promise.bounds
        lines = [
            f"epsilon {self.promise.epsilon:g}, delta {self.promise.delta:g} per"
            f" {self.promise.adjacency.unit}; nothing was spent",
            f"noise of standard deviation {self.noise:.4g} on entries in [{low:g}, {high:g}]:"
            f" {self.share:.2g} of their range",
        ]
        if self.left is not None:
            lines.append(
                "means and deviations are released before; for a head's release they leave epsilon"
                f" {self.left.epsilon:.4g} at delta {self.left.delta:g}"
            )
        lines += [
            f"for whole records of {self.columns} features this implies {each.text}"
            for each in self.record_level
        ]
        if self.expected is not None:
            lines.append(self.expected.text())
        return "\n".join(lines)


def outlook(
    promise: ReleasePromise,
    columns: int,
    expected: Expected | None = None,
    records: int | None = None,
    *,
    moments: bool = False,
) -> Outlook:
    """What a release will be like.

    Args:
        promise: of the release.
        columns: features of a record, at least 1.
        expected: see `expected_accuracy`; or None.
        records: of the largest client; None where they are not known.
        moments: whether means and deviations that scale the features are released before.

    Raises:
        dp.InputError: the promise makes no sense.
    """
    left = terms_of(promise, columns).left if moments else None
    own = left or promise
    plan = make_plan(**own.terms())
    level: tuple[RecordLevel, ...] = ()
    if isinstance(plan.adjacency, Element):
        level = implied_for_records(plan.mechanism, plan.adjacency, plan.grid, columns)
    more = () if expected is None else expected.remarks()
    return Outlook(
        promise=promise,
        columns=columns,
        noise=noise_of(own, columns),
        record_level=level,
        expected=expected,
        remarks=release_remarks(own, columns, records) + more,
        left=left,
    )


def expected_accuracy(
    public: Dataset,
    promise: ReleasePromise,
    method: Settings,
    *,
    clients: int,
    runs: int,
    scaling: AskedScaling,
    scale: float = 1.0,
    moments_clip: MomentsClip | None = None,
    seed: int = 0,
    progress: Progress = quiet,
) -> Expected:
    """Accuracy of heads that are trained on releases of public records.

    Args:
        public: labelled records of the shape of the private ones, and as many as they are.
        promise: of every release.
        method: of heads, with a batch size: they are not tuned where privacy is promised.
        clients: that the records are dealt to, at random.
        runs: releases, at least 1.
        scaling: of the features, of public constants, or a word for means and deviations that are
            released before.
        scale: factor on the features, for a word.
        moments_clip: public, for a word; as `train`.
        seed: of the split; the noise is the operating system's.
        progress: told after every run.

    Raises:
        InputError: fewer than HELD_OUT records for every client.
        dp.InputError: the promise makes no sense for these records.
    """
    if len(public) < HELD_OUT * clients:
        raise InputError(
            f"{public.where}: {len(public)} records for {clients} clients and a quarter of them as"
            f" queries; give at least {HELD_OUT * clients}"
        )
    rng = np.random.default_rng(seed)
    left, rest = np.split(rng.permutation(len(public)), [len(public) // HELD_OUT])
    test = public.select(left)
    parts = iid(len(rest), clients, rng)
    members = [public.select(rest[own], f"client-{i:02}") for i, own in enumerate(parts)]
    how: dict[str, Any] = {"scale": scale, "scaling": scaling, "seed": seed}
    if isinstance(scaling, Scaling):
        how["scale"] = scaling.factor
    plain = _right(members, method, test, None, how)
    how["moments_clip"] = moments_clip
    found = []
    for i in range(runs):
        found.append(_right(members, method, test, promise, how))
        progress("releasing public records", i + 1, runs)
    majority = float(test.counts().max() / len(test))
    return Expected(private=tuple(found), plain=plain, majority=majority, records=len(test))


def _right(
    members: Sequence[Dataset],
    method: Settings,
    test: Dataset,
    promise: ReleasePromise | None,
    how: dict[str, Any],
) -> float:
    with tempfile.TemporaryDirectory() as books:
        fitted = train(
            members,
            method,
            promise=promise,
            books=None if promise is None else Path(books),
            **how,
        )
    labels: NDArray[np.str_] = np.array(test.classes)
    return float(np.mean(fitted.predict(test.X) == labels[test.y]))
