"""Why a client's head answers as it does: which machine, which records with which weights.

For the client's owner alone: what it says are private records.
"""

from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from kahm import KAHM
from kahm.measures import measure_folds
from secure_fl.errors import InputError
from secure_fl.heads.head import load_arrays, machines_of
from secure_fl.heads.index import RecordIndex, index_path, load_index
from secure_fl.heads.living import Living
from secure_fl.heads.manifest import load_manifest

Array = NDArray[Any]


@attrs.frozen(eq=False)
class Weighed:
    """A record's part in a machine's image of the query.

    Attributes:
        row: its number as it came; None without an index, or where it stands for several.
        source: where it was read from; "" where that is not known.
        weight: of the affine combination, eq. (19); a machine's add up to 1, and some may be below
            0.
        features: as the head has them, scaled, shape (d,).
    """

    row: int | None
    source: str
    weight: float
    features: Array


@attrs.frozen(eq=False)
class Explanation:
    """A head's answer to one query.

    Attributes:
        label: class of the smallest measure of this client; the federation's answer is that of the
            smallest of all clients.
        measures: the smallest of each class, shape (C,), in [0, 1].
        machine: position in the head of the machine that gave the smallest one.
        size: records of it.
        distance: |x - A(x)|, in units of scaled features.
        angle: between x and A(x), degrees, in [0, 180].
        measure: of that machine, by differences from its records in float64.
        records: of it, by falling absolute weight.
        released: whether the records are a differentially private release of the client's.
    """

    label: str
    measures: Array
    machine: int
    size: int
    distance: float
    angle: float
    measure: float
    records: tuple[Weighed, ...]
    released: bool


def explain(run: Path, client: str, query: Array) -> Explanation:
    """Why a client's head gives a query its class.

    Args:
        run: the run folder.
        client: with a head there.
        query: scaled features, shape (d,).

    Raises:
        InputError: no head, or files that do not belong together.
    """
    manifest = load_manifest(run)
    arrays = load_arrays(run, client, manifest)
    batches = arrays.batches()
    bank = machines_of(arrays, manifest)
    point = query[None, :]
    (each,) = bank.machine_measures(point, manifest.measure)  # type: ignore[arg-type]  # checked by the manifest
    measures = np.ones(len(manifest.classes), each.dtype)
    np.minimum.at(measures, arrays.cells, each)
    # The lowest class wins a tie, as in the global rule.
    cell = int(np.argmin(measures))
    machine = int(np.flatnonzero((arrays.cells == cell) & (each == measures[cell]))[0])
    fitted = KAHM.fit(
        batches[machine].astype(np.float64),
        manifest.regularisation,  # type: ignore[arg-type]  # checked by the manifest
        manifest.regularisation_factor,
    )
    x = point.astype(np.float64)
    image = fitted.fold(x)
    fold = (x - fitted.centre) - (image - fitted.centre)
    angle = float(measure_folds(x, image, fold, "cosine")[0])
    floor = float(bank.floors[machine])
    exact = float(measure_folds(x, image, fold, manifest.measure, floor)[0])  # type: ignore[arg-type]  # as above
    index = load_index(run, client, manifest) if index_path(run, client).exists() else None
    if index is not None:
        Living.of(arrays, index, str(run))
    weights = fitted.weights(x)[0]
    records = _weighed(batches[machine], weights, index, machine)
    return Explanation(
        manifest.classes[cell],
        measures,
        machine,
        len(batches[machine]),
        float(np.linalg.norm(fold)),
        180.0 * angle,
        exact,
        tuple(sorted(records, key=lambda record: -abs(record.weight))),
        manifest.unit != "none",
    )


def _weighed(
    batch: Array, weights: Array, index: RecordIndex | None, machine: int
) -> list[Weighed]:
    if index is None:
        return [Weighed(None, "", float(w), row) for row, w in zip(batch, weights, strict=True)]
    made = int(index.order[machine])
    rows = index.rows_of(made)
    source = index.sources[index.arrival[made]]
    if index.flat[made]:
        # Their mean is all that the machine has: each of them is an equal part of it.
        share = 1.0 / len(rows)
        return [Weighed(int(row), source, share, batch[0]) for row in rows]
    return [
        Weighed(int(row), source, float(w), features)
        for row, features, w in zip(rows, batch, weights, strict=True)
    ]


def one_query(features: Array, row: int, where: str) -> Array:
    """A query of a file.

    Raises:
        InputError: it has no such row.
    """
    if not 0 <= row < len(features):
        raise InputError(f"{where}: no row {row}, it has {len(features)}, numbered from 0")
    found: Array = features[row]
    return found
