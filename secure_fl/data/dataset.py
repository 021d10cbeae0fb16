"""A client's records: as read from its file, and as the federation uses them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secure_fl.data.naming import stem
from secure_fl.data.numerals import rounded
from secure_fl.errors import ClientError, FeatureError, whose

FloatArray: TypeAlias = NDArray[np.floating[Any]]
Features: TypeAlias = Any
"""(n, d) array of float32 or float64, or a `scipy.sparse.csr_array` of the same."""


@dataclass(frozen=True, eq=False)
class Records:
    """A client file as read: labels still text, features perhaps still text.

    Attributes:
        name: the client; "" where the records are nobody's in particular (queries, a test set).
        source: the file, as given.
        labels: n labels as text; None where the file has none, as queries may.
        X: features, (n, d), float32 or float64, or scipy CSR; None where `texts` is to be encoded.
        texts: one text a record, or None.
        features: d column names, or None where the file has none.
        groups: one group name a record (e.g. a site), or None.
        lines: the record's line in the file, shape (n,); None where the file has no lines.
        open_width: d is only the largest index seen (LIBSVM); further features are zeros.
        header: all columns of the file, those left out too; None where it names none.
        schema: digest of the schema that the file was prepared by; "" where it was not.
        targets: numbers to be predicted, (n, C), float64, finite, in place of labels; or None.
    """

    name: str
    source: str
    labels: tuple[str, ...] | None
    X: Features = None
    texts: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    lines: NDArray[np.int64] | None = None
    open_width: bool = False
    header: tuple[str, ...] | None = None
    schema: str = ""
    targets: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if (self.X is None) == (self.texts is None):
            raise ValueError("records hold either features or texts")
        if self.labels is not None and len(self) != len(self.labels):
            raise FeatureError(
                f"{whose(self.name)}: {len(self)} records and {len(self.labels)} labels in"
                f" {self.source}; give each record one label"
            )

    def __len__(self) -> int:
        return len(self.texts) if self.texts is not None else int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """d; 0 where texts are still to be encoded."""
        return 0 if self.X is None else int(self.X.shape[1])

    def where(self, row: int) -> str:
        """A record's place, for errors: `line 4 of a.csv` or `row 3 of a.npz` (from 0)."""
        if self.lines is not None:
            return f"line {self.lines[row]} of {self.source}"
        return f"row {row} of {self.source}"


class FeatureRows:
    """What labelled records of both kinds derive from their features; they have these fields."""

    X: Features
    name: str
    source: str
    features: tuple[str, ...] | None

    def check_features(self) -> None:
        """Raises ValueError where they are no float matrix, or their names not as many."""
        if len(self.X.shape) != 2 or self.X.dtype not in (np.float32, np.float64):
            raise ValueError(f"X is {self.X.dtype} of shape {self.X.shape}, not a float matrix")
        if self.features is not None and len(self.features) != self.X.shape[1]:
            raise ValueError(f"{len(self.features)} feature names, {self.X.shape[1]} features")

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def where(self) -> str:
        """Whose records they are and where they came from, for messages."""
        return f"{whose(self.name)}, {self.source}"

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.X.shape[1])


@dataclass(frozen=True, eq=False)
class Dataset(FeatureRows):
    """A client's labelled records under the federation's class list.

    Attributes:
        X: features, (n, d), float32 or float64, finite; scipy CSR if read with sparse=True.
        y: class codes, shape (n,), int64 in 0..C-1.
        classes: the federation's C class names.
        name: the client; "" where the records are nobody's in particular (queries, a test set).
        source: where the records came from, for messages.
        features: d feature names, or None.
        groups: one group name a record, or None.
        schema: digest of the schema that they were prepared by; "" where they were not.

    Raises:
        ValueError: shapes, types or codes do not fit together (a programming error, not bad
            data: the readers refuse that first).
    """

    X: Features
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    name: str
    source: str = "memory"
    features: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    schema: str = ""

    def __post_init__(self) -> None:
        self.check_features()
        if self.y.shape != (self.X.shape[0],) or self.y.dtype != np.int64:
            raise ValueError(f"y is {self.y.dtype} of shape {self.y.shape}, X {self.X.shape}")
        if self.y.size and not 0 <= self.y.min() <= self.y.max() < len(self.classes):
            raise ValueError(f"codes {self.y.min()}..{self.y.max()}, {len(self.classes)} classes")
        if self.groups is not None and len(self.groups) != self.X.shape[0]:
            raise ValueError(f"{len(self.groups)} groups, {self.X.shape[0]} records")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of a model's outputs: the classes."""
        return self.classes

    def counts(self) -> NDArray[np.int64]:
        """Records of each class, shape (C,)."""
        return np.bincount(self.y, minlength=len(self.classes)).astype(np.int64)

    def select(self, rows: NDArray[np.integer[Any]], name: str | None = None) -> "Dataset":
        """The records at these indices, in this order, under this or another client name."""
        groups = None if self.groups is None else tuple(self.groups[int(i)] for i in rows)
        return replace(self, X=self.X[rows], y=self.y[rows], groups=groups, name=name or self.name)


def class_counts(clients: Sequence[Dataset]) -> dict[str, int]:
    """Records of each class over all clients; empty for no client."""
    total = Counter[str]()
    for client in clients:
        total.update(dict(zip(client.classes, client.counts().tolist(), strict=True)))
    return dict(total)


class Prepared(Protocol):
    """What was prepared by a schema: records, or the federation of its clients."""

    @property
    def schema(self) -> str:
        """The schema's digest, "" for none."""


def schema_shown(holder: Prepared) -> str:
    """The schema of records, for messages."""
    return f"schema {holder.schema[:12]}" if holder.schema else "no schema"


def require_finite(records: Records) -> None:
    """Refuses NaN and infinity.

    Raises:
        FeatureError: names the client, the feature, the place and the value.
    """
    X = records.X
    if X is None:
        return
    sparse = not isinstance(X, np.ndarray)
    values = X.data if sparse else X
    if np.isfinite(values).all():
        return
    if sparse:
        coo = X.tocoo()
        first = int(np.flatnonzero(~np.isfinite(coo.data))[0])
        row, column, value = int(coo.row[first]), int(coo.col[first]), coo.data[first]
    else:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(X))[0])
        value = X[row, column]
    name = f'"{records.features[column]}"' if records.features else str(column)
    raise FeatureError(
        f"{whose(records.name)}: feature {name} in {records.where(row)} is {value}; fill it in"
        " or remove the record"
    )


def as_float(X: NDArray[Any], *, client: str, source: str) -> FloatArray:
    """Features as float32 or float64 without loss: float16 and 8- or 16-bit integers fit float32.

    Raises:
        FeatureError: not a matrix, not real numbers, no columns, or a whole number that float64
            does not hold exactly.
    """
    who = whose(client)
    if X.ndim != 2 or X.shape[1] == 0:
        raise FeatureError(
            f"{who}: X in {source} has shape {X.shape}; give one row a record and at least one"
            " feature"
        )
    kind, size = X.dtype.kind, X.dtype.itemsize
    if kind not in "biuf" or (kind == "f" and size > 8):
        raise FeatureError(
            f"{who}: X in {source} is of type {X.dtype}; store real numbers (float32)"
        )
    if kind == "f" and size >= 4:
        return X.astype(X.dtype.newbyteorder("="), copy=False)
    if size <= 2:
        return X.astype(np.float32)
    found = X.astype(np.float64)
    if size == 8 and (place := rounded(X, found)) is not None:
        row, column = place
        raise FeatureError(
            f"{who}: feature {column} in row {row} of {source} is {X[place]}, a whole number that"
            " float64 does not hold exactly; leave the column out if it names something, or round"
            " it"
        )
    return found


def client_name(name: str | None, path: Path) -> str:
    """The client of a file: as given, or after the file; "" where no client is meant.

    Raises:
        ClientError: it cannot be a client's name.
    """
    return "" if name == "" else check_name(stem(path) if name is None else name, str(path))


def check_name(name: str, source: str) -> str:
    """A client's name, if it can be a folder's: letters, digits, `.`, `_`, `-`, at most 64.

    Raises:
        ClientError: anything else.
    """
    plain = name.isascii() and name.replace(".", "").replace("_", "").replace("-", "").isalnum()
    if not plain or len(name) > 64 or not name[0].isalnum():
        raise ClientError(
            f"{source}: {name!r} cannot be a client's name; use up to 64 letters, digits, '.', '_'"
            " or '-', a letter or digit first"
        )
    return name
