"""An evaluator's workers: same bytes as one process, refusals, and a kill -9 within a slice."""

import contextlib
import json
import threading
import time

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="needs the extra `service` (pip install securefl[service])")

import uvicorn

import fhe
from fhe.keys import SECRET_FILE
from secure_fl.crypto.identities import write_identity
from secure_fl.demo.credentials import write_certificates
from secure_fl.demo.flower_parties import free_port, loopback
from secure_fl.errors import InputError, ServiceError
from secure_fl.files import digest_of
from secure_fl.service import cluster
from secure_fl.service.cluster import Calling, evaluate_on, read_worker_circle
from secure_fl.service.serving import Address, configured, sockets_of
from secure_fl.service.slice_worker import SliceWorker
from secure_fl.service.slices import Slice, release

PARAMETERS = fhe.RuleParameters(contributors=3, classes=5, bits=6, block=4, failure_exponent=40)
NAMES = ("evaluator", "w1", "w2")


def quiet(phase, done, total):
    pass


def send(public, queries):
    codes = np.random.default_rng(7).integers(0, 64, (queries, 3, 5))
    return [
        fhe.contribute(codes[:, i], public, contributor=i, name=f"c{i}", federation="f", batch="b")
        for i in range(3)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Keys of a querier, and of the circle."""
    path = tmp_path_factory.mktemp("workers")
    keys = fhe.generate_keys(PARAMETERS)
    fhe.save_evaluation_keys(path, keys.evaluation)
    fhe.save_public_key(path, fhe.make_public_key(keys))
    fhe.save_secret_keys(path, keys, "correct horse")
    found = {name: write_identity(path / f"{name}.key") for name in NAMES}
    (path / "members.json").write_text(json.dumps(found))
    return path


@pytest.fixture(scope="module")
def sent(folder):
    return send(fhe.load_public_key(folder), 10)


@pytest.fixture(scope="module")
def expected(folder, sent):
    return fhe.evaluate(sent, fhe.load_evaluation_keys(folder), fhe.load_public_key(folder))


@contextlib.contextmanager
def running(folder, name, state):
    own, circle = read_worker_circle(folder / "members.json", folder / f"{name}.key", name)
    worker = SliceWorker(own, circle, state, 2**30)
    address = Address(host="127.0.0.1", port=free_port())
    server = uvicorn.Server(configured(worker.app(), address))
    thread = threading.Thread(target=server.run, args=(sockets_of(address),), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    try:
        yield f"{name}=http://127.0.0.1:{address.port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def addresses(folder, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(running(folder, name, tmp_path_factory.mktemp(name)))
            for name in NAMES[1:]
        ]


@pytest.fixture(scope="module")
def workers(folder, addresses):
    return called(folder, *addresses)


def called(folder, *addresses, key="evaluator"):
    return calling(folder, addresses, identity=folder / f"{key}.key").workers()


def calling(folder, addresses, **changed):
    facts = {"members": folder / "members.json", "identity": folder / "evaluator.key", **changed}
    return Calling(addresses=tuple(addresses), **facts)


def asked(folder, sent, **changed):
    """A slice of the batch, spoilt as wanted, with the content of its files."""
    sources = {digest_of(folder / name): (folder / name).read_bytes for name in _KEYS}
    evaluation, public = sources
    sources |= {cluster.hashlib.sha256(e.to_bytes()).hexdigest(): e.to_bytes for e in sent}
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
    assert heard[0] == ("slices", 0, 10)
    assert heard[-1] == ("slices", 10, 10)


def test_keys_and_contributions_are_sent_to_a_worker_once(folder, sent, workers, expected):
    evaluate_on(workers[:1], sent, folder, progress=quiet, size=4)

    def again():
        raise AssertionError("sent twice")

    wanted, sources = asked(folder, sent)
    content = workers[0].answer(wanted, dict.fromkeys(sources, again), lambda part: None)
    assert fhe.Answer.from_bytes(content, source="w1").queries == 2


def test_a_worker_of_another_release_refuses_and_names_both(folder, sent, workers, monkeypatch):
    monkeypatch.setattr(cluster, "release", lambda: "securefl 0.0.1")
    with pytest.raises(ServiceError, match=r'"w\d": this worker has .*, the evaluator securefl 0'):
        evaluate_on(workers, sent, folder, progress=quiet)


def test_a_workers_refusal_of_what_it_was_sent_ends_the_batch(folder, sent, workers):
    wanted, sources = asked(folder, sent, last=99)
    with pytest.raises(ServiceError, match='worker "w1": slice: queries 0 to 99 of a batch of 10'):
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


@pytest.mark.slow  # processes that start, and are killed
def test_a_worker_killed_within_a_slice_costs_that_slice_only(folder, tmp_path):
    """kill -9 over TLS: the other worker takes the slice, and the answer's bytes are the same."""
    sent = send(fhe.load_public_key(folder), 48)
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
    assert answer.to_bytes() == fhe.evaluate(sent, keys, public).to_bytes()
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
