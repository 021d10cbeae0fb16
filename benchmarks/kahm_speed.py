"""How fast is the bank beside its floor and beside a loop over machines?

20 Newsgroups, 100 clients, N_b = 100. The floor is the single product of all test queries with all
stored records in float32, which no evaluation from the records can avoid.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks._federations import Cells, cells_of
from benchmarks._harness import Run, benchmark, newsgroups, peak_memory, timed
from kahm import KAHM
from secure_fl.data import dirichlet

ALPHAS = (5.0, 1.0, 0.1)
CLIENTS = 100
BATCH_SIZE = 100
SEED = 0


def _reference_seconds(cells: Cells, queries: NDArray[np.float32], run: Run) -> float:
    """Seconds for the reference loop over machines, fits left out."""
    machines = [KAHM.fit(batch) for batch in cells.batches]
    points = queries.astype(np.float64)
    run.progress(f"reference loop over {len(machines)} machines, {len(points)} queries")
    seconds, _ = timed(lambda: [machine.measure(points) for machine in machines], repeats=1)
    return seconds


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
    run.note("times are the best of five, floor and bank in turn; the loop runs once, in float64")
    if run.quick:
        run.note("the loop was measured on 100 queries and scaled up")
    run.note(f"peak memory of the process {peak_memory() / 2**30:.2f} GiB, data and floor included")


if __name__ == "__main__":
    main()
