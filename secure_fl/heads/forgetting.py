"""The right to erasure: records leave a head, and nothing of them stays in its files.

Only machines that hold them are made anew. The folders that are named are searched for copies of
the records and of features of their texts; a receipt says what was removed from what, what was
found and is its owner's to remove, and what cannot be recalled.
"""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

import dp
from dp.smoothing import Smoothed
from fhe.envelope import PRIVATE, write_atomic
from secure_fl.data import ReadOptions
from secure_fl.errors import InputError
from secure_fl.files import changing, reserve
from secure_fl.heads.head import head_path
from secure_fl.heads.index import FORGOTTEN, RecordIndex, features_digests, new_key
from secure_fl.heads.living import Forgotten, Living, without
from secure_fl.heads.manifest import Manifest, load_manifest
from secure_fl.heads.searching import Found, search
from secure_fl.heads.statements import STATEMENT_FILES, load_statement, summed_statement
from secure_fl.heads.updating import (
    ROOM,
    ledger_of,
    open_living,
    refuse_books,
    renewal,
    write_living,
)

Array = NDArray[Any]


@attrs.frozen
class Artifact:
    """A file that records were removed from.

    Attributes:
        name: in the run folder.
        before: SHA-256 of what it held, hexadecimal.
        after: SHA-256 of what it holds.
    """

    name: str
    before: str
    after: str


@attrs.frozen
class Erasure:
    """What was forgotten; numbers and places only, so that it may be shown around.

    Attributes:
        client: whose records.
        federation: fingerprint of its manifest.
        time: of the change, UTC.
        records: how many were forgotten.
        left: how many the head still has; 0 where it is a release of sums, which has none.
        rebuilt: machines that were made anew.
        dropped: machines of which nothing was left.
        artifacts: files that were written anew.
        elsewhere: copies that the search found in other places.
        not_recalled: what cannot be taken back, one sentence each.
    """

    client: str
    federation: str
    time: str
    records: int
    left: int
    rebuilt: int
    dropped: int
    artifacts: tuple[Artifact, ...]
    elsewhere: tuple[Found, ...]
    not_recalled: tuple[str, ...]


def forget(
    run: Path,
    client: str,
    *,
    rows: Sequence[int] = (),
    X: Array | None = None,
    places: Sequence[Path] = (),
    options: ReadOptions | None = None,
    receipt: Callable[[Erasure], str] | None = None,
    ledgers: Path | None = None,
) -> tuple[Erasure, Path | None]:
    """Removes records from a client's head.

    A head that `kahm-record-private` released holds no record of anybody, and what the noisy sums
    got from one cannot be taken out of them. Its erasure changes no file but caches that are found;
    it says what was promised, and how a new release is made.

    Args:
        run: the run folder.
        client: with a head there.
        rows: numbers of its records as they came, from 0; those that were forgotten keep theirs.
        X: or the records themselves: features as in the client's files, not scaled, shape (n, d).
            Records of the same features are forgotten too.
        places: files and folders that are searched for copies, beside the files that the records
            were read from.
        options: of reading client files there.
        receipt: the text of a file that is written beside the head, in the same moment.
        ledgers: folder of the clients' ledgers, for what releases promise; None takes the ledger
            that training wrote to.

    Returns:
        What was forgotten, and the receipt's place.

    Raises:
        InputError: no head or index, an unknown or forgotten record, one that the head does not
            hold, or all that it holds; records that are only numbered, of a release of sums.
        StorageError: the disk is full; nothing was changed.
    """
    options = options or ReadOptions()
    manifest = load_manifest(run)
    manifest.client_index(client)
    folder = head_path(run, client).parent
    if not folder.is_dir():
        raise InputError(f"{folder}: no head of {client!r} is here")
    with changing(folder) as aside:
        summed = summed_statement(folder)
        if summed is not None:
            erasure = _of_sums(run, client, manifest, X, summed, places, options, ledgers)
            return erasure, _given(aside, folder, erasure, receipt)
        living = open_living(run, client, manifest)
        refuse_books(living, ledgers)
        wanted = _wanted(living.index, client, rows, X, manifest)
        digests = living.index.digests[wanted]
        not_recalled = _not_recalled(living.index, client, manifest, ledgers)
        found = without(living, wanted)
        statement = _restated(folder, living, found)
        names = ["head", "index", *(STATEMENT_FILES if statement is not None else ())]
        before = {name: _digest(folder / name) for name in names}
        free = reserve(aside, [2 * (folder / name).stat().st_size + ROOM for name in names])
        free()
        write_living(aside, client, found.living, manifest, statement)
        artifacts = tuple(
            Artifact(f"clients/{client}/{name}", before[name], _digest(aside / name))
            for name in names
        )
        sources = [Path(each) for each in dict.fromkeys(living.index.sources) if each]
        where = [*sources, *places]
        elsewhere = search(where, digests, living.index.key, manifest, folder, options)
        erasure = Erasure(
            client,
            manifest.fingerprint,
            datetime.now(UTC).isoformat(timespec="seconds"),
            len(wanted),
            int(np.count_nonzero(found.living.index.batch != FORGOTTEN)),
            len(found.rebuilt),
            len(found.dropped),
            artifacts,
            elsewhere,
            (*not_recalled, *(each.remark for each in elsewhere if each.what == "model")),
        )
        return erasure, _given(aside, folder, erasure, receipt)


def _given(
    aside: Path, folder: Path, erasure: Erasure, receipt: Callable[[Erasure], str] | None
) -> Path | None:
    """Writes the receipt aside; returns where it will lie."""
    if receipt is None:
        return None
    name = f"receipt-{secrets.token_hex(8)}.json"
    write_atomic(aside / name, receipt(erasure).encode(), mode=PRIVATE)
    return folder / name


def _of_sums(
    run: Path,
    client: str,
    manifest: Manifest,
    X: Array | None,
    statement: dp.Statement,
    places: Sequence[Path],
    options: ReadOptions,
    ledgers: Path | None,
) -> Erasure:
    """What is said of records that a release of sums over all clients was made with."""
    if X is None or not len(X):
        raise InputError(
            f'client "{client}": the head is one release of noisy sums and numbers no records; name'
            " a client file with the records themselves"
        )
    if ledgers is not None:
        raise InputError(
            "--ledgers has no meaning for a release of sums, whose statement says what it promises;"
            " leave it out"
        )
    key = new_key()
    digests = np.concatenate(features_digests(X, manifest.scaling_map, key))
    elsewhere = search(places, digests, key, manifest, head_path(run, client).parent, options)
    promised = (
        f"the head, one release of noisy sums over all clients: it was made with the records; its"
        f" promise of epsilon {statement.epsilon:g} at delta {statement.delta:g} per"
        f" {statement.unit} holds for who left as well; {renewal(run)}, without the records"
    )
    return Erasure(
        client,
        manifest.fingerprint,
        datetime.now(UTC).isoformat(timespec="seconds"),
        len(X),
        0,
        0,
        0,
        (),
        elsewhere,
        (promised, *ALWAYS[:2], *(each.remark for each in elsewhere if each.what == "model")),
    )


def _wanted(
    index: RecordIndex, client: str, rows: Sequence[int], X: Array | None, manifest: Manifest
) -> NDArray[np.int64]:
    """Numbers of the records that are asked for, ascending."""
    if X is None:
        wanted = np.unique(np.asarray(list(rows), np.int64))
        bad = wanted[(wanted < 0) | (wanted >= len(index.batch))]
        if len(bad):
            raise InputError(
                f'client "{client}": no record {bad[0]}, it has {len(index.batch)}, numbered from'
                " 0 as they came"
            )
        gone = wanted[index.batch[wanted] == FORGOTTEN]
        if len(gone):
            raise InputError(f'client "{client}": record {gone[0]} is forgotten already')
    else:
        wanted = _of_records(index, client, X, manifest)
    if not len(wanted):
        raise InputError(f'client "{client}": no record is named; give their numbers or features')
    return wanted


def _of_records(index: RecordIndex, client: str, X: Array, manifest: Manifest) -> NDArray[np.int64]:
    every: list[NDArray[np.int64]] = []
    named = features_digests(X, manifest.scaling_map, index.key)
    for i in range(len(X)):
        own = index.find(np.stack([each[i] for each in named]))
        if not len(own):
            raise InputError(
                f'client "{client}": record {i} of those to forget is not in the head; nothing was'
                " forgotten"
            )
        every.append(own)
    return np.unique(np.concatenate(every)) if every else np.empty(0, np.int64)


def _restated(folder: Path, living: Living, found: Forgotten) -> dp.Statement | None:
    """The statement of a release without the records; the promise stays what it was."""
    if living.index.release is None:
        return None
    old = load_statement(folder / STATEMENT_FILES[0])
    counts, left = living.index.counts, found.living.index.counts
    passes, shares = list(old.passes), list(old.shares)
    if len(passes) != int(_blocks(counts).sum()):
        raise InputError(f"{folder}: statement and index do not belong together; train again")
    ends = np.cumsum(_blocks(counts))
    for i in sorted((*found.rebuilt, *found.dropped), reverse=True):
        own: list[Smoothed] = found.smoothed.get(i, [])
        place = slice(int(ends[i] - _blocks(counts)[i]), int(ends[i]))
        passes[place] = [each.passes for each in own]
        shares[place] = [each.share for each in own]
    return attrs.evolve(
        old,
        passes=tuple(passes),
        shares=tuple(shares),
        batches=int(np.count_nonzero(left)),
        rows=int(left.sum()),
    )


def _blocks(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Blocks that each batch is smoothed in."""
    from dp.release import MOST_ROWS

    return -(-counts // MOST_ROWS)


ALWAYS = (
    "answers that were given while the head had the records",
    "copies of the folders elsewhere, such as backups, and freed blocks of the disk",
    "contributors that run go on with the head that they read when they started: start them again",
)
"""What no change of files takes back."""


SUMMED = "the manifest's means and deviations of features, which the records were summed into"
COUNTED = "the manifest's right answers and losses of settings that were tried on the records"


def _not_recalled(
    index: RecordIndex, client: str, manifest: Manifest, ledgers: Path | None
) -> tuple[str, ...]:
    """What cannot be taken back, and what is promised of it."""
    if index.release is None:
        summed = (SUMMED,) if manifest.scaling == "moments" else ()
        return (*ALWAYS, *summed, *((COUNTED,) if manifest.tried else ()))
    ledger = ledger_of(index.release, client, ledgers)
    said = [
        f"event {each.what!r} of the ledger {ledger.path.name}: what was given away of it stays;"
        f" its promise {_promise(each)} per {each.adjacency.unit} holds for who left as well"
        for each in dict.fromkeys(attrs.evolve(event, part=None) for event in ledger.events)
    ]
    return (*said, "records that were forgotten and come back are released a second time", *ALWAYS)


def _promise(event: dp.Event) -> str:
    if event.promise is None:
        return "of Gaussian noise"
    return f"of epsilon {event.promise.epsilon:g} at delta {event.promise.delta:g}"


def _digest(path: Path) -> str:
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            whole.update(block)
    return whole.hexdigest()
