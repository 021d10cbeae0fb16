"""Do two workers of one thread answer as fast as one process of two, and how far does it go?

Workers are `securefl serve worker` as processes on loopback with TLS, one thread each; beside them
`fhe.evaluate` in a process of two threads, on the same contributions. The plan then says how many
decisions an hour more workers would give, from the seconds of a slice and the bytes that were
measured (`decisions_an_hour`).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import fhe
from benchmarks._harness import Run, benchmark
from secure_fl.crypto.identities import write_identity
from secure_fl.demo.credentials import write_certificates
from secure_fl.demo.flower_parties import Loopback, free_port, loopback
from secure_fl.service.cluster import Calling, evaluate_on, slice_size

SEED = 0
NAMES = ("w1", "w2")
PLANNED = (1, 2, 4, 8, 16, 32, 64)
LINES = {"1 Gbit/s": 125e6, "100 Mbit/s": 12.5e6}
_ALONE = """
import sys, time
from pathlib import Path
import fhe
folder = Path(sys.argv[1])
keys, public = fhe.load_evaluation_keys(folder), fhe.load_public_key(folder)
sent = [fhe.load_contribution(path) for path in sorted(folder.glob("*.contribution"))]
fhe.evaluate(sent, keys, public, queries=range(1))
start = time.perf_counter()
fhe.evaluate(sent, keys, public).save(folder / "answer")
print(time.perf_counter() - start)
"""


def decisions_an_hour(
    workers: int, *, decision: float, queries: int, fixed: float, each: float, line: float
) -> float:
    """Decisions an hour of a batch, by workers that share the evaluator's one line.

    A batch of n decisions takes `n decision / w` seconds of every one of w workers, and the line
    carries `w fixed + n each` bytes: keys and contributions once for every worker, and the answers.
    The evaluator sends before a worker begins, so the two follow each other:

        n / (n decision / w + (w fixed + n each) / line) x 3600

    Args:
        workers: w, at least 1.
        decision: seconds of one decision on one worker.
        queries: n, of the batch.
        fixed: bytes that every worker gets once a batch.
        each: bytes of an answer to one query.
        line: bytes a second of the evaluator's line.
    """
    seconds = queries * decision / workers + (workers * fixed + queries * each) / line
    return 3600 * queries / seconds


@benchmark("do two workers of one thread answer as fast as one process of two threads?")
def main(run: Run) -> None:
    """Seconds of one batch by two workers and by one process; decisions an hour, planned."""
    queries, exponent = (8, 40) if run.quick else (128, 128)
    (seed,) = run.seeds(SEED)
    run.parameter(failure_exponent=exponent, queries=queries, contributors=3, bits=8, classes=10)
    parameters = fhe.RuleParameters(
        contributors=3, classes=10, bits=8, block=2 if run.quick else 8, failure_exponent=exponent
    )
    table = run.table("one batch", ["", "seconds", "against one process %", "classes right"])
    with tempfile.TemporaryDirectory(prefix="securefl-workers-") as name:
        folder = Path(name)
        run.progress("drawing keys")
        keys, sent, codes = _prepared(folder, parameters, queries, seed)
        right = fhe.plain(codes, parameters)
        with loopback(folder, write_certificates(folder)) as net:
            workers = _started(net, folder).workers()
            run.progress("two workers")
            evaluate_on(workers, sent, folder, progress=_quiet, size=-(-queries // 2))
            begun = time.perf_counter()
            answer = evaluate_on(workers, sent, folder, progress=_quiet)
            two = time.perf_counter() - begun
        run.progress("one process of two threads")
        alone = _alone(folder)
        found = fhe.read_answer(answer, keys)
        other = fhe.read_answer(fhe.load_answer(folder / "answer"), keys)
        table.add("one process, two threads", alone, 0.0, bool(np.array_equal(other, right)))
        against = 100 * (two / alone - 1)
        table.add("two workers, one thread", two, against, bool(np.array_equal(found, right)))
        fixed = sum((folder / each).stat().st_size for each in ("evaluation.key", "public.key"))
        fixed += sum(len(each.to_bytes()) for each in sent)
        each = len(answer.to_bytes()) / queries
    run.note(f"slices of {slice_size(parameters, queries, 2)} queries; {fixed} bytes a worker")
    _plan(run, 2 * two / queries, float(fixed), each)


def _plan(run: Run, decision: float, fixed: float, each: float) -> None:
    plan = run.table("planned: decisions an hour in batches of 10,000", ["workers", *LINES])
    for count in PLANNED:
        rates = [
            decisions_an_hour(
                count, decision=decision, queries=10_000, fixed=fixed, each=each, line=line
            )
            for line in LINES.values()
        ]
        plan.add(count, *rates)


def _prepared(folder: Path, parameters: fhe.RuleParameters, queries: int, seed: int) -> Any:
    keys = fhe.generate_keys(parameters)
    public = fhe.make_public_key(keys)
    fhe.save_evaluation_keys(folder, keys.evaluation)
    fhe.save_public_key(folder, public)
    shape = (queries, parameters.contributors, parameters.classes)
    codes = np.random.default_rng(seed).integers(0, 2**parameters.bits, shape)
    sent = [
        fhe.contribute(codes[:, i], public, contributor=i, name=f"c{i}", federation="f", batch="b")
        for i in range(parameters.contributors)
    ]
    for message in sent:
        message.save(folder / f"{message.name}.contribution")
    return keys, sent, codes


def _started(net: Loopback, folder: Path) -> Calling:
    members = {each: write_identity(folder / f"{each}.key") for each in ("evaluator", *NAMES)}
    (folder / "members.json").write_text(json.dumps(members))
    addresses = []
    for name in NAMES:
        port = free_port()
        net.start(
            *(name, "securefl", "serve", "worker", "--name", name, "--members", "members.json"),
            *("--identity", f"{name}.key", "--state", f"{name}.state", "--port", str(port)),
            *("--certificate", "server.pem", "--certificate-key", "server.key"),
        )
        addresses.append(f"{name}=https://127.0.0.1:{port}")
    return Calling(
        addresses=tuple(addresses),
        members=folder / "members.json",
        identity=folder / "evaluator.key",
        authority=folder / "ca.pem",
    )


def _alone(folder: Path) -> float:
    """Seconds of one process with two threads, after it is warm."""
    command = [sys.executable, "-c", _ALONE, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _quiet(phase: str, done: int, total: int) -> None:
    pass


if __name__ == "__main__":
    main()
