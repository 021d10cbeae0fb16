"""Processes that live: locked databases, a state of two processes, loops that cannot go on."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import attrs
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from cli.main import exit_code_of
from secure_fl.demo.service_parties import IDENTITY, copy_parties, deployment
from secure_fl.errors import InputError, ServiceError
from secure_fl.service.contributor_app import ContributorService
from secure_fl.service.evaluator import Evaluator
from secure_fl.service.evaluator_app import make_app
from secure_fl.service.holding import Held
from secure_fl.service.limits import Limits
from secure_fl.service.members import read_member
from secure_fl.service.outbox import Outbox
from secure_fl.service.registry import load_federations
from secure_fl.service.serving import Address, serve
from secure_fl.service.supervision import Attention, Ending, Watch, start_turning
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.test_service import wait_until

FIRST = slice(0, 2)


@contextmanager
def locked(path):
    """A database that another connection holds alone."""
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    # A reader of a WAL database does not wait for a writer, so the journal goes back to a file.
    db.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


class InThread:
    """An evaluator of this process, in a thread of its own, with other limits."""

    def __init__(self, running, **limits):
        own = running.folder / "evaluator"
        federations = {
            name: (each, read_member(own / IDENTITY, "evaluator", each.manifest))
            for name, each in load_federations([own]).items()
        }
        port = int(running.url().rpartition(":")[2])
        fast = {"rate": 1000.0, "burst": 1000, "database": 0.2}
        self.evaluator = Evaluator(federations, own / "state", Limits(**{**fast, **limits}))
        self.stop, self.failure = threading.Event(), None
        self._app = make_app(self.evaluator, grace=0.0)
        self._address = Address(host="127.0.0.1", port=port)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        wait_until(lambda: (running.health() or {}).get("status") == "ok")

    def _serve(self):
        try:
            serve(self._app, self._address, stop=lambda: None, ending=self.evaluator.ending)
        except ServiceError as error:
            self.failure = error

    def end(self):
        self.evaluator.ending("the test is over")
        self.join()

    def join(self):
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def running(made, tmp_path):
    copy_parties(made.folder, tmp_path / "parties")
    with deployment(tmp_path / "parties") as found:
        yield found


@pytest.mark.slow  # waits for locks; every day a locked store of nonces holds up one request
def test_the_evaluator_goes_on_after_a_database_lock(made, running):
    """Clock and evaluations fail meanwhile, health says so at once, and the batch is answered."""
    here = InThread(running)
    players = Players(made, running)
    batch = players.open(FIRST)
    for client in ("north", "south"):
        players.contribute(client, batch)
    with locked(running.folder / "evaluator" / "state" / "batches.db"):
        wait_until(lambda: not any(running.health()["loops"].values()))
        assert running.health()["status"] == "unavailable"
        assert running.metrics()['securefl_loop_alive{loop="clock"}'] == 0
        sent = players.send("north", "DELETE", f"/batches/{batch}/query", b"")
        assert (sent.status_code, sent.json()["reason"]) == (503, "database")
    players.contribute("west", batch)
    assert players.fetch(batch).classes.tolist() == made.clear(FIRST)
    wait_until(lambda: running.health()["status"] == "ok")
    assert running.metrics()['securefl_loop_failures_total{loop="clock"}'] >= 1
    here.end()


def test_a_locked_store_of_nonces_holds_up_nobody_but_who_needs_it(made, running):
    """Waiting for it is done outside the event loop."""
    here = InThread(running, database=20.0)
    players, done = Players(made, running), []
    with locked(running.folder / "evaluator" / "state" / "nonces.db"):
        asks = threading.Thread(
            target=lambda: done.append(players.send("north", "GET", "/asked").status_code)
        )
        asks.start()
        time.sleep(0.5)
        started = time.monotonic()
        assert running.health()["status"] == "ok"
        # Not a speed: the event loop would have waited for the lock, which is still held.
        assert not done
        assert time.monotonic() - started < 15
    asks.join(60)
    assert done == [200]
    here.end()


def test_a_loop_knows_how_long_it_was_away():
    """Until what it missed is made good; looks that are a little late are as usual."""
    attention = Attention(0.2)
    assert attention.missed(100.0) == 0
    attention.looked(100.0)
    assert attention.missed(101.0) == 0
    assert attention.missed(110.2) == pytest.approx(10)
    # Nothing was made good in between: it is missed still.
    assert attention.missed(111.2) == pytest.approx(11)
    attention.looked(111.2)
    assert attention.missed(111.4) == 0
    # A clock that is set back by an hour: nobody is waited for an hour longer.
    assert attention.missed(111.4 - 3600) == pytest.approx(-3600, abs=1)


def test_an_evaluator_whose_database_is_gone_ends_with_a_failure(made, running):
    """Exit code 1, for whoever started it to start it anew."""
    here = InThread(running, failing=1.0)
    with sqlite3.connect(running.folder / "evaluator" / "state" / "batches.db") as db:
        db.execute("DROP TABLE parts")
        db.execute("DROP TABLE batches")
    db.close()
    here.join()
    assert "the service cannot go on" in str(here.failure)
    assert exit_code_of(here.failure) == 1


@pytest.mark.slow  # waits for the lock; the evaluator's loop is tried every day
def test_a_contributor_goes_on_after_a_database_lock(made, running):
    running.start("evaluator")
    players = Players(made, running)
    contributor = players.contributor("north")
    path = contributor.outbox.path
    contributor.outbox.close()
    service = ContributorService(
        attrs.evolve(contributor, outbox=Outbox(path, wait=0.1)), players.new_channel("north")
    )
    service.start()
    wait_until(lambda: service.reached)
    with locked(path):
        batch = players.open(FIRST)
        wait_until(lambda: service.loops == {"answers": False})
        assert not service.reached
    wait_until(lambda: players.status(batch)["clients"]["north"] == "sent")
    assert service.ending.reason is None
    service.stop()
    service.finish()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_ends_its_process():
    """Whatever ends it: also what is no Exception."""
    reasons, stop = [], threading.Event()

    def turn():
        raise SystemExit

    watch = Watch("turns", Ending(lambda: reasons.append("stopped")))
    start_turning(turn, watch, stop).join(10)
    assert reasons == ["stopped"]
    assert not watch.alive


def test_a_loop_is_given_up_only_after_failures_in_a_row():
    ended = []
    watch = Watch("turns", ended.append, patience=0.3)
    for _ in range(3):
        assert watch.stumbled(OSError()) is not None
        assert not watch.alive
        time.sleep(0.2)
        watch.turned()
        assert watch.alive
    assert watch.stumbled(OSError()) is not None
    time.sleep(0.4)
    assert watch.stumbled(OSError()) is None
    assert len(ended) == 1
    assert "OSError" in ended[0]


# ---------------------------------------------------------------------- one state, one process


def held_by_a_process(folder):
    """A process that holds a folder until it is killed."""
    code = (
        "import sys, time; from pathlib import Path; from secure_fl.service.holding import Held;"
        "held = Held(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_lock_goes_with_its_process_however_that_ends(tmp_path):
    process = held_by_a_process(tmp_path)
    link = tmp_path.parent / f"{tmp_path.name} by another name"
    link.symlink_to(tmp_path)
    for name in (tmp_path, link):
        with pytest.raises(InputError, match=rf"in use by another process \({process.pid}\)"):
            Held(name)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    Held(tmp_path).release()
    Held(tmp_path).release()


@pytest.mark.parametrize("name", ["evaluator", pytest.param("north", marks=pytest.mark.slow)])
def test_a_second_process_on_one_state_ends_with_one_line(running, name):
    """Exit code 2; the first one works on, and its kill gives the state free."""
    running.start("evaluator")
    if name != "evaluator":
        running.start(name)
    first = running.pid(name)
    own = running._running.pop(name)
    before = len(running.log(name))
    running._launch(name)
    assert running._running[name].wait(120) == 2
    said = running.log(name)[before:].strip().splitlines()
    assert [line for line in said if line.startswith("error")] == said[-1:]
    assert f"in use by another process ({first})" in said[-1]
    assert running.health(name)["status"] == "ok"
    os.kill(first, signal.SIGKILL)
    own.wait(60)
    running.start(name)
