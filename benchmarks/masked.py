"""What does the rule `masked` cost each role, beside the encrypted tournament?

All parties run in this process, in one thread. Processor time is counted for each role apart,
encoding and checking of the messages included: the contributors make rows, mask, share and unmask;
the evaluator passes messages on and adds masked rows; the querier opens shares, takes the masks off
and reads. The first sum of a session checks every signature and agrees every pair of keys; it is
run before the clock, as the tournament's keys are made before.

A batch of 1 pays for a whole sum, longer ones share it.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click
import numpy as np
from attrs import define

import fhe
from benchmarks._federations import cells_of
from benchmarks._harness import DataMissingError, Run, benchmark, newsgroups
from kahm import classify
from secure_fl.data.partition import dirichlet
from secure_fl.federation import ring_degree
from secure_fl.federation.secagg import Identity, Member, Parameters, ProtocolClient, ProtocolServer
from secure_fl.federation.secagg.parameters import SESSION, default_threshold, share_threshold
from secure_fl.masked import MaskedRule, RowCoding, Told
from secure_fl.masked.rows import Ints

CLASSES = 20
LOST, CORRUPT = 0.1, 0.1
"""Shares of contributors that the ring withstands: that drop out, and that collude."""


COLUMNS = (
    "contributors",
    "bits",
    "neighbours",
    "batch",
    "ms a contributor",
    "ms evaluator",
    "ms querier",
    "ms all parties",
    "kB up a contributor",
    "kB down",
    "all right",
)


@define
class Cost:
    """Processor seconds and bytes of one batch, by role."""

    contributors: float = 0.0
    evaluator: float = 0.0
    querier: float = 0.0
    up: int = 0
    down: int = 0
    right: bool = False

    @contextmanager
    def clock(self, role: str) -> Iterator[None]:
        """Counts for a role."""
        start = time.process_time()
        yield
        setattr(self, role, getattr(self, role) + time.process_time() - start)


class Session:
    """Contributors, and sums over them one after the other."""

    def __init__(self, contributors: int) -> None:
        self.names = tuple(f"client{i:04}" for i in range(contributors))
        self._call = 0
        self._session = os.urandom(SESSION)
        identities = {name: Identity() for name in self.names}
        directory = {name: each.public for name, each in identities.items()}
        self._members = {
            name: Member(name, each, directory, self._session) for name, each in identities.items()
        }

    def sum(self, codes: Ints, coding: RowCoding, degree: int) -> Cost:
        """One batch of codes (queries, contributors, classes)."""
        n, cost = len(self.names), Cost()
        threshold = default_threshold(n)
        shares = share_threshold(n, degree, threshold)
        told = Told("benchmark", f"{self._call}", np.empty((len(codes), 0)))
        agreed = told.agreed(coding, 0, len(codes))
        numbers = (0, self._call, self.names, threshold, degree, shares, coding.word_bits)
        parameters = Parameters(self._session, *numbers, agreed=agreed)
        self._call += 1
        clients = {}
        for name in self.names:
            with cost.clock("contributors"):
                clients[name] = ProtocolClient(self._members[name], parameters)
        with cost.clock("evaluator"):
            server = ProtocolServer(parameters)
        replies: Mapping[str, bytes] = dict.fromkeys(self.names, b"")

        def step(say: Callable[[str, bytes], bytes], *, last: bool = False) -> None:
            nonlocal replies
            for name, reply in replies.items():
                with cost.clock("contributors"):
                    message = say(name, reply)
                cost.up += len(message)
                # Opened shares are the querier's to read: they take the masks off.
                with cost.clock("querier" if last else "evaluator"):
                    server.receive(name, message)
            if not last:
                with cost.clock("evaluator"):
                    replies = server.close_step()
                cost.down += sum(map(len, replies.values()))

        place = {name: i for i, name in enumerate(self.names)}

        def masked(name: str, reply: bytes) -> bytes:
            return clients[name].mask(reply, coding.rows(codes[:, place[name]]), "rows")

        step(lambda name, _: clients[name].advertise())
        step(lambda name, reply: clients[name].share(reply))
        step(masked)
        step(lambda name, reply: clients[name].confirm(reply))
        step(lambda name, reply: clients[name].unmask(reply), last=True)
        with cost.clock("querier"):
            found = coding.open(server.total())
        cost.right = bool(
            np.array_equal(found.classes, classify(codes))
            and np.array_equal(found.codes, codes.min(axis=(1, 2)))
        )
        return cost


def _cases(quick: bool, most: int) -> list[tuple[int, int, bool, int]]:
    """(contributors, bits, ring, queries of a batch) of every row."""
    if quick:
        return [(3, 8, False, 20), (10, 6, False, 20), (10, 8, False, 20), (30, 8, True, 5)]
    small = [(n, bits, False, batch) for n in (3, 10) for bits in (6, 8) for batch in (1, 20, 200)]
    # Beyond these the complete graph, and long batches, take minutes and cost the same a query.
    middle = [(30, bits, False, 20) for bits in (6, 8)]
    middle += [(100, bits, ring, 20) for bits in (6, 8) for ring in (False, True)]
    large = [(n, bits, True, 5) for n in (300, 1000) for bits in (6, 8)]
    return [case for case in small + middle + large if case[0] <= most]


def _costs(run: Run, most: int) -> None:
    (seed,) = run.seeds(0)
    rng = np.random.default_rng(seed)
    table = run.table(
        f"masked, {CLASSES} classes, 64-bit words: ms of processor and kB, a query",
        COLUMNS,
    )
    sessions: dict[tuple[int, int], Session] = {}
    for n, bits, ring, batch in _cases(run.quick, most):
        degree = ring_degree(n, round(LOST * n), round(CORRUPT * n)) if ring else n - 1
        if ring and degree == n - 1:
            run.note(f"{n} contributors: no ring is good enough, the graph is complete")
        run.progress(f"{n} contributors, {bits} bits, {degree} neighbours, batch of {batch}")
        coding, key = RowCoding(bits, CLASSES), (n, degree)
        if key not in sessions:
            sessions[key] = Session(n)
            sessions[key].sum(rng.integers(0, 2**bits, (1, n, CLASSES)), coding, degree)
        cost = sessions[key].sum(rng.integers(0, 2**bits, (batch, n, CLASSES)), coding, degree)
        whole = cost.contributors + cost.evaluator + cost.querier
        seconds = (cost.contributors / n, cost.evaluator, cost.querier, whole)
        sizes = (cost.up / n, cost.down / n)
        table.add(
            *(n, bits, degree, batch),
            *(1e3 * each / batch for each in seconds),
            *(each / batch / 1e3 for each in sizes),
            cost.right,
        )


def _tournament(run: Run) -> None:
    (seed,) = run.seeds(0)
    rng = np.random.default_rng(seed)
    table = run.table(
        f"the encrypted tournament, {CLASSES} classes, 8 bits: ms of processor and kB, a query",
        ["contributors", "batch", "failure", "ms evaluator", "kB up a contributor", "all right"],
    )
    cases = [(3, 2)] if run.quick else [(3, 10), (10, 10)]
    for n, batch in cases:
        run.progress(f"the tournament, {n} contributors")
        parameters = fhe.RuleParameters(contributors=n, classes=CLASSES, bits=8, block=16)
        keys = fhe.generate_keys(parameters)
        public = fhe.make_public_key(keys)
        codes = rng.integers(0, 256, (batch, n, CLASSES))
        facts = {"federation": "f", "batch": "b"}
        sent = [
            fhe.contribute(codes[:, i], public, contributor=i, name=f"c{i}", **facts)
            for i in range(n)
        ]
        # Once before the clock: the first call compiles and loads the keys.
        fhe.evaluate(sent, keys.evaluation, public)
        start = time.process_time()
        answer = fhe.evaluate(sent, keys.evaluation, public)
        seconds = time.process_time() - start
        right = bool(np.array_equal(fhe.read_answer(answer, keys), classify(codes)))
        size = len(sent[0].to_bytes())
        exponent = f"2^-{parameters.failure_exponent}"
        table.add(n, batch, exponent, 1e3 * seconds / batch, size / batch / 1e3, right)


def _documents(run: Run) -> None:
    """20 Newsgroups, all parties in this process, against the plain rule on the same codes."""
    try:
        data = newsgroups()
    except DataMissingError as error:
        run.note(f"20 Newsgroups left out: {error}")
        return
    (seed,) = run.seeds(0)
    table = run.table(
        "20 Newsgroups, 8 bits, heads of 100 records a batch, Dirichlet 1: all parties together",
        [
            "contributors",
            "neighbours",
            "queries",
            "seconds",
            "equal to the plain rule",
            "accuracy %",
            "MB up a contributor",
        ],
    )
    cases: list[tuple[int, int | None, int]] = [(10, None, 100 if run.quick else len(data.y_test))]
    if not run.quick:
        cases.append((100, ring_degree(100, 10, 10), 100))
    for n, degree, count in cases:
        run.progress(f"20 Newsgroups, {n} contributors, {count} queries")
        parts = dirichlet(data.y_train, n, 1.0, np.random.default_rng(seed))
        cells = cells_of(data.X_train, data.y_train, parts, CLASSES, 100)
        queries = data.X_test[:count]
        codes = fhe.encode_measures(cells.measures(cells.fit(), queries), 8)
        rule = MaskedRule(contributors=n, classes=CLASSES, bits=8, degree=degree)
        by_name = {name: codes[:, i] for i, name in enumerate(rule.names)}
        start = time.perf_counter()
        answer = rule.answer(by_name, Told("federation", "benchmark", queries))
        seconds = time.perf_counter() - start
        equal = int(np.sum(answer.classes == classify(codes)))
        accuracy = 100 * float(np.mean(answer.classes == data.y_test[:count]))
        sent = answer.bytes_a_contributor / 1e6
        shown = n - 1 if degree is None else degree
        table.add(n, shown, count, seconds, f"{equal} of {count}", accuracy, sent)
    run.note("seconds of 20 Newsgroups are wall time of the sums; folding the queries is not in it")


@benchmark(
    "what does the rule masked cost, beside the encrypted tournament?",
    click.option(
        "--most", default=100, show_default=True, help="Contributors at most; 300 and 1000 too."
    ),
)
def main(run: Run, most: int) -> None:
    """Milliseconds and bytes a query of every role, and documents answered end to end."""
    run.parameter(classes=CLASSES, ring_lost=LOST, ring_corrupt=CORRUPT)
    _costs(run, most)
    _tournament(run)
    _documents(run)


if __name__ == "__main__":
    main()
