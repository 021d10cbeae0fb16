"""What does the rule `masked` cost each role, beside the encrypted tournament?

All parties run in this process, in one thread. Processor time is counted for each role apart,
encoding and checking of the messages included: the contributors make rows, mask, share and unmask;
the evaluator passes messages on and adds masked rows; the querier opens shares, takes the masks off
and reads. The first sum of a session checks every signature and agrees every pair of keys; it is
run before the clock, as the tournament's keys are made before.

A batch of 1 pays for a whole sum, longer ones share it. From a hundred contributors on a few of
them are measured, and the others do only what those, the evaluator and the querier need of them
(`benchmarks._unmeasured`); the column says how many. Evaluator and querier do all their work.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click
import numpy as np
from attrs import define

import fhe
from benchmarks._federations import CORRUPT, LOST, cells_of, ring_of
from benchmarks._harness import DataMissingError, Run, benchmark, newsgroups
from benchmarks._unmeasured import Secrets, Unmeasured
from kahm import classify
from secure_fl.data.partition import dirichlet
from secure_fl.federation.secagg import Identity, Member, Parameters, ProtocolClient, ProtocolServer
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.parameters import SESSION, default_threshold, share_threshold
from secure_fl.masked import MaskedRule, RowCoding, Told
from secure_fl.masked.rows import Ints

CLASSES = 20
SAMPLE, WHOLE = 4, 30
"""Contributors that are measured of more than so many."""


COLUMNS = (
    "contributors",
    "measured",
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
    """Processor seconds and bytes of one batch, by role; of contributors, those measured."""

    contributors: float = 0.0
    others: float = 0.0
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
    """Contributors, and sums over them one after the other.

    Args:
        contributors: how many.
        degree: that each masks with.
        threshold: that must be left.
    """

    def __init__(self, contributors: int, degree: int) -> None:
        n = contributors
        self.names = tuple(f"client{i:04}" for i in range(n))
        self._call = 0
        self._session = os.urandom(SESSION)
        self._degree, self._threshold = degree, default_threshold(n)
        self._shares = share_threshold(n, degree, self._threshold)
        # Spread over the names, so that of a pair either may add the mask.
        self.measured = self.names if n <= WHOLE else self.names[:: -(-n // SAMPLE)]
        identities = {name: Identity() for name in self.names}
        directory = {name: each.public for name, each in identities.items()}
        self._members = {
            name: Member(name, each, directory, self._session) for name, each in identities.items()
        }
        self._others = [name for name in self.names if name not in self.measured]
        self._secrets = Secrets(self._shares, degree + 1)

    def sum(self, codes: Ints, coding: RowCoding) -> Cost:
        """One batch of codes (queries, contributors, classes)."""
        cost = Cost()
        told = Told("benchmark", f"{self._call}", np.empty((len(codes), 0)))
        agreed = told.agreed(coding, 0, len(codes))
        numbers = (self._threshold, self._degree, self._shares, coding.word_bits)
        parameters = Parameters(self._session, 0, self._call, self.names, *numbers, agreed=agreed)
        self._call += 1
        clients: dict[str, ProtocolClient | Unmeasured] = {}
        for name in self.measured:
            with cost.clock("contributors"):
                clients[name] = ProtocolClient(self._members[name], parameters)
        graph = Graph(self.names, self._degree, parameters.context)
        # Asked for by a thousand contributors of a thousand each.
        holders = functools.cache(graph.holders)
        for name in self._others:
            rest = (self._secrets, parameters, graph, holders, self.measured)
            clients[name] = Unmeasured(self._members[name], *rest)
        with cost.clock("evaluator"):
            server = ProtocolServer(parameters)
        replies: Mapping[str, bytes] = dict.fromkeys(self.names, b"")

        def step(say: Callable[[str, bytes], bytes], *, last: bool = False) -> None:
            nonlocal replies
            for name, reply in replies.items():
                is_measured = name in self.measured
                with cost.clock("contributors" if is_measured else "others"):
                    message = say(name, reply)
                if is_measured:
                    cost.up += len(message)
                    cost.down += len(reply)
                # Opened shares are the querier's to read: they take the masks off.
                with cost.clock("querier" if last else "evaluator"):
                    server.receive(name, message)
            if not last:
                with cost.clock("evaluator"):
                    replies = server.close_step()

        place = {name: i for i, name in enumerate(self.names)}

        def masked(name: str, reply: bytes) -> bytes:
            rows, client = coding.rows(codes[:, place[name]]), clients[name]
            if isinstance(client, Unmeasured):
                return client.mask(reply, rows)
            return client.mask(reply, rows, "rows")

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


def _cases(quick: bool, most: int) -> Iterator[tuple[int, int, int, int]]:
    """(contributors, neighbours, bits, queries of a batch) of every row."""
    if quick:
        yield from ((3, 2, 8, 20), (10, 9, 6, 20), (10, 9, 8, 20), (100, 42, 8, 5))
        return
    for n in (n for n in (3, 10, 30, 100, 300, 1000) if n <= most):
        ring = ring_of(n)
        for degree in dict.fromkeys((n - 1, ring)):
            yield from ((n, degree, bits, batch) for bits in (6, 8) for batch in (1, 20, 200))


def _costs(run: Run, most: int) -> None:
    (seed,) = run.seeds(0)
    rng = np.random.default_rng(seed)
    table = run.table(
        f"masked, {CLASSES} classes, 64-bit words: ms of processor and kB, a query",
        COLUMNS,
    )
    session: Session | None = None
    of: tuple[int, int] | None = None
    for n, degree, bits, batch in _cases(run.quick, most):
        run.progress(f"{n} contributors, {degree} neighbours, {bits} bits, batch of {batch}")
        coding = RowCoding(bits, CLASSES)
        if session is None or of != (n, degree):
            session, of = Session(n, degree), (n, degree)
            session.sum(rng.integers(0, 2**bits, (1, n, CLASSES)), coding)
        cost, measured = session.sum(_codes(rng, batch, n, bits), coding), len(session.measured)
        each = cost.contributors / measured
        seconds = (each, cost.evaluator, cost.querier, n * each + cost.evaluator + cost.querier)
        sizes = (cost.up / measured, cost.down / measured)
        table.add(
            *(n, measured, bits, degree, batch),
            *(1e3 * each / batch for each in seconds),
            *(each / batch / 1e3 for each in sizes),
            cost.right,
        )
    run.note("with 3, 10 and 30 contributors no ring is good enough: the graph is complete alone")


def _codes(rng: np.random.Generator, batch: int, n: int, bits: int) -> Ints:
    return rng.integers(0, 2**bits, (batch, n, CLASSES))


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
        cases.append((100, ring_of(100), 100))
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
    click.option("--most", default=1000, show_default=True, help="Contributors at most."),
)
def main(run: Run, most: int) -> None:
    """Milliseconds and bytes a query of every role, and documents answered end to end."""
    run.parameter(classes=CLASSES, ring_lost=LOST, ring_corrupt=CORRUPT)
    _costs(run, most)
    _tournament(run)
    _documents(run)


if __name__ == "__main__":
    main()
