"""When do encrypted decisions cost less by the batched engine (BGV) than query by query (TFHE)?

Both engines on the same codes in one run: 8-bit codes, 20 classes, keys made anew for each number
of contributors. Keys and contributions are made in one process, and evaluated in another one, whose
time and memory are what is measured. Contributors beyond the tenth send what one of the first ten
sends, under their own names: making a hundred different contributions takes longer than their
evaluation, and the evaluator's work is the same.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np

import fhe
from benchmarks._harness import COUNT, Run, benchmark, peak_memory

CLASSES, BITS = 20, 8
CONTRIBUTORS = (2, 10, 32, 100, 256)
DIFFERENT = 10
TFHE_QUERIES = {2: 32, 10: 32, 32: 4, 100: 1, 256: 1}
"""Queries of the batch that TFHE is timed on: a decision costs the same in any larger one."""
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
    codes = _codes(contributors, queries)
    start, sizes = time.process_time(), []
    for i in range(min(contributors, DIFFERENT)):
        made = fhe.contribute(
            codes[:, i], public, contributor=i, name=str(i), federation="", batch=""
        )
        sizes.append(made.save(folder / f"{i}.contribution"))
    facts = {
        "key_seconds": drawn,
        "client_seconds": (time.process_time() - start) / len(sizes),
        "sent_bytes": max(sizes),
    }
    (folder / "prepared.json").write_text(json.dumps(facts))


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
    start, busy = time.perf_counter(), time.process_time()
    if isinstance(evaluation, fhe.BatchedEvaluationKeys):
        from fhe.batched.evaluator import evaluate_batched

        answer: Any = evaluate_batched(sent, evaluation, public, processes=processes)
    else:
        answer = fhe.evaluate(sent, evaluation, public)
    facts = {
        "core_seconds": time.process_time() - busy,
        "seconds": time.perf_counter() - start,
        "peak_bytes": peak_memory(),
        "key_bytes": len(evaluation.content),
    }
    answer.save(folder / "answer")
    (folder / "evaluated.json").write_text(json.dumps(facts))


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
    table = run.table(
        "decisions, 8-bit codes, 20 classes",
        [
            *("engine", "contributors", "queries", "core-ms a decision", "core-s a batch"),
            *("s until the answer", "keys MB", "kB a query and client", "client core-ms a query"),
            *("peak GB", "right", "measured"),
        ],
    )
    for contributors in chosen or (CONTRIBUTORS[:1] if run.quick else CONTRIBUTORS):
        costs = {}
        for engine in fhe.ENGINES:
            if engine == "bgv" and contributors > 128:
                run.note(f"{contributors} contributors: engine bgv takes up to 128")
                continue
            queries = TFHE_QUERIES.get(contributors, 1)
            if engine == "bgv":
                parameters = fhe.choose_parameters(contributors, CLASSES, BITS)
                queries = parameters.degree
            elif run.quick:
                queries = 4
            run.progress(f"{engine}, {contributors} contributors, {queries} queries")
            found = measure(engine, contributors, queries)
            costs[engine] = (queries, found)
            _rows(table, engine, contributors, queries, found)
        if len(costs) == 2:
            queries, found = costs["tfhe"]
            _, batched = costs["bgv"]
            crossing = batched["core_seconds"] / (found["core_seconds"] / queries)
            run.note(
                f"{contributors} contributors: a batch costs less by engine bgv from"
                f" {crossing:,.0f} queries on"
            )


def _rows(table: Any, engine: str, contributors: int, queries: int, found: dict[str, Any]) -> None:
    """The batch that was measured, and what follows for others: bgv takes as long for any part of a
    full batch, tfhe the same for every query."""
    for batch in sorted({1, 32, 1024, 16384, 32768, queries}):
        if engine == "bgv" and batch > queries:
            continue
        share = 1.0 if engine == "bgv" else batch / queries
        sent = found["sent_bytes"] * (1 / batch if engine == "bgv" else 1 / queries)
        client = found["client_seconds"] * (1 / batch if engine == "bgv" else 1 / queries)
        busy = found["core_seconds"] * share
        table.add(
            engine,
            contributors,
            batch,
            1e3 * busy / batch,
            busy,
            found["seconds"] * share,
            found["key_bytes"] / 1e6,
            sent / 1e3,
            1e3 * client,
            found["peak_bytes"] / 1e9,
            found["right"] if batch == queries else None,
            batch == queries,
        )


if __name__ == "__main__":
    main()
