"""An evaluator that sends crafted ciphertexts and watches what the querier does.

Whether a crafted ciphertext decrypts to a class depends on bits of the secret key. So the querier
may not behave differently after it: before, no DELETE came after an answer that could not be read.
"""

import json
import re
import socket
import sqlite3
import threading

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

import fhe
from fhe.audit import known_for
from fhe.errors import AnswerError, RetiredError
from fhe.retirement import refuse_retired, retiring
from secure_fl.demo.service_parties import copy_parties, deployment
from tests.attacks.table import Attack
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.test_network import asked
from tests.secure_fl.service.test_service import wait_until

ATTACK = Attack(
    name="sends crafted ciphertexts and watches the querier",
    holds="the evaluator, and all that the querier does towards it",
    before="a bit of the secret key from each batch: no DELETE came after an answer that "
    "could not be read",
    after="nothing: the line is closed before anything is decrypted; a wrong known answer "
    "retires the keys",
)

ASKED = 1


class Relay:
    """Passes bytes on to the evaluator and notes the requests: all that an evaluator hears."""

    def __init__(self, url):
        host, port = url.removeprefix("http://").split(":")
        self._target = (host, int(port))
        self.requests = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            there = socket.create_connection(self._target)
            for source, sink, note in ((line, there, True), (there, line, False)):
                threading.Thread(target=self._pass, args=(source, sink, note), daemon=True).start()

    def _pass(self, source, sink, note):
        try:
            while data := source.recv(2**16):
                if note:
                    found = re.findall(rb"(GET|PUT|DELETE|POST) /v1/[0-9a-f]+(\S*) HTTP", data)
                    self.requests += [(verb.decode(), path.decode()) for verb, path in found]
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            sink.close()

    def close(self):
        self._listener.close()


@pytest.fixture
def players(made, tmp_path):
    copy_parties(made.folder, tmp_path / "parties")
    with deployment(tmp_path / "parties") as running:
        running.start("evaluator")
        yield Players(made, running)


def crafted(players, batch, queries):
    """An answer that the evaluator makes alone: of neutral contributions, a class that is none.

    It has evaluation keys and public key for it, as every evaluator.
    """
    folder = players.running.folder / "evaluator"
    public, keys = fhe.load_public_key(folder), fhe.load_evaluation_keys(folder)
    facts = {"federation": players.manifest.fingerprint, "batch": batch}
    messages = [
        fhe.neutral(queries, public, contributor=i, name=name, **facts)
        for i, name in enumerate(players.manifest.clients)
    ]
    return fhe.evaluate(messages, keys, public).to_bytes()


def ask(players, name, relay, *, cheats):
    """The querier's command through the relay; returns exit code, output and what was heard."""
    running = players.running
    options = ("--rows", f"0:{ASKED}", "--batch", name, "--evaluator", relay.url)
    before = len(relay.requests)
    process = running.query(running.folder / "queries.npy", *options)
    wait_until(lambda: name in asked(players, "north"))
    if cheats:
        # Nobody contributes; the evaluator writes its own answer.
        queries = ASKED + known_for(ASKED, 3)
        answer = crafted(players, name, queries)
        db = sqlite3.connect(running.folder / "evaluator/state/batches.db", timeout=30)
        with db:
            db.execute(
                "UPDATE batches SET state = 'answered', answer = ?, answered = 2e9, present = ?"
                " WHERE batch = ?",
                (answer, json.dumps(list(players.manifest.clients)), name),
            )
        db.close()
    else:
        for client in players.manifest.clients:
            players.contribute(client, name)
    out, err = process.communicate(timeout=240)
    heard = relay.requests[before:]
    fetched = heard.index(("GET", f"/batches/{name}/answer"))
    return process.returncode, out, err.decode(), heard[fetched:]


def test_the_evaluator_hears_the_same_whatever_was_decrypted(made, players):
    """An honest answer and one that cannot be read; then the keys are retired everywhere."""
    relay, keys = Relay(players.running.url()), players.running.folder / "querier"
    _, out, err, good = ask(players, "good", relay, cheats=False)
    names = [made.manifest.classes[c] for c in made.clear(slice(0, ASKED))]
    assert json.loads(out)["classes"] == names
    # Known answers are there without being asked for.
    assert f"all {known_for(ASKED, 3)} known answers are right" in err
    assert not list((keys / "batches").iterdir())
    _, out, err, bad = ask(players, "bad", relay, cheats=True)
    assert good == [("GET", "/batches/good/answer"), ("DELETE", "/batches/good")]
    assert bad == [(verb, path.replace("good", "bad")) for verb, path in good]
    assert players.status("bad")["state"] == "closed"
    assert "trust no answer of this batch" in err
    assert "are retired, make new ones" in err
    assert not out.strip() or "classes" not in json.loads(out)
    # The evidence is kept, and fetching again asks nobody.
    assert (keys / "batches" / "bad.answer").exists()
    before = len(relay.requests)
    again = players.running.query(
        players.running.folder / "queries.npy",
        "--batch",
        "bad",
        "--fetch",
        "--evaluator",
        relay.url,
    )
    _, err = again.communicate(timeout=240)
    assert again.returncode == 2
    assert b"keys retired on" in err
    assert len(relay.requests) == before
    for load in (fhe.load_public_key, fhe.load_evaluation_keys):
        with pytest.raises(RetiredError, match=r"at the answer to batch bad, which was wrong"):
            load(keys)
    with pytest.raises(RetiredError):
        fhe.load_secret_keys(keys, "any")
    relay.close()


def test_a_library_querier_closes_a_batch_before_it_reads(made, players):
    batch = players.open(slice(0, 1))
    for client in made.manifest.clients:
        players.contribute(client, batch)
    querier = players.querier()
    received = querier.wait(batch, lambda status: None)
    assert players.status(batch)["state"] == "closed"
    found = querier.read(batch, received, players.secret, None, queries=1)
    assert found.classes.tolist() == made.clear(slice(0, 1))


def test_a_wrong_answer_retires_keys_also_where_the_marker_is_damaged(tmp_path):
    refuse_retired(tmp_path)
    with (
        pytest.raises(AnswerError, match=r"^wrong; the keys in .* are retired"),
        retiring(tmp_path, "b"),
    ):
        raise AnswerError("wrong")
    with pytest.raises(RetiredError, match="at the answer to batch b, which was wrong"):
        refuse_retired(tmp_path)
    (tmp_path / "retired").write_bytes(b"\xff")
    with pytest.raises(RetiredError, match="keys retired, which was wrong"):
        refuse_retired(tmp_path)
    with pytest.raises(ValueError, match="other"), retiring(tmp_path / "absent", "b"):
        raise ValueError("other")
    with (
        pytest.raises(AnswerError, match="could not be marked as retired"),
        retiring(tmp_path / "absent", "b"),
    ):
        raise AnswerError("wrong")


def test_known_answers_expose_alterations_as_often_as_is_stated(made):
    """By the real positions: alterations that pass before one is found, their mean and spread."""
    from fhe.audit import new_audit

    known = known_for(20, 3)
    rng, passed = np.random.default_rng(0), []
    for _ in range(3000):
        positions = set(new_audit(known).positions(20 + known).tolist())
        order = rng.permutation(20 + known)
        passed.append(next(i for i, place in enumerate(order) if place in positions))
    # Without replacement: the mean of a negative hypergeometric, below the geometric's.
    expected = 20 / (known + 1)
    assert abs(np.mean(passed) - expected) < 6 * np.std(passed) / np.sqrt(len(passed))
    assert expected < 20 / known
