"""One client's head: its fitted machines, and the file that keeps them.

Without differential privacy a head holds the client's own records, so its file is as private as
the data it came from: it stays with the client and is readable by its owner only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fhe.envelope import PRIVATE, read_envelope, write_envelope
from kahm import Bank, split_rows
from secure_fl.data import Dataset, Scale, scaled_features, scaling_of
from secure_fl.errors import InputError
from secure_fl.files import finish_change
from secure_fl.heads.index import RecordIndex, first_index, index_path, save_index
from secure_fl.heads.manifest import Manifest

KIND = "kahm head"
FILE_NAME = "head"
LARGEST_MOVE = 1e-5
"""By how much rounding may move a record, as a measure may err in a bank of float32."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Head:
    """A client's machines.

    Attributes:
        client: the client's name.
        bank: one cell a class.
        index: which record is in which machine; None where that is not known, as in a head that
            was read from its file.
    """

    client: str
    bank: Bank
    index: RecordIndex | None = None

    def measures(self, features: Array, manifest: Manifest) -> Array:
        """The smallest measure of each class (eqs. 121, 123), shape (queries, classes).

        Args:
            features: encoded and scaled queries, shape (queries, n_features).
            manifest: the federation's facts.

        Raises:
            kahm.InputError: another feature count, or a row that is not finite.
        """
        return self.bank.measures(features, manifest.measure)  # type: ignore[arg-type]  # checked by the manifest


@dataclass(frozen=True)
class HeadArrays:
    """What a head's file holds: a bank's records, sizes and cells, with no machine fitted."""

    records: Array
    sizes: NDArray[np.int64]
    cells: NDArray[np.int64]

    def batches(self) -> list[Array]:
        """The records of each machine."""
        return np.split(self.records, np.cumsum(self.sizes)[:-1])


def train_head(
    client: str,
    X: Array,
    y: NDArray[np.integer[Any]],
    manifest: Manifest,
    rng: np.random.Generator,
    source: str = "",
) -> Head:
    """Fits one machine per class and batch of a client's records.

    Args:
        client: its name.
        X: features, already scaled, shape (n, n_features).
        y: class codes, shape (n,).
        manifest: the federation's facts.
        rng: draws the first centres when batches are clusters.
        source: where the records were read from, for the index.

    Raises:
        InputError: the client holds no record.
    """
    if len(y) == 0:
        raise InputError(f'client "{client}": 0 records, a head needs at least 1')
    rows, cells = batch_rows(X, y, manifest, rng)
    batches = [X[own] for own in rows]
    bank, flat = fit_machines(batches, cells, manifest, stored_type(X))
    inputs = {i: batches[i].astype(bank.records.dtype) for i in np.flatnonzero(flat).tolist()}
    return Head(client, bank, first_index(X, rows, cells, flat, inputs, source=source))


def fit_machines(
    batches: Sequence[Array],
    cells: Sequence[int] | NDArray[np.int64],
    manifest: Manifest,
    dtype: type = np.float32,
) -> tuple[Bank, NDArray[np.bool_]]:
    """A machine for each batch as the manifest has machines, and which batches do not spread.

    Args:
        batches, cells, dtype: as `Bank.fit`.
        manifest: the federation's facts.
    """
    return Bank.fit_noting(
        batches,
        cells,
        len(manifest.classes),
        dtype=dtype,
        regularisation=manifest.regularisation,  # type: ignore[arg-type]  # checked by the manifest
        factor=manifest.regularisation_factor,
    )


def batch_rows(
    X: Array, y: NDArray[np.integer[Any]], manifest: Manifest, rng: np.random.Generator
) -> tuple[list[NDArray[np.int64]], list[int]]:
    """The rows of each batch of some records, and its class; classes in order, storage order.

    Args:
        X, y, manifest, rng: as `train_head`.
    """
    rows: list[NDArray[np.int64]] = []
    cells: list[int] = []
    for c in np.unique(y).tolist():
        own = np.flatnonzero(y == c)
        parts = split_rows(X[own], manifest.batch_size, manifest.batching, rng)  # type: ignore[arg-type]  # checked by the manifest
        rows += [own[part] for part in parts]
        cells += [c] * len(parts)
    return rows, cells


def stored_type(X: Array) -> type:
    """float32, or float64 for records that float32 would move by more than its measures' error."""
    if X.dtype == np.float32:
        return np.float32
    with np.errstate(over="ignore"):
        moved = X.astype(np.float32) - X
    squares = np.einsum("nd,nd->n", moved, moved)
    # Not a number where float32 overflows.
    return np.float32 if np.all(squares <= LARGEST_MOVE**2) else np.float64


def head_inputs(data: Dataset, scale: Scale) -> Array:
    """A client's features as its head is trained on them: scaled, of their own type.

    Raises:
        FeatureError: the scale is not finite and above 0, or scaled features overflow float32, in
            which a head keeps its records, or vanish in it.
    """
    scaled_features(data.X, scale, np.float32, where=data.where)
    scaling = scaling_of(scale)
    if scaling.affine:
        found: Array = scaled_features(data.X, scaling, data.X.dtype.type, where=data.where)
        return found
    scaled: Array = data.X * data.X.dtype.type(scaling.factor)
    return scaled


def head_path(run: Path, client: str) -> Path:
    """Where a client's head lies in a run folder."""
    return run / "clients" / client / FILE_NAME


def save_head(run: Path, head: Head, manifest: Manifest) -> int:
    """Writes a head, and its index where it has one, into its client's folder, mode 0600.

    Returns:
        The head's bytes.
    """
    path = head_path(run, head.client)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if head.index is not None:
        save_index(index_path(run, head.client), head.client, head.index, manifest)
    bank = head.bank
    arrays = HeadArrays(bank.records, bank.sizes.astype(np.int64), bank.cells.astype(np.int64))
    return save_arrays(path, head.client, arrays, manifest)


def save_arrays(path: Path, client: str, arrays: HeadArrays, manifest: Manifest) -> int:
    """Writes a head's file, mode 0600; returns its bytes."""
    tensors = {
        "records": np.ascontiguousarray(arrays.records),
        "sizes": arrays.sizes,
        "cells": arrays.cells,
    }
    header = {"client": client, "federation": manifest.heads_fingerprint}
    return write_envelope(path, KIND, header, save_tensors(tensors), mode=PRIVATE)


def load_head(run: Path, client: str, manifest: Manifest) -> Head:
    """Reads a client's head and fits its machines again; its index stays in its file.

    Raises:
        fhe.errors.InputError: the file is absent, truncated, damaged or of another kind or version.
        InputError: of another client or federation, or with arrays that do not belong together.
    """
    arrays = load_arrays(run, client, manifest)
    return Head(client, machines_of(arrays, manifest))


def machines_of(arrays: HeadArrays, manifest: Manifest) -> Bank:
    """Fits the machines of what a head's file holds."""
    dtype = arrays.records.dtype.type
    return fit_machines(arrays.batches(), arrays.cells, manifest, dtype)[0]


def load_arrays(run: Path, client: str, manifest: Manifest) -> HeadArrays:
    """Reads what a client's head holds, without fitting a machine.

    Raises:
        fhe.errors.InputError, InputError: as `load_head`.
    """
    manifest.client_index(client)
    path = head_path(run, client)
    if path.parent.is_dir():
        finish_change(path.parent)
    envelope = read_envelope(path, KIND)
    if envelope.header.get("client") != client:
        raise InputError(f"{path}: head of {envelope.header.get('client')!r}, expected {client!r}")
    if not manifest.takes_heads_of(envelope.header.get("federation")):
        raise InputError(f"{path}: belongs to another federation; train the client again")
    return _arrays(envelope.payload, manifest, path)


def _arrays(payload: bytes, manifest: Manifest, path: Path) -> HeadArrays:
    try:
        tensors = load_tensors(payload)
        records, sizes, cells = tensors["records"], tensors["sizes"], tensors["cells"]
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"{path}: its arrays cannot be read ({error}); train again") from error
    fits = (
        records.dtype in (np.float32, np.float64)
        and sizes.dtype == cells.dtype == np.int64
        and records.ndim == 2
        and records.shape[1] == manifest.n_features
        and sizes.shape == cells.shape == (len(sizes),)
        and len(sizes) > 0
        and sizes.min() >= 1
        and sizes.sum() == len(records)
    )
    if not fits:
        raise InputError(f"{path}: its arrays do not belong together; train again")
    return HeadArrays(records, sizes, cells)
