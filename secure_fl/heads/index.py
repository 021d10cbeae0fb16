"""Which of a client's records is in which machine of its head: what lets records come and go.

The index lies beside the head, readable by its owner only, and stays with the client even where the
head is a release: it recognises records. Batches are counted as they were made: arrival by arrival
(the first is what the head was trained on), in each by class, in a class as `kahm.split` has them.
The head's file has them sorted by their size, those of one size in that order.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fhe.envelope import PRIVATE, read_envelope, write_envelope
from secure_fl.data.scaling import Scale, mapped_features, scaling_of
from secure_fl.errors import InputError
from secure_fl.files import finish_change
from secure_fl.heads.manifest import Manifest

KIND = "kahm record index"
FILE_NAME = "index"
FORGOTTEN = -1
_DIGEST = 16
_KEY = 16

Array = NDArray[Any]


@attrs.frozen(eq=False, kw_only=True)
class RecordIndex:
    """A client's n records in B batches, some of them perhaps forgotten.

    Attributes:
        arrivals: records of each arrival as they came, forgotten ones too; their sum is n.
        sources: where each arrival's records were read from, one line each.
        batch: of each record, shape (n,), `FORGOTTEN` where it was.
        cells: class of each batch, shape (B,).
        arrival: of each batch, shape (B,), ascending.
        flat: batches whose records do not spread, so that the head has their mean alone, (B,).
        digests: of the records' features under `key`, shape (n, 16), 0 where forgotten.
        key: 16 bytes, so that digests say nothing without the file.
        inputs: what machines are built from and the head does not hold, by batch: of releases the
            noisy rows of every batch before smoothing, else the records of flat batches.
        release: of releases: the promise, the group of its events and the ledger; else None.
    """

    arrivals: tuple[int, ...]
    sources: tuple[str, ...]
    batch: NDArray[np.int32]
    cells: NDArray[np.int64]
    arrival: NDArray[np.int32]
    flat: NDArray[np.bool_]
    digests: NDArray[np.uint8]
    key: bytes = attrs.field(repr=False)
    inputs: Mapping[int, Array]
    release: Mapping[str, Any] | None = None

    @property
    def counts(self) -> NDArray[np.int64]:
        """Records of each batch that are left, shape (B,)."""
        left = self.batch[self.batch != FORGOTTEN]
        return np.bincount(left, minlength=len(self.cells)).astype(np.int64)

    @property
    def stored_sizes(self) -> NDArray[np.int64]:
        """Rows that the head has of each batch, shape (B,)."""
        counts = self.counts
        return np.where(self.flat, np.minimum(counts, 1), counts)

    @property
    def order(self) -> NDArray[np.int64]:
        """The batch of each machine of the head, in the order of the machines."""
        sizes = self.stored_sizes
        present = np.flatnonzero(sizes)
        return present[np.argsort(sizes[present], kind="stable")]

    def rows_of(self, batch: int) -> NDArray[np.int64]:
        """Row numbers of the records that are left in a batch, ascending."""
        return np.flatnonzero(self.batch == batch)

    def find(self, digests: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Row numbers of the records with one of these digests, ascending; shape (k, 16)."""
        wanted = {each.tobytes() for each in digests} - {bytes(_DIGEST)}
        if not wanted:
            return np.empty(0, np.int64)
        # Texts of one length: that NumPy drops zeros at their ends makes no two of them alike.
        known = np.ascontiguousarray(self.digests).view(f"S{_DIGEST}").ravel()
        asked = np.array(sorted(wanted), dtype=f"S{_DIGEST}")
        return np.flatnonzero(np.isin(known, asked) & (self.batch != FORGOTTEN))


def new_key() -> bytes:
    """For the digests of a new index; from the operating system."""
    return os.urandom(_KEY)


def record_digests(X: Array, key: bytes) -> NDArray[np.uint8]:
    """Names records by their features, shape (n, 16); keyed BLAKE2b of them in single precision.

    Args:
        X: scaled features, shape (n, d).
        key: of the index.
    """
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(X.astype(np.float32) + np.float32(0))  # no signed zeros
    found = b"".join(
        hashlib.blake2b(row.data, digest_size=_DIGEST, key=key).digest() for row in rows
    )
    return np.frombuffer(found, np.uint8).reshape(-1, _DIGEST)


def features_digests(X: Array, scale: Scale, key: bytes) -> list[NDArray[np.uint8]]:
    """Digests of unscaled features as either type scales them: another file may have rounded them.

    Args:
        X: shape (n, d).
        scale: constant factor on the features, or a scaling of as many.
        key: of the index.

    Returns:
        Two arrays of shape (n, 16).
    """
    scaling = scaling_of(scale)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = mapped_features(X.astype(np.float32), scaling, np.float32)
        double = mapped_features(X.astype(np.float64), scaling, np.float64)
    return [record_digests(single, key), record_digests(double, key)]


def first_index(
    X: Array,
    rows: Sequence[NDArray[np.integer[Any]]],
    cells: Sequence[int],
    flat: NDArray[np.bool_],
    inputs: Mapping[int, Array],
    *,
    source: str,
    release: Mapping[str, Any] | None = None,
) -> RecordIndex:
    """The index of a head that was just trained.

    Args:
        X: the client's scaled records, shape (n, d).
        rows: of each batch.
        cells: class of each batch.
        flat, inputs, release: as `RecordIndex`.
        source: where the records were read from.
    """
    key = new_key()
    return RecordIndex(
        arrivals=(len(X),),
        sources=(source,),
        batch=batch_of_rows(len(X), rows),
        cells=np.asarray(cells, np.int64),
        arrival=np.zeros(len(rows), np.int32),
        flat=flat,
        digests=record_digests(X, key),
        key=key,
        inputs=inputs,
        release=release,
    )


def batch_of_rows(n: int, rows: Sequence[NDArray[np.integer[Any]]]) -> NDArray[np.int32]:
    """The batch of each of n records from the records of each batch."""
    found = np.full(n, FORGOTTEN, np.int32)
    for i, own in enumerate(rows):
        found[own] = i
    return found


def index_path(run: Path, client: str) -> Path:
    """Where a client's index lies in a run folder."""
    return run / "clients" / client / FILE_NAME


def save_index(path: Path, client: str, index: RecordIndex, manifest: Manifest) -> int:
    """Writes an index, mode 0600; returns its bytes."""
    kept = sorted(index.inputs)
    wide = [index.inputs[i] for i in kept] or [np.empty((0, manifest.n_features), np.float32)]
    tensors: dict[str, Array] = {
        "batch": index.batch,
        "cells": index.cells,
        "arrival": index.arrival,
        "flat": index.flat.astype(np.uint8),
        "digests": np.ascontiguousarray(index.digests),
        "kept": np.asarray(kept, np.int64),
        "kept_sizes": np.asarray([len(index.inputs[i]) for i in kept], np.int64),
        "inputs": np.concatenate(wide),
    }
    header = {
        "client": client,
        "federation": manifest.heads_fingerprint,
        "arrivals": list(index.arrivals),
        "sources": list(index.sources),
        "key": index.key.hex(),
        "release": None if index.release is None else dict(index.release),
    }
    return write_envelope(path, KIND, header, save_tensors(tensors), mode=PRIVATE)


def load_index(run: Path, client: str, manifest: Manifest) -> RecordIndex:
    """Reads a client's index.

    Raises:
        fhe.errors.InputError: truncated, damaged or of another kind or version.
        InputError: there is none, or it is of another client or federation, or holds arrays that
            do not belong together.
    """
    manifest.client_index(client)
    path = index_path(run, client)
    if path.parent.is_dir():
        finish_change(path.parent)
    if not path.exists():
        raise InputError(
            f'client "{client}": no record index at {path}; heads of 0.1 and of methods that sum'
            " over clients have none: train the client again, or see securefl migrate"
        )
    envelope = read_envelope(path, KIND)
    header = envelope.header
    ours = manifest.takes_heads_of(header.get("federation"))
    if header.get("client") != client or not ours:
        raise InputError(f"{path}: belongs to another client or federation; train again")
    try:
        return _read(load_tensors(envelope.payload), header, manifest)
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: its content cannot be used ({error}); train again") from error


def _read(
    tensors: Mapping[str, Array], header: Mapping[str, Any], manifest: Manifest
) -> RecordIndex:
    batch, cells, arrival = tensors["batch"], tensors["cells"], tensors["arrival"]
    digests, inputs = tensors["digests"], tensors["inputs"]
    kept, sizes, flat = tensors["kept"], tensors["kept_sizes"], tensors["flat"].astype(bool)
    arrivals = tuple(header["arrivals"])
    sources = tuple(header["sources"])
    n, n_batches = len(batch), len(cells)
    fits = (
        all(isinstance(each, int) and each >= 0 for each in arrivals)
        and all(isinstance(each, str) for each in sources)
        and len(arrivals) == len(sources) > 0
        and sum(arrivals) == n
        and batch.dtype == arrival.dtype == np.int32
        and cells.dtype == kept.dtype == sizes.dtype == np.int64
        and batch.shape == (n,)
        and cells.shape == arrival.shape == flat.shape == (n_batches,)
        and digests.dtype == np.uint8
        and digests.shape == (n, _DIGEST)
        and kept.shape == sizes.shape == (len(kept),)
        and inputs.dtype in (np.float32, np.float64)
        and inputs.shape == (int(sizes.sum()), manifest.n_features)
        and n_batches > 0
        and FORGOTTEN <= int(batch.min(initial=0)) <= int(batch.max(initial=0)) < n_batches
        and 0 <= int(cells.min()) <= int(cells.max()) < len(manifest.classes)
        and 0 <= int(arrival.min()) <= int(arrival.max()) < len(arrivals)
        and bool(np.all(np.diff(arrival) >= 0))
        and bool(np.all(np.diff(kept) > 0))
        and bool(np.all((kept >= 0) & (kept < n_batches) & (sizes >= 0)))
    )
    release = header["release"]
    if not fits or not isinstance(release, dict | None):
        raise ValueError("arrays do not belong together")
    parts = np.split(inputs, np.cumsum(sizes)[:-1]) if len(kept) else []
    return RecordIndex(
        arrivals=arrivals,
        sources=sources,
        batch=batch,
        cells=cells,
        arrival=arrival,
        flat=flat,
        digests=digests,
        key=bytes.fromhex(header["key"]),
        inputs=dict(zip(kept.tolist(), parts, strict=True)),
        release=release,
    )
