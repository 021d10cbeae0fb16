"""What does a full batch of engine bgv take over the service, and how much memory?

All parties are processes on loopback, without TLS: an evaluator and its contributors as
`securefl serve` starts them, and the querier in this process. Clients know overlapping clouds, and
every answer is compared with the plain rule on the same codes. The batch is full with the known
answers that a querier mixes in by default.
"""

import secrets
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fhe
from benchmarks._harness import Run, benchmark
from fhe.audit import known_for, new_audit
from secure_fl.demo.service_parties import IDENTITY, PASSPHRASE, deployment, set_up
from secure_fl.heads.codes import all_codes, batched_parameters
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.manifest import make_manifest
from secure_fl.service.channel import Channel
from secure_fl.service.members import read_member
from secure_fl.service.querier import BatchTerms, Querier

SEED = 0
FEATURES, RECORDS = 64, 400
Floats = np.ndarray[Any, np.dtype[np.float32]]


class Memory:
    """The most that a process and its descendants hold, looked at twenty times a second.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self.own, self.largest, self.together = pid, 0, 0, 0

    def look(self) -> None:
        """Notes what they hold now."""
        children: dict[int, list[int]] = {}
        held: dict[int, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                facts = dict(
                    line.split(":", 1) for line in (folder / "status").read_text().splitlines()
                )
                parent, most = int(facts["PPid"]), int(facts["VmRSS"].split()[0]) * 1024
            except (OSError, KeyError):
                continue
            children.setdefault(parent, []).append(int(folder.name))
            held[int(folder.name)] = most
        found, left = [], [self._pid]
        while left:
            each = left.pop()
            found.append(held.get(each, 0))
            left += children.get(each, ())
        self.own = max(self.own, found[0])
        self.largest = max(self.largest, *found[1:], 0)
        self.together = max(self.together, sum(found))


@contextmanager
def _watched(pid: int) -> Iterator[Memory]:
    found, ended = Memory(pid), threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            found.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _real(slots: int, classes: int) -> int:
    """Queries that fill a batch together with their known answers."""
    real = slots
    while real + known_for(real, classes) > slots:
        real -= 1 + (real + known_for(real, classes) - slots) // 2
    return real


@benchmark("what does a full batch of engine bgv take over the service, and how much memory?")
def main(run: Run) -> None:
    """Seconds until each state, bytes at the evaluator, memory of its processes, answers right."""
    clients, classes, bits = (3, 3, 4) if run.quick else (10, 20, 8)
    (seed,) = run.seeds(SEED)
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, FEATURES))

    def cloud(count: int) -> tuple[Floats, np.ndarray[Any, np.dtype[np.int64]]]:
        labels = rng.integers(0, classes, count)
        return (centres[labels] + rng.normal(size=(count, FEATURES))).astype(np.float32), labels

    facts = make_manifest(
        classes=tuple(f"c{i}" for i in range(classes)),
        clients=tuple(f"client{i}" for i in range(clients)),
        n_features=FEATURES,
        bits=bits,
    )
    run.progress("training heads and drawing keys")
    heads = train_heads([(name, *cloud(RECORDS)) for name in facts.clients], facts)
    slots = batched_parameters(facts).degree
    real = _real(slots, classes)
    audit, (queries, _) = new_audit(slots - real), cloud(real)
    run.parameter(contributors=clients, classes=classes, bits=bits, features=FEATURES)
    run.parameter(queries=real, known_answers=audit.known, slots=slots)
    with tempfile.TemporaryDirectory(prefix="securefl-service-") as name:
        folder = Path(name)
        manifest = set_up(folder, facts, heads, engine="bgv")
        own = folder / "querier"
        secret, public = fhe.load_secret_keys(own, PASSPHRASE), fhe.load_public_key(own)
        expected = fhe.plain(all_codes(heads, queries, manifest), public.parameters)
        with deployment(folder) as running:
            run.progress("starting all parties")
            running.start("evaluator")
            running.start_contributors(manifest.clients, "--daily-queries", str(slots))
            channel = Channel(
                running.url(), read_member(own / IDENTITY, "querier", manifest), manifest
            )
            querier = Querier(
                read_member(own / IDENTITY, "querier", manifest), manifest, public, channel
            )
            times: dict[str, float] = {}
            before = running.metrics()
            with _watched(running.pid("evaluator")) as memory:
                start = time.perf_counter()

                def noted(status: Mapping[str, Any]) -> None:
                    times.setdefault(status["state"], time.perf_counter() - start)
                    run.progress(f"{status['state']} {status['done']} of {status['total']}")

                batch = secrets.token_hex(8)
                querier.open(batch, queries, audit, BatchTerms())
                times["sealed"] = time.perf_counter() - start
                found = querier.fetch(batch, secret, audit, on_status=noted, queries=real)
                whole = time.perf_counter() - start
            after = running.metrics()
    moved = [
        after[key] - before[key]
        for key in (f'securefl_http_bytes_total{{direction="{d}"}}' for d in ("in", "out"))
    ]
    table = run.table(
        "one full batch over the service",
        [
            *("sealed queries there s", "contributions there s", "answered s", "read s"),
            *("MB in", "MB out", "kB in a query and client", "all right"),
        ],
    )
    right = bool(np.array_equal(found.classes, expected))
    begun = times.get("queued", times.get("evaluating", times["answered"]))
    each = moved[0] / slots / clients / 1e3
    row = (times["sealed"], begun, times["answered"], whole, *(m / 1e6 for m in moved), each)
    table.add(*row, right)
    held = run.table("memory of the evaluator, GB", ["service", "largest process", "all together"])
    held.add(*(bytes_ / 1e9 for bytes_ in (memory.own, memory.largest, memory.together)))
    run.note("the service is the process that takes and gives bodies; the others evaluate")
    run.note("all parties share this machine, contributors and the querier too")


if __name__ == "__main__":
    main()
