"""A worker that lies to its evaluator, beside an honest one: what it costs, and who is named."""

import contextlib
import math
import os
import re
import socket
import threading
import time

import attrs
import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="needs the extra `service` (pip install securefl[service])")

import fhe
from fhe.audit import new_audit
from fhe.envelope import pack, unpack
from fhe.errors import AnswerError
from secure_fl.demo.flower_parties import free_port
from secure_fl.errors import ServiceError
from secure_fl.files import digest_of
from secure_fl.service import cluster
from secure_fl.service.gate import Refusal, reply
from secure_fl.service.members import read_secrets
from secure_fl.service.slice_worker import SliceWorker
from secure_fl.service.slices import EVALUATOR
from tests.attacks.table import Attack
from tests.secure_fl.service.workers import (
    PARAMETERS,
    answered,
    called,
    classes,
    running,
    send,
    some_codes,
)

ATTACK = Attack(
    name="answers an evaluator with lies, as one of its workers",
    holds="a worker's key, and the slices of batches that it is sent",
    before="the batch: held up for ever by one that is always at work, ended by junk, by a refusal"
    " or by an answer to something else, though an honest worker stood by",
    after="its own slices, answered by the other worker; it is named, and asked no more in the"
    " batch. Wrong ciphertexts of the right form pass: known answers find them",
)

QUERIES = 2
LIMIT = 600.0
STEPS = 2
"""Of three contributors' rule on one block of queries."""


class Liar(SliceWorker):
    """A worker whose owner put `lie` in place of evaluating; all else is the real one's.

    Attributes:
        lie: makes the response to a request for a slice.
        asked: requests for slices so far.
    """

    lie = None
    asked = 0

    async def _answer(self, request, circle):
        caller = await self._gate.admit(request, circle, {EVALUATOR})
        await self._gate.body(request, caller, 1 << 20)
        self.asked += 1
        return self.lie(caller)


@pytest.fixture(scope="module")
def folder(workers_folder):
    return workers_folder


@pytest.fixture(scope="module")
def sent(folder):
    return send(fhe.load_public_key(folder), some_codes(QUERIES))


@pytest.fixture(scope="module")
def honest(folder, tmp_path_factory):
    """Address of an honest worker; it keeps its last answer, so asking again costs nothing."""
    with running(folder, "w1", tmp_path_factory.mktemp("honest")) as (_, address):
        yield address


@pytest.fixture(scope="module")
def answer(folder, sent):
    return fhe.evaluate(sent, fhe.load_evaluation_keys(folder), fhe.load_public_key(folder))


@pytest.fixture(scope="module")
def lying(folder, tmp_path_factory):
    """The liar and its address."""
    with running(folder, "w2", tmp_path_factory.mktemp("liar"), Liar) as found:
        yield found


@pytest.fixture
def hurried(monkeypatch):
    """No time between calls."""
    monkeypatch.setattr(cluster, "PAUSE", 0.01, raising=False)
    monkeypatch.setattr("secure_fl.service.slice_job.RETRY", 0.01, raising=False)


@pytest.fixture
def outcome(folder, sent, honest, lying, hurried):
    """Runs a lie beside an honest worker; the batch's answers are right. Returns who was named."""
    liar, address = lying
    expected = fhe.plain(some_codes(QUERIES), PARAMETERS).tolist()

    def run(lie, **options):
        workers = called(folder, address, honest)
        other = workers[1].line
        # Whose thread comes first has the only slice, so the other's is away until then.
        other.acquire()

        def told_first(caller):
            if liar.asked == 1:
                other.release()
            return lie(caller)

        liar.lie, liar.asked = told_first, 0
        found, told = answered(workers, sent, folder, limit=LIMIT, patience=math.inf, **options)
        assert_left(workers)
        assert liar.asked
        assert classes(found, folder) == expected
        return told

    return run


def assert_left(workers):
    """A batch that ended asks nobody any more: not into the next test's lie, nor for ever."""
    for each in workers:
        assert each.line.acquire(timeout=60), each.name


class Clock:
    """Seconds; a lie lets them pass."""

    def __init__(self):
        self._ahead = 0.0

    def __call__(self):
        return time.monotonic() + self._ahead

    def passes(self, seconds):
        self._ahead += seconds


def test_one_that_is_at_work_for_ever_has_its_slice_taken_away(outcome):
    clock = Clock()

    def at_work(caller):
        clock.passes(LIMIT)
        return reply(caller, 202, {"done": 0, "total": 1})

    assert outcome(at_work, clock=clock) == {"w2": "no progress for 600 s with queries 0 to 1"}


def alone(folder, sent, lying, lie, clock):
    """The liar is the evaluator's only worker."""
    liar, address = lying
    liar.lie, liar.asked = lie, 0
    return answered(called(folder, address), sent, folder, limit=LIMIT, clock=clock)


def test_progress_beyond_the_steps_of_a_slice_is_none(folder, sent, lying, hurried):
    """It may tell of every step just in time, but of no more steps than there are."""
    clock = Clock()

    def on_and_on(caller):
        clock.passes(0.9 * LIMIT)
        return reply(caller, 202, {"done": lying[0].asked, "total": 10**6})

    with pytest.raises(ServiceError, match='no worker is left: "w2": no progress for 600 s'):
        alone(folder, sent, lying, on_and_on, clock)
    assert lying[0].asked <= STEPS + 2


def test_one_that_tells_of_its_steps_is_not_cut_off_however_long_they_take(
    folder, sent, lying, answer, hurried
):
    clock = Clock()

    def slow(caller):
        clock.passes(0.9 * LIMIT)
        if lying[0].asked <= STEPS:
            return reply(caller, 202, {"done": lying[0].asked, "total": STEPS})
        return reply(caller, 200, answer.to_bytes())

    found, told = alone(folder, sent, lying, slow, clock)
    assert told == {}
    assert found.to_bytes() == answer.to_bytes()
    assert lying[0].asked == STEPS + 1


def test_one_that_is_slow_on_purpose_holds_nobody_up_who_has_nothing_else_to_do(outcome, lying):
    """Its steps come in time, so it keeps the slice; the other begins it too, and is first."""
    clock = Clock()

    def dawdle(caller):
        if lying[0].asked <= STEPS:
            clock.passes(0.6 * LIMIT)
        return reply(caller, 202, {"done": lying[0].asked, "total": STEPS})

    assert outcome(dawdle, clock=clock) == {}


def test_one_that_is_slow_on_purpose_and_the_only_one_left_ends_the_batch_in_time(
    folder, sent, lying, hurried
):
    """It tells of a step just in time; who waits is told whom for, and how far it says it is."""
    clock = Clock()

    def dawdle(caller):
        clock.passes(0.9 * LIMIT)
        return reply(caller, 202, {"done": min(lying[0].asked, STEPS), "total": STEPS})

    liar, address = lying
    liar.lie, liar.asked = dawdle, 0
    workers = called(folder, address)
    with pytest.raises(ServiceError, match=r"not answered within 0\.2 h") as ended:
        answered(workers, sent, folder, limit=LIMIT, longest=720.0, clock=clock)
    assert_left(workers)
    assert re.search(r'"w2": \d of 2 steps of queries 0 to 1 in 0.\d h', str(ended.value))


@pytest.mark.parametrize(
    "body", [b"\xff", b"[" * 100_000, b"[]", b'{"done": "1"}', b'{"done": -1}']
)
def test_words_about_progress_that_are_none_are_none(outcome, body):
    clock = Clock()

    def babbling(caller):
        clock.passes(LIMIT)
        return reply(caller, 202, body)

    assert set(outcome(babbling, clock=clock)) == {"w2"}


def test_one_that_answers_drop_by_drop_has_its_slice_taken_away(folder, sent, honest):
    """Every drop comes before a time-out; a request that nobody ends costs a thread, not two."""
    clock, lines = Clock(), []

    def drip(mute):
        with contextlib.suppress(OSError):
            while True:
                lines.append(mute.accept()[0])
                clock.passes(LIMIT)
                for letter in b"HTTP/1.1 202 Accepted\r\nX-Long: " + b"x" * 10**6:
                    lines[-1].sendall(bytes([letter]))
                    time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        threading.Thread(target=drip, args=(mute,), daemon=True).start()
        workers = called(folder, f"w2=http://127.0.0.1:{mute.getsockname()[1]}", honest)
        _, told = answered(workers, sent, folder, clock=clock)
        assert told == {"w2": "no progress for 600 s with queries 0 to 1"}
        # The first batch's request is still there: the next one makes no other.
        _, told = answered(workers, sent, folder, clock=clock)
        assert told == {}
        assert len(lines) == 1
        lines[0].close()


def changed(answer, **facts):
    return attrs.evolve(answer, **facts).to_bytes()


def header_of(answer, **members):
    envelope = unpack(answer.to_bytes())
    return pack(envelope.kind, {**envelope.header, **members}, envelope.payload)


JUNK = [
    ("nothing", lambda answer: b"", "not a securefl file"),
    ("junk", lambda answer: os.urandom(100), "not a"),
    ("half an answer", lambda answer: answer.to_bytes()[:-100], "truncated"),
    (
        "a version with line ends",
        lambda answer: header_of(answer, version="3\n\x1bw1"),
        "version 3\\n\\x1bw1,",
    ),
    ("a header of other types", lambda answer: header_of(answer, queries=[[]] * 9), "wrong type"),
    ("another rule", lambda answer: header_of(answer, parameters={"engine": "bgv"}), "its answer"),
    ("another batch", lambda answer: changed(answer, batch="c"), "another batch"),
    ("another federation", lambda answer: changed(answer, federation="g"), "another federation"),
    ("another key", lambda answer: changed(answer, key="0" * 64), "another key"),
    (
        "another slice",
        lambda answer: changed(answer, queries=1, content=answer.content[:8]),
        "1 answers to 2 queries",
    ),
    (
        "too many answers",
        lambda answer: changed(answer, queries=4, content=answer.content * 2),
        "4 answers to 2 queries",
    ),
    (
        "ciphertexts cut short",
        lambda answer: changed(answer, content=answer.content[:-8]),
        "bytes of answers to 2 queries, expected",
    ),
]


@pytest.mark.parametrize(("made", "why"), [e[1:] for e in JUNK], ids=[e[0] for e in JUNK])
def test_what_is_no_answer_to_the_slice_is_not_taken(outcome, answer, made, why):
    told = outcome(lambda caller: reply(caller, 200, made(answer)))
    assert set(told) == {"w2"}
    assert why in told["w2"]


def test_an_answer_under_another_workers_signature_is_not_taken(outcome, folder, answer):
    """Neither under another name, nor under its own with another key, nor under none."""
    other = read_secrets(folder / "w1.key", "w1")
    for own, why in (
        (other, "answers something else"),
        (attrs.evolve(other, name="w2"), "not that of the member"),
    ):
        told = outcome(lambda c, own=own: reply(attrs.evolve(c, own=own), 200, answer.to_bytes()))
        assert why in told["w2"]
    told = outcome(lambda caller: reply(None, 200, answer.to_bytes()))
    assert "signature" in told["w2"]


def test_refusals_cost_the_worker_its_slices_and_their_words_are_its_own(outcome):
    """Whatever they say stands in one printable line behind the name of who said it."""
    words = 'no worker is left\n\x1b[2Jworker "w1": lied'

    def refuse(caller):
        raise Refusal(422, "invalid", words)

    told = outcome(refuse)
    assert told["w2"] == 'no worker is left\\n\\x1b[2Jworker "w1": lied'
    for status in (400, 403, 426, 500):
        assert set(outcome(lambda c, status=status: reply(c, status, b'{"detail": [1]}'))) == {"w2"}


@pytest.mark.parametrize("absent", ["all of them", "twice", "lists", "secrets"])
def test_files_are_sent_to_it_thrice_at_most_and_no_others(outcome, folder, absent):
    digest = digest_of(folder / "public.key")
    listed = {
        "all of them": [digest],
        "twice": [digest] * 1000,
        "lists": [[digest]],
        "secrets": ["0" * 64],
    }[absent]
    told = outcome(lambda caller: reply(caller, 404, {"absent": listed}))
    expected = "answered 404" if absent == "all of them" else "files that are none of the slice"
    assert expected in told["w2"]


def test_one_that_comes_and_goes_is_dropped_in_the_end(folder, sent, lying, hurried):
    """Each time it says that it is at work, so it never counts as away for long."""
    liar, address = lying
    liar.asked = 0

    def flicker(caller):
        if liar.asked % 2:
            return reply(caller, 202, {"done": 1, "total": 2})
        raise Refusal(503, "busy", "later")

    liar.lie = flicker
    with pytest.raises(
        ServiceError, match=r"no worker is left: .*went away within a slice 3 times"
    ):
        answered(called(folder, address), sent, folder)
    assert liar.asked <= 6


def test_with_no_worker_left_one_line_says_what_each_did(folder, sent, lying):
    liar, address = lying
    liar.lie = lambda caller: reply(caller, 200, b"junk")
    away = f"w1=http://127.0.0.1:{free_port()}"
    with pytest.raises(ServiceError) as caught:
        answered(called(folder, address, away), sent, folder, patience=0.0)
    assert str(caught.value).startswith('no worker is left: "w2": its answer: ')
    assert '"w1": away; ' in str(caught.value)


def test_wrong_ciphertexts_of_the_right_form_pass_and_known_answers_find_them(
    folder, honest, lying
):
    """What a worker still can do: nothing on this side opens an answer. So can an evaluator."""
    liar, address = lying
    public = fhe.load_public_key(folder)
    plain = [0, 0]
    while plain[0] == plain[1]:
        audit = new_audit(1)
        real = some_codes(1)
        codes = np.stack([audit.mix(real[:, i], i, PARAMETERS) for i in range(3)], axis=1)
        plain = fhe.plain(codes, PARAMETERS)
    sent = send(public, codes)
    made = fhe.evaluate(sent, fhe.load_evaluation_keys(folder), public)
    rows = np.frombuffer(made.content, np.uint8).reshape(PARAMETERS.numbers, QUERIES, -1)
    swapped = changed(made, content=np.ascontiguousarray(rows[:, ::-1]).tobytes())
    liar.lie = lambda caller: reply(caller, 200, swapped)
    found, told = answered(called(folder, address, honest), sent, folder)
    assert told == {}
    audit.check(np.array(classes(made, folder)), PARAMETERS)
    with pytest.raises(AnswerError, match="1 of 1 known answers are wrong"):
        audit.check(np.array(classes(found, folder)), PARAMETERS)
