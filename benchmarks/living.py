"""What does a head cost that lives, beside one that is trained anew?

Made-up records of 64 features in 10 classes, N_b = 100. A day adds 1,000 records (a tenth of the
smallest size); an erasure takes 10 that are spread over the head. Every step is a process of its
own, so that its memory is its own, and includes reading and writing the files. That both ways end
in the same bytes is tested (tests/secure_fl/heads/test_living.py).
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import numpy as np

from benchmarks._harness import Run, benchmark, peak_memory
from secure_fl.data import Dataset
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.forgetting import forget
from secure_fl.heads.head import batch_rows, head_path, load_head
from secure_fl.heads.index import first_index
from secure_fl.heads.living import Living
from secure_fl.heads.manifest import Manifest, load_manifest, make_manifest, save_manifest
from secure_fl.heads.run_folder import create_run
from secure_fl.heads.updating import update, write_living

FEATURES = 64
CLASSES = 10
BATCH_SIZE = 100
SIZES = (10_000, 100_000, 1_000_000)
QUICK = (1_000, 10_000)
DAY = 1_000
GONE = 10
QUERIES = 500
SEED = 0
CLIENT = "north"


Times = tuple[float, float]
"""Wall seconds, and processor seconds of all threads."""


def clocked(work: Callable[[], object]) -> Times:
    """What a piece of work takes, once."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def records(n: int, seed: int) -> Dataset:
    """n records around a centre a class."""
    centres = np.random.default_rng(SEED).normal(size=(CLASSES, FEATURES))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    X = rng.standard_normal((n, FEATURES), np.float32)
    X += centres[y].astype(np.float32)
    return Dataset(X, y, tuple(map(str, range(CLASSES))), CLIENT, f"seed {seed}")


def facts() -> Manifest:
    """The federation of one client."""
    return make_manifest(
        classes=tuple(map(str, range(CLASSES))),
        clients=(CLIENT,),
        n_features=FEATURES,
        batch_size=BATCH_SIZE,
    )


def train_anew(folder: Path, n: int) -> Times:
    """Training a head on n records and writing its run folder."""
    data, manifest = records(n, 1), facts()

    def work() -> None:
        create_run(folder, train_heads([(CLIENT, data.X, data.y)], manifest), manifest)

    return clocked(work)


def store(folder: Path, n: int) -> Times:
    """The files of the same head with no machine fitted: such records spread in every batch."""
    data, manifest = records(n, 1), facts()
    rows, cells = batch_rows(data.X, data.y, manifest, np.random.default_rng(SEED))
    flat = np.zeros(len(rows), bool)
    index = first_index(data.X, rows, cells, flat, {}, source=data.source)
    living = Living(tuple(data.X[own] for own in rows), index, np.float32)
    aside = head_path(folder, CLIENT).parent
    aside.mkdir(parents=True)
    write_living(aside, CLIENT, living, manifest, None)
    save_manifest(folder, manifest)
    return 0.0, 0.0


def add_a_day(folder: Path, day: int) -> Times:
    """Adding a day's records."""
    data = records(day, 2)
    return clocked(lambda: update(folder, CLIENT, data))


def erase(folder: Path, n: int) -> Times:
    """Forgetting records that are spread over the head."""
    rows = np.linspace(0, n - 1, GONE).astype(int).tolist()
    return clocked(lambda: forget(folder, CLIENT, rows=rows))


def read(folder: Path, _: int) -> Times:
    """Reading the head, its machines fitted."""
    return clocked(lambda: load_head(folder, CLIENT, load_manifest(folder)))


def answer(folder: Path, queries: int) -> Times:
    """All measures at once, the head read and warm; the best of three."""
    manifest = load_manifest(folder)
    head = load_head(folder, CLIENT, manifest)
    X = records(queries, 3).X
    head.measures(X[:1], manifest)
    return min(clocked(lambda: head.measures(X, manifest)) for _ in range(3))


STEPS = {step.__name__: step for step in (store, train_anew, add_a_day, erase, read, answer)}


MEASURED = ("train_anew", "add_a_day", "erase", "read", "answer")


def in_a_process(step: str, folder: Path, number: int) -> tuple[float, float, float]:
    """Wall and processor seconds of a step, and the largest memory of its process in GiB."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, step, folder, number).result()


def _measured(step: str, folder: Path, number: int) -> tuple[float, float, float]:
    return (*STEPS[step](folder, number), peak_memory() / 2**30)


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


@benchmark(
    "what does a head cost that lives, beside one that is trained anew?",
    click.option("--largest", default=SIZES[-1], show_default=True, help="Records at most."),
    click.option(
        "--fitted",
        default=SIZES[-1],
        show_default=True,
        help="Records up to which machines are fitted: for training anew, reading, evaluation.",
    ),
)
def main(run: Run, largest: int, fitted: int) -> None:
    """Times training anew, a day's update, an erasure, and evaluation, against stored records."""
    sizes = [n for n in (QUICK if run.quick else SIZES) if n <= largest]
    day = min(DAY, sizes[0] // 10)
    run.seeds(SEED, 1, 2, 3)
    run.parameter(features=FEATURES, batch_size=BATCH_SIZE, day=day, gone=GONE, queries=QUERIES)
    columns = ["records", "train s", "update s", "train / update", "forget s", "train / forget"]
    steps = run.table("update and erasure beside training anew", columns)
    processor = run.table("processor seconds", ["records", *MEASURED])
    memory = run.table("largest memory of the process, GiB", ["records", *MEASURED])
    growth = run.table(
        "head against records",
        ["records", "head MB", "index MB", "read s", f"{QUERIES} queries s"],
    )
    sizes_of_heads: list[tuple[float, float]] = []
    times: dict[str, list[tuple[float, float]]] = {"evaluation time": [], "its processor time": []}
    for n in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "run"
            numbers = {"train_anew": n, "add_a_day": day, "erase": n, "read": 0, "answer": QUERIES}
            if n > fitted:
                numbers = {"store": n, "add_a_day": day, "erase": n}
            found: dict[str, tuple[float | None, float | None, float | None]]
            found = dict.fromkeys(STEPS, (None, None, None))
            for step, number in numbers.items():
                run.progress(f"{n:,} records: {step}")
                found[step] = in_a_process(step, folder, number)
            seconds = {step: each[0] for step, each in found.items()}
            head = head_path(folder, CLIENT)
            size, index = head.stat().st_size, head.with_name("index").stat().st_size
        anew, more, less = (seconds[step] for step in ("train_anew", "add_a_day", "erase"))
        steps.add(n, anew, more, _ratio(anew, more), less, _ratio(anew, less))
        processor.add(n, *(found[step][1] for step in MEASURED))
        memory.add(n, *(found[step][2] for step in MEASURED))
        growth.add(n, size / 1e6, index / 1e6, seconds["read"], seconds["answer"])
        sizes_of_heads.append((n, size))
        for what, taken in zip(times, found["answer"][:2], strict=True):
            if taken is not None:
                times[what].append((n, taken))
    for what, points in {"head size": sizes_of_heads, **times}.items():
        if len(points) > 1:
            across, up = np.log(np.array(points)).T
            slope = np.polyfit(across, up, 1)[0]
            run.note(f"{what} grows as records to the power {slope:.3f}")
    if sizes[-1] > fitted:
        run.note(f"above {fitted:,} records no machine was fitted: update and forget need none")
    run.note("training anew is that of the records before the day; reading and writing included")


if __name__ == "__main__":
    main()
