"""The evaluator as a process: right answers, also after kills; and everybody it must refuse."""

import concurrent.futures
import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import attrs
import pytest

import fhe
from fhe.audit import Audit, new_audit
from fhe.errors import AnswerError

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.demo.service_parties import copy_parties, deployment
from secure_fl.errors import ServiceError
from secure_fl.service.signing import REPLY_HEADER, new_request, signed
from secure_fl.service.store import Store
from tests.secure_fl.service.conftest import CLIENTS
from tests.secure_fl.service.parties import Players

FIRST = slice(0, 4)


@pytest.fixture(scope="module")
def players(made, tmp_path_factory):
    """A running evaluator, and the other parties."""
    folder = tmp_path_factory.mktemp("network") / "parties"
    copy_parties(made.folder, folder)
    with deployment(folder) as running:
        start(running)
        yield Players(made, running)


@pytest.fixture
def batch(players):
    """An open batch; closed at the end, so that the queue stays short."""
    name = players.open(FIRST)
    yield name
    players.channel("querier").call("DELETE", f"/batches/{name}")


def start(running):
    running.start("evaluator", "--queue", "3", "--rate", "1000", "--burst", "1000")


def worker_of(running):
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = [line.split() for line in listed.stdout.splitlines()]
    (found,) = [pid for pid, parent in pairs if int(parent) == running.pid("evaluator")]
    return int(found)


def half_done(players, name):
    """Whether an evaluation is past its first block; it must not have come to its end."""
    status = players.status(name)
    assert status["state"] != "answered"
    return 1 <= status["done"] < status["total"]


def wait_until(condition):
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end, "nothing happened for four minutes"
        time.sleep(0.05)


# ------------------------------------------------------------------------------------ answers


@pytest.mark.slow  # six starts of real processes
def test_kills_between_contributions_and_in_mid_evaluation_lose_nothing(players, made):
    """What was acknowledged is on the disk; a broken evaluation begins anew.

    Nor does a restart forget which requests it has seen, and the evaluator answers while the
    process that evaluates is busy, dies, and is started again.
    """
    running, queries = players.running, slice(0, 13)
    audit = new_audit(3)
    name = players.open(queries, audit)
    member, federation = players.member("north"), players.manifest.fingerprint
    target = f"/v1/{federation}/asked"
    token = signed(member, new_request(member, "evaluator", federation, "GET", target, b""))
    assert [players.post("GET", target, token, b"").status_code for _ in "ab"] == [200, 409]
    players.contribute("north", name)
    running.kill("evaluator")
    start(running)
    assert players.post("GET", target, token, b"").status_code == 409
    assert players.status(name)["clients"]["north"] == "sent"
    players.contribute("south", name)
    players.contribute("west", name)
    wait_until(lambda: half_done(players, name))
    assert running.health()["status"] == "ok"
    os.kill(worker_of(running), signal.SIGKILL)
    wait_until(lambda: players.status(name)["done"] == 0)
    wait_until(lambda: half_done(players, name))
    running.kill("evaluator")
    start(running)
    found = players.fetch(name, audit)
    assert found.classes.tolist() == made.clear(queries)
    assert found.present == CLIENTS
    assert "the evaluation process died" in running.log("evaluator")


def test_a_quorum_answers_when_patience_ends_or_nobody_else_will(players, made):
    """Equal to the clear rule over those that are there; a late contribution is refused."""
    late = players.open(FIRST, quorum=2, patience=1.0)
    players.contribute("north", late)
    players.contribute("west", late)
    assert players.fetch(late).classes.tolist() == made.clear(FIRST, ["north", "west"])
    declined = players.open(FIRST, quorum=1, patience=600.0)
    players.contribute("south", declined, quorum=1)
    for client in ("north", "west"):
        players.channel(client).expect("DELETE", f"/batches/{declined}/query", what="decline")
    found = players.fetch(declined)
    assert found.present == ("south",)
    assert found.classes.tolist() == made.clear(FIRST, ["south"])
    assert made.clear(FIRST) != made.clear(FIRST, ["south"])
    made_late = players.send("west", "PUT", f"/batches/{late}/contribution", b"")
    assert made_late.status_code in (409, 422)


def test_a_batch_that_cannot_reach_its_quorum_fails_with_the_reason(players):
    name = players.open(FIRST, quorum=3)
    players.channel("south").expect("DELETE", f"/batches/{name}/query", what="decline")
    with pytest.raises(ServiceError, match="failed: 1 contributors declined"):
        players.fetch(name)
    name = players.open(FIRST, lifetime=1.0)
    players.contribute("south", name)
    with pytest.raises(ServiceError, match="failed: it expired with 1 contributions"):
        players.fetch(name)


def test_known_answers_find_an_evaluator_that_names_another_quorum(players, made):
    """It says that all were there, but answers without one."""
    # A seed with which south decides a known answer.
    audit = Audit(bytes(31) + b"\1", 6)
    name = players.open(slice(0, 2), audit, quorum=2, patience=0.0)
    players.contribute("north", name)
    players.contribute("west", name)
    wait_until(lambda: players.status(name)["state"] == "answered")
    content = players.channel("querier").expect("GET", f"/batches/{name}/answer", what="answer")
    answer = fhe.Answer.from_bytes(content, source="answer")
    classes = fhe.read_answer(answer, players.secret)
    real = audit.check(classes, made.parameters, present=[0, 2])
    assert real.tolist() == made.clear(slice(0, 2), ["north", "west"])
    with pytest.raises(AnswerError):
        audit.check(classes, made.parameters)


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"sender": "south"}, 401),
        ({"sender": "nobody"}, 401),
        ({"recipient": "north"}, 403),
        ({"federation": "0" * 64}, 403),
        ({"method": "DELETE"}, 403),
        ({"target": "/v1/other"}, 403),
        ({"issued": time.time() - 3600}, 401),
        ({"issued": time.time() + 3600}, 401),
        ({"issued": float("nan")}, 401),
    ],
)
def test_a_request_whose_claims_are_not_true_is_refused(players, changes, status):
    """Unknown, misrouted, expired."""
    found = players.send("north", "GET", "/asked", claims=changes)
    assert found.status_code == status, found.text


def test_a_request_without_a_readable_signature_is_refused(players):
    target = f"/v1/{players.manifest.fingerprint}/asked"
    for token in ("x", "x.y", "a" * 5000, "e30=.e30=", "W10=." + "A" * 88):
        assert players.post("GET", target, token, b"").status_code == 401


def test_parties_may_do_what_is_theirs_alone(players, batch):
    path = f"/batches/{batch}"
    for name, method, where in (
        ("north", "GET", path),
        ("north", "GET", f"{path}/answer"),
        ("north", "DELETE", path),
        ("north", "PUT", path),
        ("querier", "GET", f"{path}/query"),
        ("querier", "PUT", f"{path}/contribution"),
        ("evaluator", "GET", "/asked"),
    ):
        assert players.send(name, method, where).status_code == 403, (name, method, where)


def test_contributions_that_do_not_belong_are_refused(players, batch, other):
    """Another federation's, another batch's, another client's, a truncated one, an altered one."""
    contributor = players.contributor("north")
    codes = players.made.codes[FIRST]
    good = {"name": "north", "federation": players.manifest.fingerprint, "batch": batch}
    foreign = fhe.load_public_key(other.folder / "north")

    def made(public=contributor.keys["querier"], position=0, **changes):
        facts = {**good, **changes}
        mine = codes[:, position]
        return fhe.contribute(mine, public, contributor=position, **facts).to_bytes()

    fine = made()
    cases = {
        "another federation's keys": made(foreign),
        "another federation": made(federation=other.manifest.fingerprint),
        "another batch": made(batch="other"),
        "another client": made(name="south", position=1),
        "another position": made(position=2),
        "truncated": fine[:-100],
        "longer": fine + b"\0",
        "a flipped bit": fine[:-50] + bytes([fine[-50] ^ 1]) + fine[-49:],
        "nothing": b"",
        "JSON": b"{}",
    }
    path = f"/batches/{batch}/contribution"
    for what, body in cases.items():
        found = players.send("north", "PUT", path, body)
        assert found.status_code == 422, (what, found.text)
        assert REPLY_HEADER in found.headers
    assert players.send("north", "PUT", path, fine, sent=cases["truncated"]).status_code == 400
    assert players.status(batch)["clients"]["north"] == "asked"
    assert players.send("north", "PUT", path, fine).status_code == 201
    assert players.send("north", "PUT", path, fine).status_code == 200
    assert players.send("north", "PUT", path, made()).status_code == 409


def resident(pid):
    """Bytes of memory that a process holds, and the most it ever did."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {line.split(":")[0]: line for line in lines}
    return [int(found[key].split()[1]) * 1024 for key in ("VmRSS", "VmHWM")]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc of Linux")
@pytest.mark.parametrize("signed_length", ["true", "small"])
def test_a_gigabyte_of_zeros_is_not_taken_into_memory(players, batch, signed_length):
    """Neither announced nor in chunks after a small announcement; others are served meanwhile."""
    before = resident(players.running.pid("evaluator"))[1]
    zeros, total = bytes(2**20), 2**30
    member, federation = players.member("north"), players.manifest.fingerprint
    target = f"/v1/{federation}/batches/{batch}/contribution"
    claims = new_request(member, "evaluator", federation, "PUT", target, b"\0" * 1000)
    if signed_length == "true":
        claims = attrs.evolve(claims, length=total)
    head = (
        f"PUT {target} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        f"Authorization: Securefl {signed(member, claims)}\r\n\r\n"
    )
    host, port = players.running.url().removeprefix("http://").split(":")
    sent, answer = 0, b""
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(head.encode())
        with contextlib.suppress(OSError):
            while sent < total:
                line.sendall(b"100000\r\n" + zeros + b"\r\n")
                sent += len(zeros)
        with contextlib.suppress(OSError):
            answer = line.recv(1000)
    assert sent < 64 * 2**20
    assert answer[:12] in (b"HTTP/1.1 413", b"")
    assert resident(players.running.pid("evaluator"))[1] < before + 64 * 2**20
    assert players.running.health()["status"] == "ok"
    assert players.status(batch)["clients"]["north"] == "asked"


def test_openings_that_do_not_fit_are_refused(players):
    name = "b"
    good = players.opening(name, FIRST)
    cases = {
        "another batch's queries": players.opening("c", FIRST),
        "one client less": players.opening(name, FIRST, sealed={}),
        "another number of queries": players.opening(name, FIRST, queries=7),
        "another quorum": players.opening(name, FIRST, quorum=2),
        "a quorum of four": players.opening(name, FIRST, quorum=4),
        "expired": players.opening(name, FIRST, expires=1.0),
        "never": players.opening(name, FIRST, expires=1e300),
        "unknown member": players.opening(name, FIRST, more=1),
        "text": b"\xff",
    }
    for what, body in cases.items():
        found = players.send("querier", "PUT", f"/batches/{name}", body)
        assert found.status_code == 422, (what, found.text)
    assert players.send("querier", "PUT", f"/batches/{name}", good).status_code == 201
    assert players.send("querier", "PUT", f"/batches/{name}", good).status_code == 200
    again = players.opening(name, FIRST)
    assert players.send("querier", "PUT", f"/batches/{name}", again).status_code == 409
    assert players.send("querier", "DELETE", f"/batches/{name}").status_code == 200
    assert players.send("querier", "PUT", f"/batches/{name}", again).status_code == 409


def test_a_full_queue_says_when_to_come_again(players):
    names = [players.open(FIRST) for _ in range(3)]
    found = players.send("querier", "PUT", "/batches/more", players.opening("more", FIRST))
    assert found.status_code == 429
    assert int(found.headers["retry-after"]) > 0
    for name in names:
        assert players.send("querier", "DELETE", f"/batches/{name}").status_code == 200


def test_two_hundred_concurrent_requests_are_all_answered(players, batch):
    def one(i):
        path = ("/asked", f"/batches/{batch}/query")[i % 2]
        return players.send(CLIENTS[i % 3], "GET", path).status_code

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        found = list(pool.map(one, range(200)))
    assert found == [200] * 200


def test_logs_and_metrics_name_no_batch_and_no_content(players):
    """Refusals above were logged, some with the batch's name and ciphertexts in the request."""
    name = players.open(FIRST)
    secret_word = b"quinquagesima"
    players.send("north", "PUT", f"/batches/{name}/contribution", secret_word)
    players.channel("querier").call("DELETE", f"/batches/{name}")
    log = players.running.log("evaluator")
    assert "refused 422 (invalid): member north" in log
    metrics = str(players.running.metrics())
    for word in (secret_word.decode(), name):
        assert word not in log
        assert word not in metrics
    assert "Traceback" not in log


@pytest.mark.slow
def test_what_lies_on_the_evaluators_disk_after_an_answer_is_the_batchs_name(players, made):
    """Contributions, sealed queries and the answer are erased."""
    name = players.open(slice(0, 1))
    sent = [players.contribute(client, name) for client in CLIENTS]
    assert players.fetch(name).classes.tolist() == made.clear(slice(0, 1))
    assert players.status(name)["state"] == "closed"
    assert players.running.kill("evaluator", signal.SIGTERM) == 0
    state = players.running.folder / "evaluator" / "state"
    files = [path for path in state.rglob("*") if path.is_file()]
    whole = b"".join(path.read_bytes() for path in files)
    assert name.encode() in whole
    for contribution in sent:
        assert contribution[-200:-100] not in whole
    start(players.running)


@pytest.mark.slow
@pytest.mark.parametrize("grace", ["0", "300"])
def test_a_stop_hands_an_evaluation_back_or_finishes_it(players, made, grace):
    """Without time the batch goes back to the queue, and is answered after the next start."""
    running = players.running
    running.kill("evaluator", signal.SIGTERM)
    running.start("evaluator", "--grace", grace)
    name = players.open(slice(0, 6))
    for client in CLIENTS:
        players.contribute(client, name)
    wait_until(lambda: players.status(name)["state"] == "evaluating")
    assert running.kill("evaluator", signal.SIGTERM) == 0
    store = Store(running.folder / "evaluator" / "state" / "batches.db")
    state = store.find(made.manifest.fingerprint, name).state
    store.close()
    assert state == ("queued" if grace == "0" else "answered")
    start(running)
    assert players.fetch(name).classes.tolist() == made.clear(slice(0, 6))


@pytest.mark.slow
def test_the_rate_of_a_member_is_limited(players):
    """Its own requests alone: others are served."""
    running = players.running
    running.kill("evaluator", signal.SIGTERM)
    running.start("evaluator", "--rate", "0.01", "--burst", "5")
    found = [players.send("north", "GET", "/asked").status_code for _ in range(7)]
    assert found == [200] * 5 + [429] * 2
    assert players.send("south", "GET", "/asked").status_code == 200
