"""When do encrypted decisions cost less by the batched engine (BGV) than query by query (TFHE)?

Both engines on the same codes in one run: 8-bit codes, 20 classes, keys made anew for each number
of contributors. Keys and contributions are made in one process, and evaluated in another one, whose
time and memory are what is measured. Contributors beyond the tenth send what one of the first ten
sends, under their own names: making a hundred different contributions takes longer than their
evaluation, and the evaluator's work is the same.

What takes hours is not run. The batched engine is timed on a full batch: any part of one is the
same work. TFHE is timed on a few queries, each of which is the same work. Rows that follow from
these are called extrapolated. All of it takes about an hour of one core, by estimate; the batched
engine's cases run two at a time.
"""

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np

import fhe
from benchmarks._harness import COUNT, Run, Table, benchmark, peak_memory

Case = tuple[int, dict[str, Any]]
"""Queries of a measured batch, and what was measured."""

CLASSES, BITS = 20, 8
CONTRIBUTORS = (2, 10, 32, 100, 256)
DIFFERENT = 10
BATCHES = (1, 32, 1024)
TFHE_QUERIES = {2: 32, 10: 8, 32: 4, 100: 1, 256: 1}
"""Queries of the batch that TFHE is timed on: a decision costs the same in any larger one."""
TARGETS = {10: (4.0, 4.0), 100: (45.0, 6.0)}
"""By contributors: core-ms a decision and kB a query and client in a full batch, at most."""
MEMORY_TARGET, BUDGET_TARGET = 4.0, 45.0
"""GB at most, and bits of noise budget before flooding at least, whatever the contributors."""
PASSPHRASE = "benchmark"


def _codes(contributors: int, queries: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Shape (queries, contributors, classes); half of the queries are full of ties."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2**BITS, (queries, min(contributors, DIFFERENT), CLASSES))
    codes[::2] = rng.integers(2**BITS - 4, 2**BITS, codes[::2].shape)
    return codes[:, np.arange(contributors) % DIFFERENT]


def _parameters(engine: str, contributors: int) -> fhe.AnyParameters:
    if engine == "bgv":
        return fhe.choose_parameters(contributors, CLASSES, BITS)
    return fhe.RuleParameters(contributors=contributors, classes=CLASSES, bits=BITS)


def prepare(folder: Path, engine: str, contributors: int, queries: int) -> None:
    """Makes keys and contributions of a case in a folder."""
    start = time.process_time()
    keys = fhe.generate_keys(_parameters(engine, contributors))
    public = fhe.make_public_key(keys)
    drawn = time.process_time() - start
    fhe.save_secret_keys(folder, keys, PASSPHRASE)
    fhe.save_evaluation_keys(folder, keys.evaluation)
    fhe.save_public_key(folder, public)
    for i in range(min(contributors, DIFFERENT)):
        _contributed(public, contributors, queries, i).save(folder / f"{i}.contribution")
    # What a client sends is measured for every batch: it is not the same for each query.
    clients = {}
    for batch in sorted({*BATCHES, queries}) if engine == "tfhe" else [queries]:
        start = time.process_time()
        made = _contributed(public, contributors, batch, 0)
        seconds = time.process_time() - start
        clients[batch] = (seconds, made.save(folder / "sent"))
    facts = {"key_seconds": drawn, "clients": clients}
    (folder / "prepared.json").write_text(json.dumps(facts))


def _contributed(public: Any, contributors: int, queries: int, i: int) -> Any:
    codes = _codes(contributors, queries)[:, i]
    return fhe.contribute(codes, public, contributor=i, name=str(i), federation="", batch="")


def evaluate(folder: Path, contributors: int, processes: int | None) -> None:
    """Evaluates a case of a folder and notes time and memory."""
    evaluation = fhe.load_evaluation_keys(folder)
    public: Any = fhe.load_public_key(folder)
    sent: Any = [
        attrs.evolve(
            fhe.load_contribution(folder / f"{i % DIFFERENT}.contribution"),
            contributor=i,
            name=str(i),
        )
        for i in range(contributors)
    ]
    if isinstance(evaluation, fhe.EvaluationKeys):
        # Loads the keys, so that what is timed is the evaluation alone.
        _ = evaluation.library_keys
    before = peak_memory()
    start, busy = time.perf_counter(), _core_seconds()
    if isinstance(evaluation, fhe.BatchedEvaluationKeys):
        from fhe.batched.evaluator import evaluate_batched

        answer: Any = evaluate_batched(sent, evaluation, public, processes=processes)
    else:
        answer = fhe.evaluate(sent, evaluation, public)
    facts = {
        "core_seconds": _core_seconds() - busy,
        "seconds": time.perf_counter() - start,
        # A worker, one at a time, stands beside this process.
        "peak_bytes": max(peak_memory(), before + peak_memory(resource.RUSAGE_CHILDREN)),
        "key_bytes": len(evaluation.content),
    }
    answer.save(folder / "answer")
    (folder / "evaluated.json").write_text(json.dumps(facts))


def _core_seconds() -> float:
    """Of this process and of the workers that have ended."""
    own, workers = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + workers.ru_utime + workers.ru_stime


def _right(folder: Path, contributors: int, queries: int) -> bool:
    codes = _codes(contributors, queries)
    keys = fhe.load_secret_keys(folder, PASSPHRASE)
    found = fhe.read_answer(fhe.load_answer(folder / "answer"), keys)
    smallest = (codes * CLASSES + np.arange(CLASSES)).min(axis=(1, 2))
    return bool(np.array_equal(found, smallest % CLASSES))


def measure(engine: str, contributors: int, queries: int) -> dict[str, Any]:
    """One case, in processes of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for call in (
            f"prepare(Path({name!r}), {engine!r}, {contributors}, {queries})",
            f"evaluate(Path({name!r}), {contributors}, 1)",
        ):
            program = f"from pathlib import Path\nfrom benchmarks.fhe_batched import *\n{call}"
            subprocess.run([sys.executable, "-c", program], check=True)
        facts = json.loads((folder / "prepared.json").read_text())
        facts |= json.loads((folder / "evaluated.json").read_text())
        return {**facts, "right": _right(folder, contributors, queries)}


@benchmark(
    "when do encrypted decisions cost less by the batched engine?",
    click.option("--contributors", "chosen", type=COUNT, multiple=True, help="Only these."),
)
def main(run: Run, chosen: tuple[int, ...]) -> None:
    """Core time, latency, keys, traffic and memory of both engines, and where they cross."""
    run.seeds(1)
    run.parameter(classes=CLASSES, bits=BITS)
    numbers = chosen or (CONTRIBUTORS[:1] if run.quick else CONTRIBUTORS)
    batched = _batched(run, numbers)
    table = run.table(
        "decisions, 8-bit codes, 20 classes",
        [
            *("engine", "contributors", "queries", "core-ms a decision", "core-s a batch"),
            *("s until the answer", "keys MB", "kB a query and client", "client core-ms a query"),
            *("peak GB", "right", "how"),
        ],
    )
    for contributors in numbers:
        queries = 4 if run.quick else TFHE_QUERIES.get(contributors, 1)
        run.progress(f"tfhe, {contributors} contributors, {queries} queries")
        found = measure("tfhe", contributors, queries)
        full, whole = batched[contributors]
        _rows(table, "tfhe", contributors, (queries, found), full)
        _rows(table, "bgv", contributors, (full, whole), full)
        crossing = whole["core_seconds"] / (found["core_seconds"] / queries)
        run.note(
            f"{contributors} contributors: a batch costs less by engine bgv from"
            f" {crossing:,.0f} queries on"
        )
    _targets(run, batched)


def _batched(run: Run, numbers: tuple[int, ...]) -> dict[int, Case]:
    """Full batches of the batched engine, two at a time, the longest first."""

    def case(contributors: int) -> tuple[int, Case]:
        degree = fhe.choose_parameters(contributors, CLASSES, BITS).degree
        run.progress(f"bgv, {contributors} contributors, {degree:,} queries")
        return contributors, (degree, measure("bgv", contributors, degree))

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(case, sorted(numbers, reverse=True)))


def _rows(table: Table, engine: str, contributors: int, case: Case, full: int) -> None:
    """The batch that was measured, and what follows for others."""
    queries, found = case
    for batch in sorted({*BATCHES, full, queries}):
        # Any part of a full batch is the same work by bgv; by tfhe every query is.
        share = 1.0 if engine == "bgv" else batch / queries
        sent, seconds, size = _client(found, batch)
        busy = found["core_seconds"] * share
        table.add(
            engine,
            contributors,
            batch,
            1e3 * busy / batch,
            busy,
            found["seconds"] * share,
            found["key_bytes"] / 1e6,
            size / sent / 1e3,
            1e3 * seconds / sent,
            found["peak_bytes"] / 1e9,
            found["right"] if batch == queries else None,
            "measured" if batch == queries else "extrapolated",
        )


def _client(found: dict[str, Any], batch: int) -> tuple[int, float, int]:
    """Queries that stand for a batch's, a client's seconds for them, and the bytes it sends."""
    measured = {int(queries): facts for queries, facts in found["clients"].items()}
    nearest = max((each for each in measured if each <= batch), default=None)
    # A batch smaller than any measured one is a part of a full one.
    return (batch, *measured[min(measured)]) if nearest is None else (nearest, *measured[nearest])


def _targets(run: Run, batched: dict[int, Case]) -> None:
    """What was aimed at for a full batch, beside what was reached."""
    table = run.table(
        "engine bgv, a full batch: reached and aimed at",
        ["contributors", "what", "reached", "aimed at", "held"],
    )
    for contributors, (queries, found) in sorted(batched.items()):
        chain = fhe.choose_parameters(contributors, CLASSES, BITS).chain
        budget = math.log2(math.prod(chain.base)) - 1 - chain.answer
        milliseconds, kilobytes = TARGETS.get(contributors, (None, None))
        for what, reached, aim in (
            ("core-ms a decision", 1e3 * found["core_seconds"] / queries, milliseconds),
            ("kB a query and client", _client(found, queries)[2] / queries / 1e3, kilobytes),
            ("peak GB", found["peak_bytes"] / 1e9, MEMORY_TARGET),
        ):
            table.add(contributors, what, reached, aim, None if aim is None else reached <= aim)
        what = "bits of budget before flooding, by the bound"
        table.add(contributors, what, budget, BUDGET_TARGET, budget >= BUDGET_TARGET)


if __name__ == "__main__":
    main()
