"""New records for a head that is there: all of them, or none, whatever kills the process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

import dp
from secure_fl.data import Dataset
from secure_fl.errors import InputError
from secure_fl.files import changing, reserve
from secure_fl.heads.fitting import batches_stream, whole_path
from secure_fl.heads.head import FILE_NAME as HEAD
from secure_fl.heads.head import head_inputs, head_path, load_arrays, save_arrays
from secure_fl.heads.index import FILE_NAME as INDEX
from secure_fl.heads.index import FORGOTTEN, index_path, load_index, record_digests, save_index
from secure_fl.heads.living import Living, with_arrival, with_release
from secure_fl.heads.manifest import FILE_NAME as MANIFEST
from secure_fl.heads.manifest import Manifest, load_manifest
from secure_fl.heads.released import prepare, write_statement
from secure_fl.heads.statements import SCALED, STATEMENT_FILES, load_statement, summed_statement
from secure_fl.privacy.ledgers import prove_room, records_digest
from secure_fl.privacy.promises import ReleasePromise

Array = NDArray[Any]
ROOM = 1 << 20


@attrs.frozen
class Updated:
    """What an update did.

    Attributes:
        client: whose head.
        added: records.
        repeated: of them, whose features the head had already.
        machines: of the head now.
        new_machines: of them.
        records: of the client that are in the head now.
        statement: of the head now, where it is a release.
        ledger: that its event is in, or None.
    """

    client: str
    added: int
    repeated: int
    machines: int
    new_machines: int
    records: int
    statement: dp.Statement | None
    ledger: Path | None


def update(
    run: Path,
    client: str,
    data: Dataset,
    *,
    seed: int = 0,
    again: bool = False,
    ledgers: Path | None = None,
) -> Updated:
    """Adds records to a client's head.

    A head that is a release gets the release of the new records, under the promise of the others,
    as one event of the client's ledger: a further part of the same division, so that a record costs
    what its own release costs.

    Args:
        run: the run folder.
        client: of the federation, with a head there.
        data: the new records, under the federation's classes and features.
        seed: of batches that are clusters.
        again: take records that the head has already. The release of such records adds up with the
            others in the ledger.
        ledgers: folder of the clients' ledgers; None takes the ledger that training wrote to.

    Raises:
        InputError: no head, or one without an index, or one that sums over clients released; or
            records that the head has: any of them where it is a release, else all of them.
        dp.BudgetError: the ledger's budget does not allow it; no noise was drawn.
        dp.LedgerError: the ledger was edited.
        StorageError: the disk is full; nothing was booked.
    """
    manifest = load_manifest(run)
    manifest.client_index(client)
    folder = head_path(run, client).parent
    if not folder.is_dir():
        raise InputError(f"{folder}: no head of {client!r} is here; train one (securefl train)")
    if summed_statement(folder) is not None:
        raise InputError(
            f'client "{client}": the head is one release of noisy sums over all clients, and'
            f" records cannot be added to it; {renewal(run)}"
        )
    X = head_inputs(data, manifest.scaling_map)
    with changing(folder) as aside:
        living = open_living(run, client, manifest)
        repeated = _repeated(living, X, again, data.where)
        source = whole_path(data.source)
        refuse_books(living, ledgers)
        if living.index.release is None:
            rng = batches_stream(manifest, client, seed, len(living.index.arrivals))
            found = with_arrival(living, X, data.y, manifest, rng, source)
            statement = ledger = None
        else:
            found, statement, ledger = _released(
                living, client, X, data, manifest, folder, aside, ledgers, again and repeated > 0
            )
        write_living(aside, client, found, manifest, statement)
    sizes = found.index.stored_sizes
    return Updated(
        client,
        len(X),
        repeated,
        int(np.count_nonzero(sizes)),
        len(found.stored) - len(living.stored),
        int(np.count_nonzero(found.index.batch != FORGOTTEN)),
        statement,
        None if ledger is None else ledger.path,
    )


def renewal(run: Path) -> str:
    """What makes a new release where one of sums over all clients cannot change."""
    facts = run / MANIFEST
    return (
        "a new release of all clients' records costs each of them as much again: securefl train"
        f" SOURCE --federation {facts} --method kahm-record-private, with the options of the first"
    )


def refuse_books(living: Living, ledgers: Path | None) -> None:
    """Refuses books for a head that books nothing: they could only mislead.

    Raises:
        InputError: a folder of ledgers is named, and the head is no release.
    """
    if ledgers is not None and living.index.release is None:
        raise InputError("--ledgers has no meaning for a head that is no release; leave it out")


def open_living(run: Path, client: str, manifest: Manifest) -> Living:
    """A client's head with its index, none of its machines fitted.

    Raises:
        InputError: either is absent, damaged or of another client or federation.
    """
    index = load_index(run, client, manifest)
    return Living.of(load_arrays(run, client, manifest), index, str(index_path(run, client)))


def write_living(
    aside: Path,
    client: str,
    living: Living,
    manifest: Manifest,
    statement: dp.Statement | None,
) -> None:
    """Writes a head's files into a folder of `changing`."""
    save_arrays(aside / HEAD, client, living.arrays, manifest)
    save_index(aside / INDEX, client, living.index, manifest)
    if statement is not None:
        write_statement(aside, statement)


def _repeated(living: Living, X: Array, again: bool, where: str) -> int:
    """How many of the new records the head has.

    Raises:
        InputError: more than it may have.
    """
    index = living.index
    known = np.ascontiguousarray(index.digests[index.batch != FORGOTTEN]).view("S16").ravel()
    new = np.ascontiguousarray(record_digests(X, index.key)).view("S16").ravel()
    there = np.isin(new, known)
    count = int(np.count_nonzero(there))
    if again or not count:
        return count
    row = int(np.flatnonzero(there)[0])
    if index.release is not None:
        raise InputError(
            f"{where}: {count} of its {len(X)} records, row {row} first, are in the head already,"
            " and their release would cost a second time; leave them out, or give --again"
        )
    if count == len(X):
        raise InputError(
            f"{where}: all its {len(X)} records are in the head already; if they are others with"
            " the same features, give --again"
        )
    return count


def _released(
    living: Living,
    client: str,
    X: Array,
    data: Dataset,
    manifest: Manifest,
    folder: Path,
    aside: Path,
    ledgers: Path | None,
    apart: bool,
) -> tuple[Living, dp.Statement, dp.Ledger]:
    release = living.index.release
    assert release is not None
    promise = ReleasePromise.from_json(release["promise"])
    prepared, rows, cells = prepare(client, X, data.y, manifest, promise)
    group, number = str(release["group"]), len(living.index.arrivals)
    ledger = ledger_of(release, client, ledgers, records_digest(data.X))
    before = load_statement(folder / STATEMENT_FILES[0])
    part = None if apart else dp.Part(group, number)
    event = attrs.evolve(prepared.event, part=part)
    ledger.check(event)
    # Before anything is booked: what was spent must not be lost for want of room.
    prove_room([ledger], 1)
    free = reserve(aside, _room(living, len(X), X.shape[1]))
    digest = ledger.spend(event)
    released = prepared.release(ledger, digest)
    free()
    found = with_release(living, released, X, rows, cells, whole_path(data.source))
    return found, _joined(before, released.statement, number + 1), ledger


def ledger_of(
    release: Mapping[str, Any], client: str, ledgers: Path | None, records: str = ""
) -> dp.Ledger:
    """The ledger that a head's first release is in.

    Args:
        release: of the head's index.
        client: whose head.
        ledgers: folder of the clients' ledgers; None takes the one that training wrote to.
        records: digest of records whose events will be booked, or "".

    Raises:
        InputError: it is not there, or is another one.
        dp.LedgerError: it was edited.
    """
    path = Path(release["ledger"]) if ledgers is None else ledgers / f"{client}.jsonl"
    ledger = dp.Ledger.open(path, records)
    if not any(each.part == dp.Part(release["group"], 0) for each in ledger.events):
        raise InputError(
            f"{path}: holds no event of this head's release; name the folder of the client's books"
            " (--ledgers)"
        )
    return ledger


def _room(living: Living, rows: int, columns: int) -> list[int]:
    """Bytes that the new files have at most."""
    every = len(living.index.batch) + rows
    return [ROOM + every * 4 * columns, ROOM + every * (8 * columns + 64), ROOM]


def _joined(before: dp.Statement, new: dp.Statement, arrivals: int) -> dp.Statement:
    """One statement for releases of disjoint records under one promise."""
    return attrs.evolve(
        new,
        passes=before.passes + new.passes,
        shares=before.shares + new.shares,
        batches=before.batches + new.batches,
        rows=before.rows + new.rows,
        assumptions=(
            *new.assumptions,
            *(each for each in before.assumptions if each.startswith(SCALED)),
            f"the records came in {arrivals} arrivals, each of them in one; every arrival's release"
            " is an event of its own in the books, and the digest is of the last",
        ),
    )
