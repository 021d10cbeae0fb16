"""What does the service cost beside the bare evaluation, and how does it stand a queue?

All parties are processes on loopback, without TLS: an evaluator and three contributors as
`securefl serve` starts them, and the querier's side in threads of this process. A batch's latency
runs from sealing the queries to the decrypted classes.
"""

import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fhe
from benchmarks._harness import Run, Table, benchmark, timed
from fhe.keys import load_evaluation_keys, load_secret_keys
from fhe.public_key import load_public_key
from kahm import classify
from secure_fl.demo.network import train_parties
from secure_fl.demo.service_parties import IDENTITY, PASSPHRASE, Deployment, deployment, set_up
from secure_fl.heads.codes import head_codes
from secure_fl.heads.manifest import Manifest
from secure_fl.service.channel import Channel
from secure_fl.service.members import read_member
from secure_fl.service.querier import BatchTerms, Querier

SEED = 0
QUEUES = (1, 4, 16)
REPEATS = {1: 7, 4: 3, 16: 1}


@dataclass(frozen=True)
class Asker:
    """The querier's side.

    Attributes:
        folder: of all parties.
        manifest: of the federation.
        queries: of every batch, shape (q, n_features).
        expected: their classes by the clear rule, shape (q,).
        secret: the querier's keys.
        reading: held by the thread that decrypts.
    """

    folder: Path
    manifest: Manifest
    queries: NDArray[Any]
    expected: NDArray[Any]
    secret: fhe.SecretKeys
    reading: threading.Lock

    def querier(self, running: Deployment) -> Querier:
        """A querier with a line of its own."""
        own = self.folder / "querier"
        member = read_member(own / IDENTITY, "querier", self.manifest)
        channel = Channel(running.url(), member, self.manifest, patience=600.0)
        return Querier(member, self.manifest, load_public_key(own), channel)

    def ask(self, running: Deployment, together: threading.Barrier) -> tuple[float, bool]:
        """Seconds of one batch among several that begin together, and whether it is right."""
        querier = self.querier(running)
        together.wait()
        start = time.perf_counter()
        batch = secrets.token_hex(8)
        querier.open(batch, self.queries, None, BatchTerms())
        received = querier.wait(batch, lambda status: None)
        # The library's client is not made for several threads at once.
        with self.reading:
            found = querier.read(batch, received, self.secret, None)
        seconds = time.perf_counter() - start
        return seconds, bool(np.array_equal(found.classes, self.expected))


def _bare(asker: Asker, codes: NDArray[Any]) -> Callable[[], Any]:
    """The evaluation of one batch alone, keys loaded, as a call to time."""
    keys = load_evaluation_keys(asker.folder / "evaluator")
    public = load_public_key(asker.folder / "evaluator")
    sent = [
        fhe.contribute(codes[:, i], public, contributor=i, name=name, federation="", batch="")
        for i, name in enumerate(asker.manifest.clients)
    ]
    fhe.evaluate(sent, keys, public)
    return lambda: fhe.evaluate(sent, keys, public)


@dataclass(frozen=True)
class Found:
    """What batches that were opened together took.

    Attributes:
        latencies: seconds, one a batch.
        evaluation: mean seconds of an evaluation, by the evaluator's own clock.
        bare: seconds of bare evaluations, one before each repeat.
        elapsed: seconds of all batches.
        bytes: HTTP headers and bodies, both directions.
        right: whether all answers were.
    """

    latencies: Sequence[float]
    evaluation: float
    bare: Sequence[float]
    elapsed: float
    bytes: float
    right: bool


def _counters(running: Deployment) -> tuple[float, float, float]:
    """Bytes, seconds of evaluations and their number so far."""
    counters, name = running.metrics(), "securefl_evaluation_seconds"
    moved = [counters[f'securefl_http_bytes_total{{direction="{d}"}}'] for d in ("in", "out")]
    return sum(moved), counters[f"{name}_sum"], counters[f"{name}_count"]


def _queued(
    asker: Asker, running: Deployment, bare: Callable[[], Any], waiting: int, repeats: int
) -> Found:
    before, results, alone, elapsed = _counters(running), [], [], 0.0
    for _ in range(repeats):
        # In turns, so that other work on the machine meets both.
        alone.append(timed(bare, repeats=1)[0])
        started = time.perf_counter()
        together = threading.Barrier(waiting)
        with ThreadPoolExecutor(waiting) as pool:
            jobs = [pool.submit(asker.ask, running, together) for _ in range(waiting)]
            results += [job.result() for job in jobs]
        elapsed += time.perf_counter() - started
    moved, seconds, count = np.subtract(_counters(running), before)
    latencies, right = zip(*results, strict=True)
    return Found(latencies, float(seconds / count), alone, elapsed, float(moved), all(right))


def _compare(table: Table, name: str, evaluation: float, service: float) -> None:
    table.add(name, evaluation, service, 100 * (service / evaluation - 1))


@benchmark("what does the service cost beside the bare evaluation, and how does it stand a queue?")
def main(run: Run) -> None:
    """Answers a minute, latency and bytes at 1, 4 and 16 queued batches; bare evaluation beside."""
    exponent, queries = (40, 4) if run.quick else (128, 10)
    (seed,) = run.seeds(SEED)
    run.parameter(failure_exponent=exponent, queries_of_a_batch=queries, contributors=3, bits=8)
    table = run.table(
        "batches over the service",
        [
            *("queued batches", "batches", "latency median s", "latency 95th s"),
            *("one evaluation s", "answers a minute", "kB an answer", "all right"),
        ],
    )
    overhead = run.table("overhead of the service", ["", "evaluation s", "service s", "overhead %"])
    with tempfile.TemporaryDirectory(prefix="securefl-service-") as name:
        folder = Path(name)
        run.progress("training heads and drawing keys")
        facts, heads, test = train_parties(folder / "clients", seed)
        parties = folder / "parties"
        manifest = set_up(parties, facts, heads, failure_exponent=exponent, block=queries)
        asked = np.asarray(test.X[:queries])
        codes = np.stack([head_codes(head, asked, manifest) for head in heads], axis=1)
        secret = load_secret_keys(parties / "querier", PASSPHRASE)
        asker = Asker(parties, manifest, asked, classify(codes), secret, threading.Lock())
        run.progress("bare evaluation")
        bare = _bare(asker, codes)
        run.progress("starting all parties")
        with deployment(parties) as running:
            running.start("evaluator", "--queue", str(max(QUEUES)), "--burst", "1000")
            # The same queries in every batch.
            running.start_contributors(manifest.clients, "--repeats", "1000000")
            run.progress("one batch to warm up")
            asker.ask(running, threading.Barrier(1))
            for waiting in QUEUES[:2] if run.quick else QUEUES:
                run.progress(f"{waiting} queued batches")
                repeats = 2 if run.quick else REPEATS[waiting]
                found = _queued(asker, running, bare, waiting, repeats)
                count, size = len(found.latencies), found.bytes / 1e3
                median, tail = np.quantile(found.latencies, [0.5, 0.95])
                row = (waiting, count, median, tail, found.evaluation)
                answers = count * queries
                rate = 60 * answers / found.elapsed
                table.add(*row, rate, size / answers, found.right)
                each = median if waiting == 1 else found.elapsed / count
                name = "latency of one batch" if waiting == 1 else f"a batch of {waiting} queued"
                _compare(overhead, f"{name}, its own evaluation", found.evaluation, each)
                alone = float(np.median(found.bare))
                _compare(overhead, f"{name}, bare evaluation", alone, each)
    run.note("bytes are HTTP headers and bodies at the evaluator, all parties', polling included")
    run.note(
        "its own evaluation: by the evaluator's clock; bare: median of fhe.evaluate in this"
        " process, once before each group of batches"
    )
    run.note("the 95th percentile of few batches is interpolated between the last two")


if __name__ == "__main__":
    main()
