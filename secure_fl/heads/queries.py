"""Reading queries: a client file, with labels or without, or a bare array."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.data import ReadOptions, Records, as_float, read_records
from secure_fl.data._streams import read_capped
from secure_fl.data.dataset import schema_shown
from secure_fl.data.npz import array_of
from secure_fl.errors import FormatError, InputError
from secure_fl.heads.run_folder import FeatureSpace, query_features


def read_queries(
    path: Path, manifest: FeatureSpace, options: ReadOptions, rows: slice
) -> tuple[NDArray[Any], list[str] | None]:
    """Scaled features of the queries, and their labels where the file has some.

    Arguments and errors as `query_records`.
    """
    features, records = query_records(path, manifest, options, rows)
    if records is None or records.labels is None:
        return features, None
    return features, list(records.labels[rows])


def query_records(
    path: Path, manifest: FeatureSpace, options: ReadOptions, rows: slice
) -> tuple[NDArray[Any], Records | None]:
    """Scaled features of the queries, and all that the file holds; None for a bare array.

    Args:
        path: a client file (.npz, .csv, LIBSVM) of any name, or a `.npy` array of shape (queries,
            features).
        manifest: the facts of the federation, or of a model.
        options: how client files are read; LIBSVM files, unless they say otherwise, with the
            federation's number of features.
        rows: which records to take.

    Raises:
        InputError: the file cannot be read, or its records are not the federation's kind.
    """
    if path.suffix.lower() == ".npy":
        return query_features(read_matrix(path)[rows], manifest, source=str(path)), None
    if options.n_features is None:
        options = replace(options, n_features=manifest.n_features)
    records = read_records(path, options, unlabelled=True)
    X = _chosen_features(records, manifest)
    return query_features(X[rows], manifest, source=str(path)), records


def _chosen_features(records: Records, manifest: FeatureSpace) -> NDArray[Any]:
    """The features of records in the order of a federation's or model's; not scaled."""
    path = records.source
    if records.X is None:
        raise InputError(f"{path}: holds text; encode it first (securefl data embed)")
    X = records.X
    if manifest.schema and records.schema != manifest.schema:
        raise InputError(
            f"{path}: prepared by {schema_shown(records)}, the federation's clients by"
            f" {schema_shown(manifest)}; prepare it by the same (securefl data prepare)"
        )
    if manifest.features is not None and records.features is not None:
        missing = [name for name in manifest.features if name not in records.features]
        if missing:
            raise InputError(f'{path}: no feature "{missing[0]}"; name the columns as in training')
        X = X[:, [records.features.index(name) for name in manifest.features]]
    return np.asarray(X)


def parse_rows(text: str | None) -> slice:
    """A slice "start:stop", counted from 0; None takes every record.

    Raises:
        InputError: anything else.
    """
    if text is None:
        return slice(None)
    start, colon, stop = text.partition(":")
    try:
        bounds = [int(part) if part else None for part in (start, stop)]
    except ValueError:
        bounds = []
    if not colon or not bounds or any(bound is not None and bound < 0 for bound in bounds):
        raise InputError(f"rows {text!r}: expected start:stop, such as 0:20")
    return slice(*bounds)


def read_matrix(path: Path) -> NDArray[Any]:
    """A matrix of numbers from a `.npy` file, float32 or float64 as in `as_float`.

    Raises:
        FormatError: not such a file, or not a two-dimensional array of numbers.
        FeatureError: a whole number that float64 does not hold exactly.
    """
    array = array_of(read_capped(path), str(path))
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        raise FormatError(f"{path}: expected numbers of shape (queries, features)")
    return as_float(array, client="", source=str(path))
