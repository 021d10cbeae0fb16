"""Workers played by the tests: real ones, served by threads of this process."""

import contextlib
import functools
import inspect
import json
import threading

import numpy as np
import uvicorn

import fhe
from secure_fl.crypto.identities import write_identity
from secure_fl.demo.flower_parties import free_port
from secure_fl.service.cluster import Calling, evaluate_on, read_worker_circle
from secure_fl.service.serving import Address, configured, sockets_of
from secure_fl.service.slice_worker import SliceWorker

PARAMETERS = fhe.RuleParameters(contributors=3, classes=5, bits=6, block=4, failure_exponent=40)
NAMES = ("evaluator", "w1", "w2")


def quiet(phase, done, total):
    pass


def send(public, codes, batch="b"):
    """Contributions of everybody; codes of shape (queries, contributors, classes)."""
    return [
        fhe.contribute(
            codes[:, i], public, contributor=i, name=f"c{i}", federation="f", batch=batch
        )
        for i in range(codes.shape[1])
    ]


def some_codes(queries):
    return np.random.default_rng(7).integers(0, 64, (queries, 3, 5))


def write_circle(path, **keys):
    """Secret files and members.json of an evaluator and its workers; some have keys already."""
    made = {name: write_identity(path / f"{name}.key") for name in NAMES if name not in keys}
    (path / "members.json").write_text(json.dumps(made | keys))


class Failing(SliceWorker):
    """One whose disk is full, or whose evaluations fail in a way that nobody foresaw."""

    fails = ""

    def _keep(self, arrival):
        if self.fails == "disk":
            raise OSError(28, "No space left on device")
        super()._keep(arrival)

    def _evaluated(self, wanted, work):
        if self.fails == "evaluation":
            raise ZeroDivisionError("in the library")
        return super()._evaluated(wanted, work)


@contextlib.contextmanager
def running(folder, name, state, kind=SliceWorker):
    """A worker of this process; yields it and its address."""
    own, circle = read_worker_circle(folder / "members.json", folder / f"{name}.key", name)
    worker = kind(own, circle, state, 2**30)
    address = Address(host="127.0.0.1", port=free_port())
    server = uvicorn.Server(configured(worker.app(), address))
    thread = threading.Thread(target=server.run, args=(sockets_of(address),), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    try:
        yield worker, f"{name}=http://127.0.0.1:{address.port}"
    finally:
        server.should_exit = True
        thread.join()


def calling(folder, addresses, **changed):
    facts = {"members": folder / "members.json", "identity": folder / "evaluator.key", **changed}
    return Calling(addresses=tuple(addresses), **facts)


def called(folder, *addresses, key="evaluator"):
    return calling(folder, addresses, identity=folder / f"{key}.key").workers()


class Told(dict):
    """Why each worker was dropped, as the evaluator is told."""

    def __call__(self, name, why):
        assert name not in self, "told twice"
        self[name] = why


def answered(workers, sent, folder, **options):
    """The answer and why workers were dropped; versions that cannot tell are asked without that."""
    told = Told()
    options = {"progress": quiet, "dropped": told, **options}
    known = inspect.signature(evaluate_on).parameters
    given = {name: value for name, value in options.items() if name in known}
    return evaluate_on(workers, sent, folder, **given), told


def classes(answer, folder):
    """What the querier reads."""
    return fhe.read_answer(answer, _secret(folder)).tolist()


@functools.cache
def _secret(folder):
    # Opening takes a second.
    return fhe.load_secret_keys(folder, "correct horse")
