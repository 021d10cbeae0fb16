"""How long does a round of FedNL take, and how soon is the gradient 1e-9?

w8a (142 clients of 350, 301 features with intercept), a9a and phishing; lambda 1e-3, k = 8 d, as
u-FedNL's runs. Its times, measured on a machine of two cores: w8a 189 to 259 ms a round, a9a 36 to
54 ms, phishing 6 to 11 ms. A target is for the median round of a thousand; the first ones, in which
the estimates are still far and the compiled code is loaded, are given beside it.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks._harness import Run, Table, benchmark, peak_memory
from benchmarks._logistic import SETTINGS, clients_of
from secure_fl.federation import Client, Federation
from secure_fl.trainers.fednl import (
    Compressor,
    Identity,
    LogisticRidge,
    NewtonState,
    RandK,
    RankR,
    SharedRandK,
    TopK,
    fednl,
    fednl_ls,
)

PENALTY = 1e-3
TARGET_MS = {"w8a": 63.0, "a9a": 12.0, "phishing": 2.5}
TOLERANCE = 1e-9
WORKERS = "threads:2"
FIRST = 10
"""Rounds that are timed by themselves, too."""
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _compressors(d: int) -> dict[str, Compressor]:
    k = 8 * d
    return {
        "shared-seed Rand-K": SharedRandK(k),
        "Top-K": TopK(k),
        "Rand-K": RandK(k),
        "identity": Identity(),
        "Rank-1": RankR(1),
    }


def _times(
    fed: Federation, d: int, rounds: int, option: int, compressor: Compressor
) -> tuple[list[float], list[float], NewtonState]:
    """Wall and processor seconds of each state of a run, and the last one."""
    states = fednl(
        fed,
        LogisticRidge(PENALTY),
        d=d,
        rounds=rounds,
        option=option,
        compressor=compressor,
    )
    driven = fed.rounds(states)
    wall, processor = [], []
    start, used = time.perf_counter(), time.process_time()
    state = next(driven)
    while True:
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
        start, used = time.perf_counter(), time.process_time()
        following = next(driven, None)
        if following is None:
            return wall, processor, state
        state = following


def _federation(clients: list[Client]) -> Federation:
    """The clients with nothing kept from another run."""
    return Federation([Client(c.name, c.features, c.targets) for c in clients], workers=WORKERS)


def _rounds(run: Run, table: Table, name: str, clients: list[Client], d: int) -> None:
    for option in (2, 1):
        for label, compressor in _compressors(d).items():
            rounds = 10 if run.quick else 1000
            run.progress(f"{name}, option {option}, {label}")
            fed = _federation(clients)
            seconds, processor, last = _times(fed, d, rounds, option, compressor)
            median = float(np.median(seconds[1:])) * 1e3
            table.add(
                name,
                option,
                label,
                rounds,
                median,
                float(np.median(processor[1:])) * 1e3,
                float(np.median(seconds[1 : 1 + FIRST])) * 1e3,
                sum(seconds[1:]),
                seconds[0],
                median / TARGET_MS[name],
                last.gradient_norm,
                peak_memory() / 1e6,
            )
            fed.close()


def timed_rounds(name: str, option: int, label: str, rounds: int) -> tuple[float, float]:
    """Milliseconds by the clock and of the processor of the median round, in this process."""
    clients, d = clients_of(name, intercept=True)
    with _federation(clients) as fed:
        seconds, processor, _ = _times(fed, d, rounds, option, _compressors(d)[label])
    wall, used = (1e3 * float(np.median(each[1:])) for each in (seconds, processor))
    return wall, used


def _threads(run: Run, table: Table) -> None:
    """The same rounds in two fresh processes, one of which is told to use one thread."""
    names = ("phishing",) if run.quick else ("w8a", "a9a")
    for name in names:
        for option, label in ((2, "identity"), (2, "Rank-1"), (1, "identity")):
            run.progress(f"{name}, threads, option {option}, {label}")
            found = []
            for value in (None, "1"):
                before = {key: os.environ.pop(key, None) for key in VARIABLES}
                os.environ.update({} if value is None else dict.fromkeys(VARIABLES, value))
                # A fresh interpreter: the libraries read the environment when they are loaded.
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    arguments = (name, option, label, 10 if run.quick else 200)
                    found.append(pool.submit(timed_rounds, *arguments).result())
                for key, old in before.items():
                    os.environ.pop(key, None)
                    if old is not None:
                        os.environ[key] = old
            (wall, used), (wall_one, used_one) = found
            table.add(name, option, label, wall, wall_one, used, used_one, used / used_one)


def _to_tolerance(run: Run, table: Table, name: str, clients: list[Client], d: int) -> None:
    for label, compressor in _compressors(d).items():
        run.progress(f"{name}, line search, {label}")
        fed = _federation(clients)
        start = time.perf_counter()
        states = fednl_ls(
            fed, LogisticRidge(PENALTY), d=d, rounds=20 if run.quick else 400, compressor=compressor
        )
        for state in fed.rounds(states):
            if state.gradient_norm <= TOLERANCE:
                break
        fed.close()
        # The norm is that of the point the last round started from.
        table.add(
            name,
            f"FedNL-LS, {label}",
            state.round - 1,
            time.perf_counter() - start,
            state.gradient_norm,
        )


def _pooled(run: Run, table: Table, name: str, clients: list[Client], d: int) -> None:
    from scipy.sparse import csr_matrix, vstack
    from sklearn.linear_model import LogisticRegression

    rows = csr_matrix(vstack([c.features for c in clients]))
    targets = np.concatenate([c.targets for c in clients])
    for solver, X in (("newton-cholesky", rows.toarray()), ("lbfgs", rows)):
        run.progress(f"{name}, scikit-learn {solver}")
        # Its objective is a sum of losses and 1/(2C) |x|^2; ours a mean and lambda/2 |x|^2.
        model = LogisticRegression(
            C=1 / (PENALTY * len(targets)),
            solver=solver,
            fit_intercept=False,
            tol=1e-10,
            max_iter=10_000,
        )
        start = time.perf_counter()
        model.fit(X, targets)
        seconds = time.perf_counter() - start
        x = model.coef_[0]
        pull = -targets / (1 + np.exp(np.clip(targets * (rows @ x), -700, 700)))
        norm = np.linalg.norm(rows.T @ pull / len(targets) + PENALTY * x)
        table.add(
            name,
            f"scikit-learn {solver}, pooled data",
            int(np.max(model.n_iter_)),
            seconds,
            float(norm),
        )


@benchmark("how long does a round of FedNL take, and how soon is the gradient 1e-9?")
def main(run: Run) -> None:
    """Times FedNL's rounds, and its way to a small gradient beside pooled solvers."""
    run.seeds(0)
    run.parameter(penalty=PENALTY, k="8 d", workers=WORKERS, targets_ms=TARGET_MS)
    columns = ["data", "option", "compressor", "rounds", "ms / round", "CPU ms / round"]
    columns += [f"ms / round, first {FIRST}", "total s"]
    columns += ["first state s", "of target", "gradient", "peak MB"]
    speed = run.table("seconds a round", columns)
    columns = ["data", "method", "rounds", "seconds", "gradient"]
    soon = run.table("seconds to a gradient of 1e-9", columns)
    columns = ["data", "option", "compressor", "ms", "ms, one thread set", "CPU ms"]
    columns += ["CPU ms, one thread set", "CPU ratio"]
    threads = run.table("as found, and with one thread set in the environment", columns)
    problems = {name: clients_of(name, intercept=True) for name in ("w8a", "a9a", "phishing")}
    for name, (clients, d) in problems.items():
        run.parameter(**{name: {"clients": len(clients), "rows": SETTINGS[name][1], "d": d}})
        _rounds(run, speed, name, clients, d)
    # Afterwards, because the pooled solvers' dense rows would count as this code's peak memory.
    for name, (clients, d) in problems.items():
        _to_tolerance(run, soon, name, clients, d)
        _pooled(run, soon, name, clients, d)
    _threads(run, threads)
    run.note(
        "ms / round is the median; total leaves the first state (layout and H^0) out"
        " and CPU time is what another load of the machine disturbs least"
    )
    run.note("peak memory is the process's so far, data and libraries included")
    run.note("one process; two threads share the clients, and BLAS keeps to one beside them")
    if run.quick:
        run.note(
            "10 rounds instead of 1000, 20 of the line search:"
            " some gradients are those of unfinished runs"
        )


if __name__ == "__main__":
    main()
