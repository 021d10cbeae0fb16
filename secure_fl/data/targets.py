"""Records whose targets are numbers: regression instead of classification."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.data.assembly import aligned, check_together, common_features
from secure_fl.data.dataset import FeatureRows, Features, Records
from secure_fl.errors import LabelError, whose


@dataclass(frozen=True, eq=False)
class TargetSet(FeatureRows):
    """A client's records with numbers to be predicted.

    Attributes:
        X: features, (n, d), float32 or float64, finite, dense or scipy CSR.
        y: targets, (n, C), float64, finite.
        targets: C names.
        name: the client; "" where the records are nobody's in particular.
        source: where the records came from, for messages.
        features: d feature names, or None.
        schema: digest of the schema that they were prepared by; "" where they were not.

    Raises:
        ValueError: shapes or types do not fit together.
    """

    X: Features
    y: NDArray[np.float64]
    targets: tuple[str, ...]
    name: str
    source: str = "memory"
    features: tuple[str, ...] | None = None
    schema: str = ""

    def __post_init__(self) -> None:
        self.check_features()
        expected = (self.X.shape[0], len(self.targets))
        if self.y.shape != expected or self.y.dtype != np.float64 or not self.targets:
            raise ValueError(f"y is {self.y.dtype} of shape {self.y.shape}, expected {expected}")
        if not np.isfinite(self.y).all():
            raise ValueError("a target is not finite")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of a model's outputs: the targets."""
        return self.targets

    def select(self, rows: NDArray[np.integer[Any]], name: str | None = None) -> "TargetSet":
        """The records at these indices, in this order, under this or another client name."""
        return replace(self, X=self.X[rows], y=self.y[rows], name=name or self.name)


def assemble_targets(
    records: Sequence[Records],
    targets: tuple[str, ...],
    *,
    n_features: int | None = None,
    features: tuple[str, ...] | None = None,
    manifest: str = "the clients",
) -> tuple[TargetSet, ...]:
    """Checks clients against each other; as `secure_fl.data.assemble`, of targets.

    Args:
        records: one entry a client, read with these targets.
        targets: C names.
        n_features, features, manifest: as `assemble`.

    Raises:
        ClientError, FeatureError: as `assemble`.
        LabelError: a client whose file holds no targets.
    """
    check_together(records)
    width, names, origin = common_features(records, n_features, features, manifest)
    return tuple(_target_set(each, targets, width, names, origin) for each in records)


def _target_set(
    client: Records,
    targets: tuple[str, ...],
    n_features: int,
    features: tuple[str, ...] | None,
    origin: str,
) -> TargetSet:
    X = aligned(client, n_features, features, origin)
    if client.targets is None:
        raise LabelError(
            f"{whose(client.name)}: no targets in {client.source}; give each record"
            f" {', '.join(targets)[:200]}"
        )
    return TargetSet(
        X,
        client.targets,
        targets,
        client.name,
        client.source,
        features or client.features,
        client.schema,
    )


def labels_as_numbers(records: Records, targets: tuple[str, ...]) -> Records:
    """A file's labels as the one target, where targets are asked for.

    Raises:
        LabelError: more than one target, or a label that is no finite number.
    """
    if not targets:
        return records
    if len(targets) > 1:
        raise LabelError(
            f"{whose(records.name)}: {records.source} has one label a record, and"
            f" {len(targets)} targets are named; name one"
        )
    values = [_number(text) for text in records.labels or ()]
    for row, value in enumerate(values):
        if not math.isfinite(value):
            label = (records.labels or ())[row]
            raise LabelError(
                f"{whose(records.name)}: target {label[:40]!r} in {records.where(row)} is no finite"
                " number; correct it"
            )
    return replace(records, labels=None, targets=np.array(values, np.float64)[:, None])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
