"""How fast is the bank beside its floor and beside a loop over machines?

20 Newsgroups, 100 clients, N_b = 100. The floor is the single product of all test queries with all
stored records in float32, which no evaluation from the records can avoid.

Then tables of few features, as long as they come: the rule in the clear beside the products of
machines and queries that it takes, and private training beside training.
"""

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._federations import Cells, cells_of
from benchmarks._harness import Run, benchmark, newsgroups, peak_memory, timed
from dp import Element
from kahm import KAHM
from kahm.threads import one_thread
from secure_fl.data import Dataset, dirichlet
from secure_fl.privacy.promises import ReleasePromise
from secure_fl.trainers.registry import make
from secure_fl.training.train import train

ALPHAS = (5.0, 1.0, 0.1)
CLIENTS = 100
BATCH_SIZE = 100
SEED = 0
TABLE_CLASSES, TABLE_FEATURES = 7, 9
"""Those of shuttle, and its records and queries; the values are drawn."""
TABLE_RECORDS, TABLE_QUERIES = 43_500, 14_500
TABLE_BATCHES = (2, 5, 20, 100)
PRIVATE_RECORDS, PRIVATE_CLIENTS = 15_000, 5
BLOCK = 768
"""Records of a block of machines in the products alone, as in the bank."""


def _reference_seconds(cells: Cells, queries: NDArray[np.float32], run: Run) -> float:
    """Seconds for the reference loop over machines, fits left out."""
    machines = [KAHM.fit(batch) for batch in cells.batches]
    points = queries.astype(np.float64)
    run.progress(f"reference loop over {len(machines)} machines, {len(points)} queries")
    seconds, _ = timed(lambda: [machine.measure(points) for machine in machines], repeats=1)
    return seconds


def _table(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Records in [-1, 1] about a centre a class, and their classes."""
    centres = np.random.default_rng(SEED).normal(size=(TABLE_CLASSES, TABLE_FEATURES))
    y = rng.integers(0, TABLE_CLASSES, n)
    X = (centres[y] + 0.5 * rng.normal(size=(n, TABLE_FEATURES))) / 4
    return np.clip(X, -1, 1).astype(np.float32), y


def _products_alone(sizes: NDArray[np.integer[Any]], queries: NDArray[np.float32]) -> None:
    """Products of machines of so many records with queries, in blocks over all cores.

    Of each machine: its records with the queries, two matrices of its size with those, and one
    with the kernel's values.
    """
    rng = np.random.default_rng(SEED)
    blocks = []
    for n, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        step = max(1, BLOCK // n)
        for start in range(0, count, step):
            m = min(step, count - start)
            shapes = (m * n, queries.shape[1]), (m, 2 * n, n), (m, n + 1, n)
            blocks.append([rng.random(shape, np.float32) for shape in shapes])

    def work(own: list[list[NDArray[np.float32]]], part: NDArray[np.float32]) -> None:
        for records, score, gram in own:
            inner = (records @ part.T).reshape(len(score), -1, len(part))
            np.matmul(score, inner)
            np.matmul(gram, inner)

    n_threads = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(n_threads) as pool, one_thread():
        for start in range(0, len(queries), 512):
            part = queries[start : start + 512]
            jobs = [pool.submit(work, blocks[i::n_threads], part) for i in range(n_threads)]
            for job in jobs:
                job.result()


def _processor_seconds(work: Callable[[], object]) -> float:
    """Of all threads: other processes' load does not count."""
    before = time.process_time()
    work()
    return time.process_time() - before


def _compare_tables(run: Run) -> None:
    share = 20 if run.quick else 1
    table = run.table(
        f"{TABLE_QUERIES // share:,} queries, {TABLE_RECORDS // share:,} records of"
        f" {TABLE_FEATURES} features, processor seconds",
        ["batch size", "machines", "products", "bank", "bank / products"],
    )
    X, y = _table(TABLE_RECORDS // share, np.random.default_rng(1))
    queries, _ = _table(TABLE_QUERIES // share, np.random.default_rng(2))
    for batch_size in TABLE_BATCHES:
        run.progress(f"table, batches of {batch_size}")
        everybody = np.arange(len(y), dtype=np.int64)
        bank = cells_of(X, y, (everybody,), TABLE_CLASSES, batch_size).fit()
        floors, banks = [], []
        for _ in range(3):
            floors.append(_processor_seconds(partial(_products_alone, bank.sizes, queries)))
            banks.append(_processor_seconds(partial(bank.measures, queries)))
        floor, seconds = min(floors), min(banks)
        table.add(batch_size, bank.n_machines, floor, seconds, seconds / floor)


def _compare_private(run: Run) -> None:
    n = PRIVATE_RECORDS // (20 if run.quick else 1)
    table = run.table(
        f"{n:,} records of {TABLE_FEATURES} features, batches of {BATCH_SIZE}, processor seconds",
        ["training", "private training", "private / not"],
    )
    X, y = _table(n, np.random.default_rng(1))
    names = tuple(f"class {c}" for c in range(TABLE_CLASSES))
    rows = [np.arange(i, n, PRIVATE_CLIENTS) for i in range(PRIVATE_CLIENTS)]
    clients = [Dataset(X[own], y[own], names, f"c{i}") for i, own in enumerate(rows)]
    method = make("kahm", "heads", {"batch_size": BATCH_SIZE})
    promise = ReleasePromise(epsilon=5.0, delta=1e-5, adjacency=Element(0.1), bounds=(-1.0, 1.0))
    run.progress("private training")
    plain = min(_processor_seconds(partial(train, clients, method)) for _ in range(3))
    with tempfile.TemporaryDirectory() as books:
        private = _processor_seconds(
            partial(train, clients, method, promise=promise, books=Path(books))
        )
    table.add(plain, private, private / plain)


@benchmark("how fast is the bank beside its floor and beside a loop over machines?")
def main(run: Run) -> None:
    """Times the bank, the matrix product that is its floor, and the reference loop."""
    data = newsgroups()
    run.seeds(SEED)
    run.parameter(clients=CLIENTS, batch_size=BATCH_SIZE, queries=len(data.X_test))
    reference_queries = data.X_test[:100] if run.quick else data.X_test
    table = run.table(
        "all 7,532 test queries against all machines",
        [
            "alpha",
            "machines",
            "train s",
            "floor s",
            "bank s",
            "bank / floor",
            "loop s",
            "loop / bank",
        ],
    )
    for alpha in ALPHAS:
        run.progress(f"alpha {alpha:g}")
        rng = np.random.default_rng(SEED)
        parts = dirichlet(data.y_train, CLIENTS, alpha, rng)
        cells = cells_of(data.X_train, data.y_train, parts, len(data.classes), BATCH_SIZE)
        train, bank = timed(cells.fit, repeats=1)
        # Floor and bank take turns, so that both see the same load of the machine.
        floors, banks = [], []
        for _ in range(5):
            floors.append(timed(partial(np.matmul, bank.records, data.X_test.T), repeats=1)[0])
            banks.append(timed(partial(bank.measures, data.X_test), repeats=1)[0])
        if alpha == ALPHAS[0]:
            run.parameter(peak_memory_of_bank_bytes=peak_memory())
        share = len(data.X_test) / len(reference_queries)
        loop = share * _reference_seconds(cells, reference_queries, run)
        floor, seconds = min(floors), min(banks)
        table.add(
            alpha, bank.n_machines, train, floor, seconds, seconds / floor, loop, loop / seconds
        )
    _compare_tables(run)
    _compare_private(run)
    run.note("times are the best of five, floor and bank in turn; the loop runs once, in float64")
    if run.quick:
        run.note("the loop was measured on 100 queries and scaled up")
    run.note(f"peak memory of the process {peak_memory() / 2**30:.2f} GiB, data and floor included")


if __name__ == "__main__":
    main()
