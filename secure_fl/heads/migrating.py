"""Run folders of earlier versions: what their files are, and what they lack made up for.

Heads of versions that kept no index of their records get one from the client's file, if the head is
the one that training makes of it. The noisy rows of an old release are not there any more, so its
index cannot be made; such a head answers queries as before.
"""

from pathlib import Path
from typing import Literal, TypeAlias

import attrs
import numpy as np

from secure_fl.data import Dataset
from secure_fl.errors import InputError
from secure_fl.files import changing
from secure_fl.heads.fitting import batches_stream, whole_path
from secure_fl.heads.head import (
    batch_rows,
    fit_machines,
    head_inputs,
    head_path,
    load_arrays,
    stored_type,
)
from secure_fl.heads.index import FILE_NAME as INDEX
from secure_fl.heads.index import first_index, index_path, load_index, save_index
from secure_fl.heads.manifest import Manifest, load_manifest
from secure_fl.heads.statements import summed_statement

State: TypeAlias = Literal[
    "current", "indexed", "needs its records", "a release", "a release of sums"
]
SAID: dict[State, str] = {
    "current": "head and index are of this version",
    "indexed": "read as it was, and its index made",
    "needs its records": "read as it is; for update and forget name its client file (--records)",
    "a release": "read as it is; its noisy rows were not kept, so update and forget need training"
    " anew, which costs privacy again",
    "a release of sums": "one release of sums over all clients, of this version; it holds no"
    " records, so none can be added or taken out (securefl update and forget say what can be done)",
}
"""What a state of a client's head means."""


@attrs.frozen
class Migrated:
    """A client's head in a run folder.

    Attributes:
        client: its name.
        state: of its files, one of `SAID`.
    """

    client: str
    state: State

    @property
    def said(self) -> str:
        """In words."""
        return SAID[self.state]


def migrate(run: Path, records: dict[str, Dataset], *, seed: int = 0) -> tuple[Migrated, ...]:
    """Brings the heads of a run folder to this version, where that is possible.

    Args:
        run: the run folder.
        records: of clients whose head was trained on them, by name.
        seed: that the heads were trained with; of batches that are clusters.

    Raises:
        InputError: a file that cannot be read, no head of a client that is named, or a head that
            training does not make of the records.
    """
    manifest = load_manifest(run)
    here = [name for name in manifest.clients if head_path(run, name).exists()]
    for name in records:
        if name not in here:
            raise InputError(f"{run}: no head of {name!r} is here; its heads are {', '.join(here)}")
    if not here:
        raise InputError(f"{run}: no client's head is here")
    return tuple(Migrated(name, _migrated(run, name, manifest, records, seed)) for name in here)


def _migrated(
    run: Path, client: str, manifest: Manifest, records: dict[str, Dataset], seed: int
) -> State:
    load_arrays(run, client, manifest)
    if index_path(run, client).exists():
        load_index(run, client, manifest)
        return "current"
    if summed_statement(index_path(run, client).parent) is not None:
        return "a release of sums"
    if manifest.unit != "none":
        return "a release"
    if client not in records:
        return "needs its records"
    _make_index(run, client, manifest, records[client], seed)
    return "indexed"


def _make_index(run: Path, client: str, manifest: Manifest, data: Dataset, seed: int) -> None:
    X = head_inputs(data, manifest.scaling_map)
    rows, cells = batch_rows(X, data.y, manifest, batches_stream(manifest, client, seed))
    batches = [X[own] for own in rows]
    bank, flat = fit_machines(batches, cells, manifest, stored_type(X))
    inputs = {i: batches[i].astype(bank.records.dtype) for i in np.flatnonzero(flat).tolist()}
    with changing(head_path(run, client).parent) as aside:
        arrays = load_arrays(run, client, manifest)
        same = (
            np.array_equal(bank.sizes, arrays.sizes)
            and np.array_equal(bank.cells, arrays.cells)
            and np.array_equal(bank.records, arrays.records)
        )
        if not same:
            raise InputError(
                f"{data.where}: training does not make the head of {run} of them; name the file, in"
                " its order, and the --seed that it was trained with"
            )
        index = first_index(X, rows, cells, flat, inputs, source=whole_path(data.source))
        save_index(aside / INDEX, client, index, manifest)
