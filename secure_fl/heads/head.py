"""One client's head: its fitted machines, and the file that keeps them.

Without differential privacy a head holds the client's own records, so its file is as private as
the data it came from: it stays with the client and is readable by its owner only.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fhe.envelope import PRIVATE, read_envelope, write_envelope
from kahm import Bank, split
from secure_fl.data import Dataset, Scale, scaled_features, scaling_of
from secure_fl.errors import InputError
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
    """

    client: str
    bank: Bank

    def measures(self, features: Array, manifest: Manifest) -> Array:
        """The smallest measure of each class (eqs. 121, 123), shape (queries, classes).

        Args:
            features: encoded and scaled queries, shape (queries, n_features).
            manifest: the federation's facts.

        Raises:
            kahm.InputError: another feature count, or a row that is not finite.
        """
        return self.bank.measures(features, manifest.measure)  # type: ignore[arg-type]  # checked by the manifest


def train_head(
    client: str, X: Array, y: NDArray[np.integer[Any]], manifest: Manifest, rng: np.random.Generator
) -> Head:
    """Fits one machine per class and batch of a client's records.

    Args:
        client: its name.
        X: features, already scaled, shape (n, n_features).
        y: class codes, shape (n,).
        manifest: the federation's facts.
        rng: draws the first centres when batches are clusters.

    Raises:
        InputError: the client holds no record.
    """
    if len(y) == 0:
        raise InputError(f'client "{client}": 0 records, a head needs at least 1')
    batches: list[Array] = []
    cells: list[int] = []
    for c in np.unique(y).tolist():
        own = split(X[y == c], manifest.batch_size, manifest.batching, rng)  # type: ignore[arg-type]  # checked by the manifest
        batches += own
        cells += [c] * len(own)
    bank = Bank.fit(
        batches,
        cells,
        len(manifest.classes),
        dtype=stored_type(X),
        regularisation=manifest.regularisation,  # type: ignore[arg-type]  # as above
        factor=manifest.regularisation_factor,
    )
    return Head(client, bank)


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
    """Writes a head into its client's folder, mode 0600; returns its bytes."""
    path = head_path(run, head.client)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    tensors = {
        "records": np.ascontiguousarray(head.bank.records),
        "sizes": head.bank.sizes.astype(np.int64),
        "cells": head.bank.cells.astype(np.int64),
    }
    header = {"client": head.client, "federation": manifest.heads_fingerprint}
    return write_envelope(path, KIND, header, save_tensors(tensors), mode=PRIVATE)


def load_head(run: Path, client: str, manifest: Manifest) -> Head:
    """Reads a client's head and fits its machines again.

    Raises:
        fhe.errors.InputError: the file is absent, truncated, damaged or of another kind or version.
        InputError: of another client or federation, or with arrays that do not belong together.
    """
    manifest.client_index(client)
    path = head_path(run, client)
    envelope = read_envelope(path, KIND)
    if envelope.header.get("client") != client:
        raise InputError(f"{path}: head of {envelope.header.get('client')!r}, expected {client!r}")
    if envelope.header.get("federation") != manifest.heads_fingerprint:
        raise InputError(f"{path}: belongs to another federation; train the client again")
    return Head(client, _bank(envelope.payload, manifest, path))


def _bank(payload: bytes, manifest: Manifest, path: Path) -> Bank:
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
    return Bank.fit(
        np.split(records, np.cumsum(sizes)[:-1]),
        cells,
        len(manifest.classes),
        dtype=records.dtype.type,
        regularisation=manifest.regularisation,  # type: ignore[arg-type]  # checked by the manifest
        factor=manifest.regularisation_factor,
    )
