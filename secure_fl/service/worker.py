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
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

import fhe
from fhe.keys import load_evaluation_keys
from fhe.knockout import calls_of
from secure_fl.errors import InputError, ServiceError
from secure_fl.service.batch import Batch
from secure_fl.service.cluster import LONGEST, Calling, Remote, evaluate_on
from secure_fl.service.registry import Federation, load_federations
from secure_fl.service.store import Store

log = logging.getLogger("securefl.service")

GRACE = 2.0
"""Seconds to end in an orderly way when the parent is gone."""
ARGUMENTS = ("-m", "secure_fl.service.worker")
WORKERS = "--workers"
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
    store = Store(Path(arguments[0]), create=False)
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
            answer = evaluate_batch(store, federation, batch, speak, workers, longest)
            store.finish(batch, answer.to_bytes(), time.time())
        except (fhe.InputError, InputError, fhe.errors.LibraryError, ServiceError) as error:
            _say(speak, failed=str(error))
        except sqlite3.OperationalError as error:
            # Not the batch's fault, so not one of its attempts.
            _say(speak, again=str(error))
        else:
            _say(speak, finished=True)


def evaluate_batch(
    store: Store,
    federation: Federation,
    batch: Batch,
    speak: TextIO,
    workers: Sequence[Remote] = (),
    longest: float = LONGEST,
) -> fhe.AnyAnswer:
    """Runs the rule on the contributions that are there, and neutral ones in place of the others.

    Args:
        store: of the batches.
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
    messages = []
    for position, client in enumerate(federation.manifest.clients):
        found = store.contribution(batch, client) if client in batch.present else None
        if found is not None:
            source = f"contributor {client!r}"
            messages.append(fhe.Contribution.from_bytes(found, source=source))
            continue
        messages.append(
            fhe.neutral(
                batch.queries,
                own.public,
                contributor=position,
                name=client,
                federation=batch.federation,
                batch=batch.name,
            )
        )

    if workers:
        return evaluate_on(
            workers,
            messages,
            own.folder,
            progress=lambda _phase, done, total: _say(speak, done=done, total=total),
            dropped=lambda name, why: log.warning('worker "%s" is asked no more: %s', name, why),
            patience=WORKERS_AWAY,
            longest=longest,
        )
    done, total = 0, calls_of(own.public.parameters, batch.queries)

    def progress(phase: str, _done: int, _total: int) -> None:
        nonlocal done
        if phase != "compiling":
            done += 1
            _say(speak, done=done, total=total)

    return fhe.evaluate(messages, _evaluation_keys(own.folder), own.public, progress=progress)


@lru_cache(maxsize=4)
def _evaluation_keys(folder: Path) -> fhe.EvaluationKeys:
    # Loading them into the library takes about a second and 25 MB and more.
    return load_evaluation_keys(folder)


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
