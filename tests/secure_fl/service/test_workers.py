"""An evaluator's workers: right answers, refusals, faults, and a kill -9 within a slice."""

import contextlib
import hashlib
import shutil
import threading
import time

import pytest

pytest.importorskip("uvicorn", reason="needs the extra `service` (pip install securefl[service])")

import fhe
from fhe.keys import SECRET_FILE
from secure_fl.demo.credentials import write_certificates
from secure_fl.demo.flower_parties import free_port, loopback
from secure_fl.errors import InputError, ServiceError
from secure_fl.files import digest_of
from secure_fl.service import cluster
from secure_fl.service.cluster import evaluate_on, read_worker_circle
from secure_fl.service.slices import Slice, release
from tests.secure_fl.service.workers import (
    NAMES,
    PARAMETERS,
    Failing,
    answered,
    called,
    calling,
    classes,
    quiet,
    running,
    send,
    some_codes,
)


@pytest.fixture(scope="module")
def folder(workers_folder):
    return workers_folder


@pytest.fixture(scope="module")
def sent(folder):
    return send(fhe.load_public_key(folder), some_codes(5))


@pytest.fixture(scope="module")
def expected(folder, sent):
    return fhe.evaluate(sent, fhe.load_evaluation_keys(folder), fhe.load_public_key(folder))


@pytest.fixture(scope="module")
def addresses(folder, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(running(folder, name, tmp_path_factory.mktemp(name)))[1]
            for name in NAMES[1:]
        ]


@pytest.fixture(scope="module")
def workers(folder, addresses):
    return called(folder, *addresses)


def asked(folder, sent, **changed):
    """A slice of the batch, spoilt as wanted, with the content of its files."""
    sources = {digest_of(folder / name): (folder / name).read_bytes for name in _KEYS}
    evaluation, public = sources
    sources |= {hashlib.sha256(e.to_bytes()).hexdigest(): e.to_bytes for e in sent}
    facts = {
        "release": release(),
        "evaluation": evaluation,
        "public": public,
        "contributions": tuple(list(sources)[2:]),
        "first": 0,
        "last": 2,
    }
    return Slice(**{**facts, **changed}), sources


_KEYS = ("evaluation.key", "public.key")


def test_two_workers_answer_the_bytes_of_one_process(folder, sent, workers, expected):
    heard = []
    answer = evaluate_on(workers, sent, folder, progress=lambda *news: heard.append(news), size=4)
    assert answer.to_bytes() == expected.to_bytes()
    assert heard[0] == ("slices", 0, 5)
    assert heard[-1] == ("slices", 5, 5)


def test_keys_and_contributions_are_sent_to_a_worker_once(folder, sent, workers, expected):
    evaluate_on(workers[:1], sent, folder, progress=quiet, size=4)

    def again():
        raise AssertionError("sent twice")

    wanted, sources = asked(folder, sent)
    content = workers[0].answer(wanted, dict.fromkeys(sources, again), lambda part: None)
    assert fhe.Answer.from_bytes(content, source="w1").queries == 2


def test_a_worker_of_another_release_refuses_and_names_both(folder, sent, workers, monkeypatch):
    monkeypatch.setattr("secure_fl.service.slice_job.release", lambda: "securefl 0.0.1")
    with pytest.raises(ServiceError, match=r'"w\d": this worker has .*, the evaluator securefl 0'):
        evaluate_on(workers, sent, folder, progress=quiet)


def test_a_worker_says_why_it_refuses_what_it_was_sent(folder, sent, workers):
    wanted, sources = asked(folder, sent, last=99)
    with pytest.raises(ServiceError, match='worker "w1": slice: queries 0 to 99 of a batch of 5'):
        workers[0].answer(wanted, sources, lambda part: None)


def test_a_secret_key_is_no_file_of_a_slice(folder, sent, workers):
    secret = digest_of(folder / SECRET_FILE)
    wanted, sources = asked(folder, sent, evaluation=secret)
    sources[secret] = (folder / SECRET_FILE).read_bytes
    with pytest.raises(ServiceError, match="fhe secret key"):
        workers[0].answer(wanted, sources, lambda part: None)


def test_a_worker_may_ask_for_files_of_the_slice_alone(folder, sent, workers):
    wanted, sources = asked(folder, sent, public="0" * 64)
    with pytest.raises(ServiceError, match="files that are none of the slice"):
        workers[0].answer(wanted, sources, lambda part: None)


def test_only_the_evaluator_is_answered(folder, sent, addresses):
    """A worker that calls another one, and whoever holds no key that is listed."""
    own, circle = read_worker_circle(folder / "members.json", folder / "w2.key", "w2")
    url = addresses[0].partition("=")[2]
    channel = cluster.Channel(url, own, circle, recipient="w1", patience=0.0)
    wanted, sources = asked(folder, sent)
    with pytest.raises(ServiceError, match="a client may not do this"):
        cluster.Remote("w1", channel).answer(wanted, sources, lambda part: None)
    with pytest.raises(InputError, match="not the key that the members"):
        called(folder, addresses[0], key="w2")


def test_no_worker_at_all_ends_the_batch_in_its_time(folder, sent):
    nobody = called(folder, f"w1=http://127.0.0.1:{free_port()}")
    with pytest.raises(ServiceError, match="no worker is left"):
        evaluate_on(nobody, sent, folder, progress=quiet, patience=0.5)


@pytest.fixture(scope="module")
def one(folder):
    """A batch of one query, and so of one slice, and its class."""
    codes = some_codes(1)
    found = fhe.plain(codes, PARAMETERS).tolist()
    return send(fhe.load_public_key(folder), codes, batch="one"), found


def test_an_idle_worker_takes_what_one_that_is_away_had(folder, one, addresses):
    """However long that one has been away: a worker that waits for a slice is there."""
    dead = f"w1=http://127.0.0.1:{free_port()}"
    answer, told = answered(called(folder, dead, addresses[1]), one[0], folder, patience=0.0)
    assert classes(answer, folder) == one[1]
    assert told == {}


def test_an_unforeseen_error_is_one_signed_refusal_and_the_slice_is_tried_elsewhere(
    folder, one, addresses, tmp_path
):
    """Nothing of it stays: the worker answers the same slice when it can."""
    why = {
        "disk": 'worker "w1", a file: the w1 refused (500): OSError: [Errno 28] No space left on'
        " device",
        "evaluation": "ZeroDivisionError: in the library",
        "": None,
    }
    with running(folder, "w1", tmp_path, Failing) as (worker, address):
        for worker.fails in why:
            workers = called(folder, address, addresses[1])
            answer, told = answered(workers if worker.fails else workers[:1], one[0], folder)
            assert classes(answer, folder) == one[1]
            assert told.get("w1") == why[worker.fails]


def test_no_worker_is_blamed_for_a_file_that_the_evaluator_lost(folder, one, tmp_path):
    keys = tmp_path / "keys"
    shutil.copytree(folder, keys)
    blamed = []
    with running(folder, "w1", tmp_path / "w1") as (_, address), pytest.raises(FileNotFoundError):
        evaluate_on(
            called(folder, address),
            one[0],
            keys,
            progress=lambda *news: (keys / "public.key").unlink(missing_ok=True),
            dropped=lambda *news: blamed.append(news),
        )
    assert blamed == []


@pytest.mark.slow  # processes that start, and are killed
def test_a_worker_killed_within_a_slice_costs_that_slice_only(folder, tmp_path):
    """kill -9 over TLS: the other worker takes the slice; bytes may differ between processes."""
    sent = send(fhe.load_public_key(folder), some_codes(48))
    certificates = write_certificates(tmp_path)
    with loopback(tmp_path, certificates) as net:
        addresses = [start(net, folder, name, certificates) for name in NAMES[1:]]
        for name in NAMES[1:]:
            wait_for(lambda name=name: "stop it with" in net.log(name))
        workers = calling(folder, addresses, authority=certificates.authority).workers()

        def kill():
            wait_for(lambda: net.log("w2").count("a slice of") == 2)
            net.kill("w2")

        killer = threading.Thread(target=kill)
        killer.start()
        answer = evaluate_on(workers, sent, folder, progress=quiet, size=4)
        killer.join()
        begun = net.log("w1").count("a slice of") + net.log("w2").count("a slice of")
    keys, public = fhe.load_evaluation_keys(folder), fhe.load_public_key(folder)
    assert classes(answer, folder) == classes(fhe.evaluate(sent, keys, public), folder)
    assert begun == 12 + 1


def start(net, folder, name, certificates):
    port = free_port()
    net.start(
        *(name, "securefl", "serve", "worker", "--name", name, "--port", str(port)),
        *("--members", str(folder / "members.json"), "--identity", str(folder / f"{name}.key")),
        *("--state", f"{name}.state", "--certificate", str(certificates.certificate)),
        *("--certificate-key", str(certificates.key)),
    )
    return f"{name}=https://127.0.0.1:{port}"


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
