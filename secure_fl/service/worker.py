"""The process that evaluates: it takes batch numbers on standard input and tells how far it is.

A process of its own, because the library keeps the interpreter busy for seconds at a time, and the
service must answer meanwhile. One JSON object a line in both directions. The contributions are read
from the store and the answer is written there, so nothing is lost with the process. When its
parent dies its standard input ends, and so does it.
"""

import json
import logging
import os
import queue
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

import fhe
from fhe.batched.contributor import write_batched
from fhe.slicing import most_steps
from secure_fl.errors import InputError, ServiceError
from secure_fl.service.batch import Batch
from secure_fl.service.blobs import Blobs
from secure_fl.service.cluster import LONGEST, Calling, Remote, evaluate_on
from secure_fl.service.registry import Federation, Registered, load_federations
from secure_fl.service.shelf import FOLDER, Shelf
from secure_fl.service.store import Store

log = logging.getLogger("securefl.service")

GRACE = 2.0
"""Seconds to end in an orderly way when the parent is gone."""
ARGUMENTS = ("-m", "secure_fl.service.worker")
WORKERS = "--workers"
SCRATCH = "scratch"
"""In the evaluator's state folder: what an evaluation writes and its next start removes."""
WORKERS_AWAY = 600.0
"""Seconds that a batch waits while all workers are away, before it fails."""


def main(arguments: Sequence[str]) -> None:
    """Evaluates until standard input ends.

    Args:
        arguments: "--workers" and how they are called, where there are any; the store's file, then
            the folders of the registered federations.
    """
    speak = os.fdopen(os.dup(1), "w", buffering=1)
    # What a library prints must not be taken for a message.
    os.dup2(2, 1)
    jobs: queue.Queue[int | None] = queue.Queue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    # Tables that were lost must be missed, not made anew empty behind the evaluator's back.
    workers: list[Remote] = []
    longest = LONGEST
    if arguments[0] == WORKERS:
        calling, arguments = Calling.from_json(arguments[1]), arguments[2:]
        workers, longest = calling.workers(), calling.longest
    path = Path(arguments[0])
    store = Store(path, create=False)
    shelf = Shelf(store, Blobs(path.parent / FOLDER))
    _work_in(path.parent / SCRATCH)
    federations = load_federations(map(Path, arguments[1:]))
    _say(speak, ready=True)
    while (number := jobs.get()) is not None:
        try:
            batch = store.by_number(number)
            if batch is None or batch.state != "evaluating":
                _say(speak, failed="not being evaluated any more")
                continue
            if batch.federation not in federations:
                _say(speak, failed="its federation is not served any more")
                continue
            federation = federations[batch.federation]
            answer = evaluate_batch(store, shelf, federation, batch, speak, workers, longest)
            store.finish(batch, answer.to_bytes(), time.time())
        except (fhe.InputError, InputError, fhe.errors.LibraryError, ServiceError) as error:
            _say(speak, failed=str(error))
        except (fhe.errors.StorageError, OSError) as error:
            # The place is of this machine, and no business of the querier's.
            log.error("a batch cannot be evaluated: %s", error)
            _say(speak, failed="the evaluator's disk is full, or a file on it is gone")
        except sqlite3.OperationalError as error:
            # Not the batch's fault, so not one of its attempts.
            _say(speak, again=str(error))
        else:
            _say(speak, finished=True)


def _work_in(folder: Path) -> None:
    """Has temporary files made in a folder of the evaluator's, empty: a kill leaves gigabytes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    tempfile.tempdir = str(folder)


def evaluate_batch(
    store: Store,
    shelf: Shelf,
    federation: Federation,
    batch: Batch,
    speak: TextIO,
    workers: Sequence[Remote] = (),
    longest: float = LONGEST,
) -> fhe.AnyAnswer:
    """Runs the rule on the contributions that are there, and neutral ones in place of the others.

    Args:
        store: of the batches.
        shelf: of the files of engine bgv.
        federation: of the batch.
        batch: that is evaluated.
        speak: hears how far it is.
        workers: that answer it; none has this process answer.
        longest: seconds that they may take in all.

    Raises:
        ContributionError: a ciphertext does not fit the circuit.
        InputError: the registered keys cannot be used, or the querier's are not here any more.
        ServiceError: no worker is left.
    """
    own = federation.registered(batch.querier)
    with tempfile.TemporaryDirectory(prefix="securefl-") as scratch:
        contributions = [
            _contribution(store, shelf, own.public, batch, (position, client), Path(scratch))
            for position, client in enumerate(federation.clients)
        ]
        return _evaluated(contributions, own, speak, workers, longest)


def _contribution(
    store: Store,
    shelf: Shelf,
    public: fhe.AnyPublicKey,
    batch: Batch,
    whose: tuple[int, str],
    scratch: Path,
) -> fhe.AnyContribution:
    """What a client sent, or a neutral one; of engine bgv the ciphertexts stay in files."""
    position, client = whose
    here = client in batch.present
    if isinstance(public, fhe.BatchedPublicKey):
        digest = shelf.sent(batch, client) if here else None
        path = scratch / str(position) if digest is None else shelf.path(digest)
        if digest is None:
            facts: Any = {"name": client, "federation": batch.federation, "batch": batch.name}
            write_batched(path, batch.queries, public, contributor=position, **facts)
        try:
            return fhe.BatchedContribution.load(path)
        except fhe.InputError as error:
            told = str(error).replace(str(path), f"contributor {client!r}")
            raise fhe.InputError(told) from None
    found = store.contribution(batch, client) if here else None
    if found is not None:
        return fhe.Contribution.from_bytes(found, source=f"contributor {client!r}")
    return fhe.neutral(
        batch.queries,
        public,
        contributor=position,
        name=client,
        federation=batch.federation,
        batch=batch.name,
    )


def _evaluated(
    contributions: Sequence[fhe.AnyContribution],
    own: Registered,
    speak: TextIO,
    workers: Sequence[Remote],
    longest: float,
) -> fhe.AnyAnswer:
    first = contributions[0]
    if workers:
        return evaluate_on(
            workers,
            contributions,
            own.folder,
            progress=lambda _phase, done, total: _say(speak, done=done, total=total),
            dropped=lambda name, why: log.warning('worker "%s" is asked no more: %s', name, why),
            patience=WORKERS_AWAY,
            longest=longest,
        )
    done, total = 0, most_steps(first.parameters, first.queries)

    def progress(phase: str, ticks: int, _total: int) -> None:
        nonlocal done
        # Preparations and the beginnings of rounds of engine bgv are told as well.
        if phase != "compiling" and (not own.batched or ticks):
            done += 1
            _say(speak, done=done, total=total)

    keys = _evaluation_keys(own.folder)
    return fhe.evaluate(contributions, keys, own.public, progress=progress)


@lru_cache(maxsize=4)
def _evaluation_keys(folder: Path) -> fhe.AnyEvaluationKeys:
    # Loading them into the library takes about a second and 25 MB and more.
    return fhe.load_evaluation_keys(folder)


def _listen(jobs: "queue.Queue[int | None]") -> None:
    for line in sys.stdin:
        jobs.put(int(json.loads(line)["batch"]))
    jobs.put(None)
    time.sleep(GRACE)
    # Whatever is being evaluated: nobody listens any more.
    os._exit(0)


def _say(speak: TextIO, **message: Any) -> None:
    try:
        speak.write(json.dumps(message) + "\n")
    except BrokenPipeError:
        # The parent died, and `_listen` has not seen it yet: no traceback in its log.
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
