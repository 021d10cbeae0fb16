"""The tasks of `benchmarks.defences`, run by either version of the library in a process of its own.

Only what both versions offer is used. After a line of JSON with its tasks it reads a task's name a
line, does it, and prints the processor seconds.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fhe
from secure_fl.federation import Client, Federation, SecureAggregation, client_step

ENTRIES = 100_000
QUERIES = 4


@client_step
def constant(client: Client) -> Any:
    """The same vector from everybody."""
    return np.full(ENTRIES, 0.5)


def masked_sum(clients: int, threshold: int) -> Callable[[], None]:
    """A masked sum over so many clients, all parties in this process; the session is begun."""
    members = [Client(f"c{i:03}", np.zeros((1, 1)), np.zeros(1)) for i in range(clients)]
    aggregation = SecureAggregation(clip=8.0)
    federation = Federation(members, aggregation=aggregation, threshold=threshold)

    def work() -> None:
        total = federation.sum(constant)
        assert np.allclose(total, 0.5 * clients)

    work()
    return work


def answers() -> dict[str, Callable[[], None]]:
    """What each role of the encrypted rule does for a batch: 3 contributors, 10 classes, 6 bits."""
    parameters = fhe.RuleParameters(
        contributors=3, classes=10, bits=6, failure_exponent=40, block=QUERIES
    )
    keys = fhe.generate_keys(parameters)
    public = fhe.make_public_key(keys)
    codes = np.random.default_rng(0).integers(0, 64, (QUERIES, 3, 10))
    facts = {"federation": "f", "batch": "b"}

    def contribute(i: int) -> Any:
        return fhe.contribute(codes[:, i], public, contributor=i, name=f"c{i}", **facts)

    sent = [contribute(i) for i in range(3)]
    answer = fhe.evaluate(sent, keys.evaluation, public)
    expected = codes.min(axis=1).argmin(axis=1)

    def read() -> None:
        for _ in range(200):
            assert np.array_equal(fhe.read_answer(answer, keys), expected)

    def contribute_often() -> None:
        for _ in range(50):
            contribute(0)

    def evaluate() -> None:
        fhe.evaluate(sent, keys.evaluation, public)

    return {
        "contributing (50 batches)": contribute_often,
        "evaluating (1 batch)": evaluate,
        "reading (200 batches)": read,
    }


def main() -> None:
    """Does what it is told until its input ends."""
    tasks: dict[str, Callable[[], None]] = {
        # Thresholds are said, for the default became a higher one.
        "masked sum, 10 clients, 100,000 entries": masked_sum(10, 7),
        "masked sum, 50 clients, 100,000 entries": masked_sum(50, 34),
        **answers(),
    }
    print(json.dumps(list(tasks)), flush=True)
    for line in sys.stdin:
        start = time.process_time()
        tasks[line.strip()]()
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    main()
