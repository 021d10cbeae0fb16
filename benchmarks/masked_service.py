"""Does the service give the plain rule's answers to all of 20 Newsgroups under the rule `masked`?

All parties speak over loopback, without TLS: the evaluator is a process as `securefl serve` starts
it, contributors share a few processes, each with its own line and state, and the querier is this
process. No known answers are mixed in, and the contributors' terms allow equal queries, which the
test set holds, in different batches. A batch's latency runs from sealing its queries to its
classes, folding at the contributors included; beside it stands its slowest exchange, from the first
contributor's message of a step to the last one's reply to it. A first batch makes a set-up of keys,
in five exchanges; later ones go on with it, in three.
"""

import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from benchmarks._contributors import Hosts, hosted, slowest_exchange
from benchmarks._federations import ring_of
from benchmarks._harness import Run, Split, benchmark, newsgroups
from kahm import classify
from secure_fl.data.partition import dirichlet
from secure_fl.demo.service_parties import IDENTITY, Deployment, deployment, set_up
from secure_fl.federation.secagg.parameters import default_threshold
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
SMALL, FIRSTS, LATER = 20, 4, 3
"""Queries of a batch whose latency is measured, how many first ones, and later ones for each."""
STEP = "600"
"""Seconds that the evaluator waits for a message: nobody vanishes here, and machines are busy."""


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


@frozen
class Latency:
    """Of a batch.

    Attributes:
        exchanges: that it took.
        seconds: in all.
        slowest: seconds of its slowest exchange.
    """

    exchanges: int
    seconds: float
    slowest: float


class Asker:
    """The querier.

    Args:
        running: the parties.
        manifest: of the federation.
        degree: contributors that each masks with; 0 for all others.
    """

    def __init__(self, running: Deployment, manifest: Manifest, degree: int) -> None:
        self._own, self._url = running.folder / "querier", running.url()
        self._member = read_member(self._own / IDENTITY, "querier", manifest)
        self._manifest = manifest
        self._quorum = default_threshold(len(manifest.clients))
        self._degree = degree

    def ask(self, queries: NDArray[Any], more: int = 0) -> tuple[str, MaskedAnswered]:
        """A batch: its name and its answers; by a quorum that is so much more than the default."""
        terms = BatchTerms(patience=600.0, degree=self._degree, quorum=self._quorum + more)
        channel = Channel(self._url, self._member, self._manifest, patience=600.0)
        asks = Querier(self._member, self._manifest, None, channel)
        batch, desk = secrets.token_hex(8), Desk(self._own)
        return batch, ask_masked(asks, desk, queries, batch=batch, known=None, terms=terms)

    def latencies(self, queries: NDArray[Any], contributors: Hosts) -> list[Latency]:
        """Of some batches under each quorum: every quorum has a set-up of its own."""
        whole = {}
        for more in range(min(FIRSTS, len(self._manifest.clients) - self._quorum + 1)):
            for _ in range(1 + LATER):
                start = time.perf_counter()
                batch, _ = self.ask(queries, more)
                whole[batch] = time.perf_counter() - start
        times = contributors.times(whole)
        return [
            Latency(len(times[0][batch]), seconds, slowest_exchange(times, batch))
            for batch, seconds in whole.items()
        ]


def _prepare(data: Split, clients: int, bits: int, folder: Path) -> tuple[Manifest, NDArray[Any]]:
    """The parties' folders; codes of all clients for the test set, (queries, clients, classes)."""
    names = tuple(f"client{i:03}" for i in range(clients))
    classes = tuple(f"group{i:02}" for i in range(int(data.y_train.max()) + 1))
    width = data.X_train.shape[1]
    facts = make_manifest(
        classes=classes, clients=names, n_features=width, bits=bits, rule="masked"
    )
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
    click.option("--bits", default=8, show_default=True, help="Of a code."),
    click.option("--batch", default=800, show_default=True, help="Queries of a batch, at most."),
    click.option("--processes", default=10, show_default=True, help="Contributors share these."),
    click.option("--ring/--complete", default=None, help="Default: a ring from 50 contributors."),
)
def main(
    run: Run,
    clients: int,
    queries: int,
    bits: int,
    batch: int,
    processes: int,
    ring: bool | None,
) -> None:
    """All test queries end to end, and the latency of batches of 20."""
    data = newsgroups()
    run.seeds(SEED)
    count = min(200 if run.quick else queries, len(data.X_test))
    ring = clients >= 50 if ring is None else ring
    degree = ring_of(clients) if ring else 0
    near = degree or clients - 1
    run.parameter(contributors=clients, bits=bits, queries=count, neighbours=near, batch=batch)
    run.parameter(processes_of_contributors=min(processes, clients))
    with tempfile.TemporaryDirectory(prefix="securefl-masked-") as name:
        folder = Path(name) / "parties"
        run.progress("training heads")
        manifest, codes = _prepare(data, clients, bits, folder)
        expected = classify(codes[:count])
        most = min(batch, most_queries(manifest))
        with deployment(folder) as running:
            run.progress("starting all parties")
            running.start("evaluator", "--burst", "100000", "--connections", "0", "--step", STEP)
            host = {"processes": processes, "degree": degree}
            with hosted(folder, running.url(), manifest.clients, **host) as contributors:
                asker = Asker(running, manifest, degree)
                asked = np.asarray(data.X_test[:count])
                latencies = asker.latencies(np.unique(asked[:SMALL], axis=0), contributors)
                found = np.full((2, count), -1, np.int64)
                start = time.perf_counter()
                for rows in batches_of(asked, most):
                    run.progress(f"{int((found[0] >= 0).sum())} of {count} queries answered")
                    _, answered = asker.ask(asked[rows])
                    found[:, rows] = answered.classes, answered.codes
                seconds = time.perf_counter() - start
    columns = ["contributors", "neighbours", "queries", "classes equal", "smallest codes equal"]
    table = run.table(
        "20 Newsgroups over the service, rule masked", [*columns, "seconds", "ms each"]
    )
    equal = int(np.sum(found[0] == expected))
    smallest = int(np.sum(found[1] == codes[:count].min(axis=(1, 2))))
    table.add(clients, near, count, equal, smallest, seconds, 1e3 * seconds / count)
    table = run.table(
        f"latency of a batch of {SMALL}, s, medians",
        ["exchanges", "batches", "batch", "its slowest exchange", "ratio", "least batch", "most"],
    )
    for exchanges in sorted({each.exchanges for each in latencies}, reverse=True):
        those = [each for each in latencies if each.exchanges == exchanges]
        whole, slowest = np.transpose([(each.seconds, each.slowest) for each in those])
        middle = [float(np.median(each)) for each in (whole, slowest, whole / slowest)]
        table.add(exchanges, len(those), *middle, float(whole.min()), float(whole.max()))


if __name__ == "__main__":
    main()
