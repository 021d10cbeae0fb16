"""A head whose records come and go: only machines that hold them are made anew.

An arrival's records make batches of their own, as if they were all that there is; what was there
keeps its batches. So the head after any number of arrivals is the one that all its batches make
together, byte for byte, and the head without some records is the one that its batches less these
records make. Everything here is data in, data out; `secure_fl.heads.updating` and `forgetting`
have the files.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

import dp
from dp.release import smooth_batch
from dp.release_plan import make_plan
from dp.smoothing import Smoothed
from kahm import Bank
from secure_fl.errors import InputError
from secure_fl.heads.head import HeadArrays, batch_rows, stored_type
from secure_fl.heads.index import FORGOTTEN, RecordIndex, batch_of_rows, record_digests
from secure_fl.heads.manifest import Manifest
from secure_fl.privacy.promises import ReleasePromise

Array = NDArray[Any]


@attrs.frozen(eq=False)
class Living:
    """A head's batches in the order in which they were made, and the index of their records.

    Attributes:
        stored: rows that the head has of each batch; none where all its records are forgotten.
        index: of the records.
        dtype: of the stored rows.
    """

    stored: tuple[Array, ...]
    index: RecordIndex
    dtype: type

    @classmethod
    def of(cls, arrays: HeadArrays, index: RecordIndex, where: str) -> "Living":
        """Joins what a head's file and its index hold.

        Args:
            arrays: of the head.
            index: beside it.
            where: whose they are, for messages.

        Raises:
            InputError: they do not belong together.
        """
        order = index.order
        if not (
            np.array_equal(index.stored_sizes[order], arrays.sizes)
            and np.array_equal(index.cells[order], arrays.cells)
        ):
            raise InputError(f"{where}: head and index do not belong together; train again")
        none = arrays.records[:0]
        stored = [none] * len(index.cells)
        for batch, rows in zip(order.tolist(), arrays.batches(), strict=True):
            stored[batch] = rows
        return cls(tuple(stored), index, arrays.records.dtype.type)

    @property
    def arrays(self) -> HeadArrays:
        """What the head's file holds; machines sorted by their records, as `Bank.fit` does."""
        order = self.index.order
        return HeadArrays(
            np.concatenate([self.stored[i] for i in order]).astype(self.dtype, copy=False),
            self.index.stored_sizes[order],
            self.index.cells[order],
        )

    @property
    def inputs(self) -> list[Array]:
        """The records of each batch, of heads that are no releases."""
        kept = self.index.inputs
        return [kept.get(i, rows) for i, rows in enumerate(self.stored)]


def with_arrival(
    living: Living,
    X: Array,
    y: NDArray[np.integer[Any]],
    manifest: Manifest,
    rng: np.random.Generator,
    source: str,
) -> Living:
    """The head of all records so far and of these, which came after them.

    Args:
        living: a head that is no release.
        X: scaled features of the new records, shape (n, d), n >= 1.
        y: their class codes, shape (n,).
        manifest: the federation's facts.
        rng: of this arrival; draws the first centres where batches are clusters.
        source: where the records were read from.
    """
    rows, cells = batch_rows(X, y, manifest, rng)
    # Records keep the precision that they arrived in, whatever comes later.
    own = stored_type(X)
    batches: list[Array] = [X[each].astype(own) for each in rows]
    flat = _flat(batches, cells, own)
    first = len(living.stored)
    index = _grown(living.index, X, rows, cells, flat, source)
    inputs = {first + i: batches[i] for i in np.flatnonzero(flat).tolist()}
    index = attrs.evolve(index, inputs={**index.inputs, **inputs})
    dtype = np.result_type(living.dtype, own).type
    return _stored(index, [*living.inputs, *batches], dtype)


def with_release(
    living: Living,
    released: dp.BatchRelease,
    X: Array,
    rows: Sequence[NDArray[np.int64]],
    cells: Sequence[int],
    source: str,
) -> Living:
    """As `with_arrival`, of a head that is a release: from the release of the new records alone.

    Args:
        living: a head that is a release.
        released: of the new batches.
        X: scaled features of the new records, which the index alone recognises.
        rows: of each new batch.
        cells: class of each new batch.
        source: where the records were read from.
    """
    flat = _flat(released.matrices, cells, np.float32)
    first = len(living.stored)
    index = _grown(living.index, X, rows, cells, flat, source)
    noisy = {first + i: each for i, each in enumerate(released.noisy)}
    index = attrs.evolve(index, inputs={**index.inputs, **noisy})
    new = (_rows(each, own) for each, own in zip(released.matrices, flat, strict=True))
    return Living((*living.stored, *(each.astype(np.float32) for each in new)), index, np.float32)


@attrs.frozen(eq=False)
class Forgotten:
    """A head without some of its records.

    Attributes:
        living: the head.
        rows: of the records that were forgotten, ascending.
        rebuilt: batches whose machines were made anew.
        dropped: batches of which nothing is left.
        smoothed: of releases: the blocks of each rebuilt batch.
    """

    living: Living
    rows: NDArray[np.int64]
    rebuilt: tuple[int, ...]
    dropped: tuple[int, ...]
    smoothed: dict[int, list[Smoothed]]


def without(living: Living, rows: NDArray[np.int64]) -> Forgotten:
    """The head that its batches less some records make; others than theirs are not looked at.

    Of a release the noisy rows of these records are taken out before smoothing. What is left was
    released before, so it costs nothing.

    Args:
        living: the head.
        rows: numbers of records that it holds, distinct and ascending.

    Raises:
        InputError: no record would be left.
    """
    index = living.index
    if len(rows) == int(np.count_nonzero(index.batch != FORGOTTEN)):
        raise InputError(
            "forget: these are all records of the client, and a head needs at least 1; remove the"
            " client's folder from the run, and let it leave the federation"
        )
    touched = np.unique(index.batch[rows]).tolist()
    gone = np.zeros(len(index.batch), bool)
    gone[rows] = True
    left = {i: ~gone[index.rows_of(i)] for i in touched}
    batch, digests = index.batch.copy(), index.digests.copy()
    batch[rows], digests[rows] = FORGOTTEN, 0
    index = attrs.evolve(index, batch=batch, digests=digests)
    if index.release is None:
        found = _without_records(living, index, left)
        return Forgotten(found, rows, *_by_rest(touched, left), {})
    found, smoothed = _without_noisy(living, index, left)
    return Forgotten(found, rows, *_by_rest(touched, left), smoothed)


def _by_rest(
    touched: Sequence[int], left: dict[int, NDArray[np.bool_]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rebuilt = tuple(i for i in touched if left[i].any())
    return rebuilt, tuple(i for i in touched if not left[i].any())


def _without_records(
    living: Living, index: RecordIndex, left: dict[int, NDArray[np.bool_]]
) -> Living:
    inputs = living.inputs
    for i, kept in left.items():
        inputs[i] = inputs[i][kept]
    dtype, changed = living.dtype, set(left)
    if dtype is np.float64:
        dtype = _narrow(inputs, index.arrival, changed)
    flat = index.flat.copy()
    there = [i for i in sorted(changed) if len(inputs[i])]
    flat[sorted(changed)] = False
    if there:
        flat[there] = _flat([inputs[i] for i in there], index.cells[there], np.float64)
    kept_inputs = {i: inputs[i] for i in np.flatnonzero(flat).tolist()}
    return _stored(attrs.evolve(index, flat=flat, inputs=kept_inputs), inputs, dtype)


def _narrow(inputs: list[Array], arrival: NDArray[np.int32], changed: set[int]) -> type:
    """Rounds arrivals that no longer need float64, and says what the head needs."""
    wide = False
    for each in np.unique(arrival).tolist():
        own = [i for i in np.flatnonzero(arrival == each).tolist() if len(inputs[i])]
        if not own or stored_type(np.concatenate([inputs[i] for i in own])) is np.float64:
            wide = wide or bool(own)
            continue
        for i in own:
            narrow = inputs[i].astype(np.float32)
            if not np.array_equal(narrow, inputs[i]):
                inputs[i] = narrow
                changed.add(i)
    return np.float64 if wide else np.float32


def _without_noisy(
    living: Living, index: RecordIndex, left: dict[int, NDArray[np.bool_]]
) -> tuple[Living, dict[int, list[Smoothed]]]:
    assert index.release is not None
    plan = make_plan(**ReleasePromise.from_json(index.release["promise"]).terms())
    inputs, stored, flat = dict(index.inputs), list(living.stored), index.flat.copy()
    variance = plan.variance(stored[0].shape[1])
    smoothed: dict[int, list[Smoothed]] = {}
    for i, kept in left.items():
        flat[i] = False
        if not kept.any():
            del inputs[i]
            stored[i] = stored[i][:0]
            continue
        inputs[i] = inputs[i][kept]
        matrix, smoothed[i] = smooth_batch(inputs[i], plan, variance)
        flat[i] = _flat([matrix], [0], np.float32)[0]
        stored[i] = _rows(matrix, flat[i]).astype(np.float32)
    index = attrs.evolve(index, flat=flat, inputs=inputs)
    return Living(tuple(stored), index, np.float32), smoothed


def _grown(
    index: RecordIndex,
    X: Array,
    rows: Sequence[NDArray[np.int64]],
    cells: Sequence[int],
    flat: NDArray[np.bool_],
    source: str,
) -> RecordIndex:
    new = batch_of_rows(len(X), rows) + np.int32(len(index.cells))
    arrival = np.full(len(rows), len(index.arrivals), np.int32)
    return attrs.evolve(
        index,
        arrivals=(*index.arrivals, len(X)),
        sources=(*index.sources, source),
        batch=np.concatenate([index.batch, new]),
        cells=np.concatenate([index.cells, np.asarray(cells, np.int64)]),
        arrival=np.concatenate([index.arrival, arrival]),
        flat=np.concatenate([index.flat, flat]),
        digests=np.concatenate([index.digests, record_digests(X, index.key)]),
    )


def _flat(batches: Sequence[Array], cells: Any, dtype: type) -> NDArray[np.bool_]:
    """Which batches do not spread, as the bank that is made of them finds it."""
    return Bank.fit_noting(batches, cells, int(np.max(cells)) + 1, dtype=dtype)[1]


def _stored(index: RecordIndex, inputs: Sequence[Array], dtype: type) -> Living:
    rows = (_rows(each, own) for each, own in zip(inputs, index.flat, strict=True))
    return Living(tuple(each.astype(dtype, copy=False) for each in rows), index, dtype)


def _rows(records: Array, flat: bool) -> Array:
    """What a head holds of a batch: its records, or their mean where they do not spread."""
    if not flat:
        return records
    mean: Array = records.mean(axis=0, keepdims=True, dtype=np.float64)
    return mean
