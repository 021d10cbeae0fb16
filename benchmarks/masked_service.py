"""Does the service give the plain rule's answers to all of 20 Newsgroups under the rule `masked`?

All parties are processes on loopback, without TLS, as `securefl serve` starts them; the querier is
this process. No known answers are mixed in, and the contributors' terms allow equal queries, which
the test set holds, in different batches. A batch's latency runs from sealing its queries to its
classes, folding at the contributors included.
"""

import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks._harness import Run, Split, benchmark, newsgroups
from kahm import classify
from secure_fl.data.partition import dirichlet
from secure_fl.demo.service_parties import IDENTITY, Deployment, deployment, set_up
from secure_fl.heads.codes import head_codes
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.manifest import Manifest, make_manifest
from secure_fl.service.channel import Channel
from secure_fl.service.desk import Desk
from secure_fl.service.masked_querier import MaskedAnswered, ask_masked
from secure_fl.service.masked_words import most_queries
from secure_fl.service.members import read_member
from secure_fl.service.querier import BatchTerms, Querier

SEED = 0
SMALL, REPEATS = 20, 5
"""Queries of a batch whose latency is measured, and how often."""
TERMS = ("--repeats", "1000000", "--near", "0", "--daily-queries", "1000000", "--exact-heads")


def batches_of(queries: NDArray[Any], most: int) -> Iterator[NDArray[np.int64]]:
    """Rows of every batch: at most so many, and no two equal queries in one."""
    _, copies = np.unique(queries, axis=0, return_inverse=True)
    order = np.argsort(copies, kind="stable")
    firsts = np.flatnonzero(np.r_[True, np.diff(copies[order]) > 0])
    lengths = np.diff(np.r_[firsts, len(order)])
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order)) - np.repeat(firsts, lengths)
    for copy in range(number.max() + 1):
        rows = np.flatnonzero(number == copy)
        yield from np.array_split(rows, -(-len(rows) // most))


def _ask(running: Deployment, manifest: Manifest, queries: NDArray[Any]) -> MaskedAnswered:
    own = running.folder / "querier"
    member = read_member(own / IDENTITY, "querier", manifest)
    channel = Channel(running.url(), member, manifest, patience=600.0)
    asker = Querier(member, manifest, None, channel)
    batch = secrets.token_hex(8)
    return ask_masked(asker, Desk(own), queries, batch=batch, known=None, terms=BatchTerms())


def _prepare(data: Split, clients: int, folder: Path) -> tuple[Manifest, NDArray[Any]]:
    """The parties' folders; codes of all clients for the test set, (queries, clients, classes)."""
    names = tuple(f"client{i:03}" for i in range(clients))
    classes = tuple(f"group{i:02}" for i in range(int(data.y_train.max()) + 1))
    width = data.X_train.shape[1]
    facts = make_manifest(classes=classes, clients=names, n_features=width, bits=8, rule="masked")
    parts = dirichlet(data.y_train, clients, 1.0, np.random.default_rng(SEED))
    sets = [(n, data.X_train[p], data.y_train[p]) for n, p in zip(names, parts, strict=True)]
    heads = train_heads(sets, facts)
    manifest = set_up(folder, facts, heads, failure_exponent=128, block=1)
    codes = np.stack([head_codes(head, data.X_test, manifest) for head in heads], axis=1)
    return manifest, codes


@benchmark(
    "does the service give the plain rule's answers to 20 Newsgroups under the rule masked?",
    click.option("--clients", default=10, show_default=True, help="Contributors."),
    click.option("--queries", default=7532, show_default=True, help="Of the test set, at most."),
)
def main(run: Run, clients: int, queries: int) -> None:
    """All test queries end to end, and the latency of batches of 20."""
    data = newsgroups()
    run.seeds(SEED)
    count = min(200 if run.quick else queries, len(data.X_test))
    run.parameter(contributors=clients, bits=8, queries=count)
    with tempfile.TemporaryDirectory(prefix="securefl-masked-") as name:
        run.progress("training heads")
        manifest, codes = _prepare(data, clients, Path(name) / "parties")
        expected = classify(codes[:count])
        with deployment(Path(name) / "parties") as running:
            run.progress("starting all parties")
            running.start("evaluator", "--queue", "64", "--burst", "100000")
            running.start_contributors(manifest.clients, *TERMS)
            asked = np.asarray(data.X_test[:count])
            latencies = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                _ask(running, manifest, np.unique(asked[:SMALL], axis=0))
                latencies.append(time.perf_counter() - start)
            found = np.full((2, count), -1, np.int64)
            start = time.perf_counter()
            for rows in batches_of(asked, most_queries(manifest)):
                run.progress(f"a batch of {len(rows)}")
                answered = _ask(running, manifest, asked[rows])
                found[:, rows] = answered.classes, answered.codes
            seconds = time.perf_counter() - start
    table = run.table(
        "20 Newsgroups over the service, rule masked",
        ["contributors", "queries", "classes equal", "smallest codes equal", "seconds", "ms each"],
    )
    equal = int(np.sum(found[0] == expected))
    smallest = int(np.sum(found[1] == codes[:count].min(axis=(1, 2))))
    table.add(clients, count, equal, smallest, seconds, 1e3 * seconds / count)
    table = run.table(f"latency of a batch of {SMALL}, s", ["median", "least", "most", "batches"])
    table.add(float(np.median(latencies)), min(latencies), max(latencies), REPEATS)


if __name__ == "__main__":
    main()
