"""Engine bgv over the network: bodies too large for memory, from files to files."""

import concurrent.futures
import hashlib
import json
import resource
import socket
import time

import attrs
import numpy as np
import pytest

import fhe
from fhe.audit import new_audit
from fhe.batched.contributor import write_batched
from fhe.batched.packing import packed_bytes
from fhe.envelope import Payload

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")
pytest.importorskip("seal", reason="needs the extra `batched` (securefl[batched])")

from secure_fl.demo.service_parties import IDENTITY, copy_parties, deployment
from secure_fl.errors import InputError
from secure_fl.service.members import read_secrets
from secure_fl.service.querier import BatchTerms
from secure_fl.service.sealed_query import Facts, seal_query
from secure_fl.service.shelf import FOLDER
from secure_fl.service.signing import SCHEME, new_request, signed
from secure_fl.service.worker import SCRATCH
from tests.secure_fl.service.conftest import CLIENTS, make
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.test_service import half_done, wait_until
from tests.secure_fl.service.workers import running as worker
from tests.secure_fl.service.workers import write_circle

SOME = slice(8, 20)  # of all classes, and not all the same without south


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A federation whose keys are of engine bgv, at the smallest secure parameters."""
    folder = tmp_path_factory.mktemp("batched") / "parties"
    return make(folder, 0, bits=4, engine="bgv")


@pytest.fixture(scope="module")
def players(made, tmp_path_factory):
    """A running evaluator, and the other parties."""
    folder = tmp_path_factory.mktemp("network") / "parties"
    copy_parties(made.folder, folder)
    with deployment(folder) as running:
        start(running)
        yield Players(made, running)


def start(running):
    running.start("evaluator", "--rate", "1000", "--burst", "1000")


def test_parties_as_processes_answer_every_query_as_the_plain_rule_does(made, tmp_path):
    """Known answers are mixed in, as always."""
    copy_parties(made.folder, tmp_path / "parties")
    with deployment(tmp_path / "parties") as running:
        start(running)
        running.start_contributors(CLIENTS, "--near", "0")
        process = running.query(running.folder / "queries.npy")
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err.decode()
        assert "known answers are right" in err.decode()
        found = json.loads(out)
        assert found["present"] == list(CLIENTS)
        assert found["classes"] == [made.manifest.classes[c] for c in made.clear(slice(None))]
        left = running.folder / "evaluator" / "state" / FOLDER
        wait_until(lambda: not list(left.iterdir()))
        assert "Traceback" not in running.log("evaluator")


def test_a_quorum_answers_with_neutral_contributions_from_files(players, made):
    """Equal to the plain rule over those that are there, known answers too."""
    audit = new_audit(3)
    name = players.open(SOME, audit, quorum=2, patience=0.5)
    players.contribute("north", name)
    players.contribute("west", name)
    found = players.fetch(name, audit)
    assert found.present == ("north", "west")
    assert found.classes.tolist() == made.clear(SOME, ["north", "west"])
    assert made.clear(SOME) != made.clear(SOME, ["north", "west"])


# ------------------------------------------------------------------------- who sends what is not


class Upload:
    """A contribution that is sent by hand, a part of it now and the rest later, or never."""

    def __init__(self, players, name, batch, body):
        target = f"/v1/{players.manifest.fingerprint}/batches/{batch}/contribution"
        member = players.member(name)
        claims = new_request(member, "evaluator", players.manifest.fingerprint, "PUT", target, body)
        host, port = players.running.url().removeprefix("http://").split(":")
        self._line = socket.create_connection((host, int(port)), timeout=60)
        head = (
            f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: {SCHEME} {signed(member, claims)}\r\n\r\n"
        )
        self._line.sendall(head.encode())
        self._body = body

    def send(self, start, stop):
        self._line.sendall(self._body[start:stop])

    def answer(self):
        """Status and body."""
        with self._line.makefile("rb") as line:
            status, size = int(line.readline().split()[1]), 0
            while header := line.readline().strip().lower():
                if header.startswith(b"content-length:"):
                    size = int(header.split()[1])
            return status, line.read(size).decode()

    def cut(self):
        self._line.close()


def bodies(players):
    """Names of files in the evaluator's folder of bodies."""
    return sorted(path.name for path in folder_of(players).iterdir())


def folder_of(players, name=FOLDER):
    return players.running.folder / "evaluator" / "state" / name


def whole(names):
    """Whether nothing is half-written."""
    return all(len(name) == 64 for name in names)


@pytest.fixture
def batch(players):
    """An open batch; closed at the end."""
    name = players.open(SOME)
    yield name
    players.channel("querier").call("DELETE", f"/batches/{name}")
    wait_until(lambda: not bodies(players))


def body_of(players, name, batch, folder, **changes):
    """A client's contribution as bytes."""
    position = players.manifest.client_index(name)
    facts = {"name": name, "federation": players.manifest.fingerprint, "batch": batch}
    public = players.querier().public
    codes = players.made.codes[SOME][:, position]
    write_batched(folder / "body", codes, public, contributor=position, **{**facts, **changes})
    return (folder / "body").read_bytes()


def altered(body, **changes):
    """The same contribution with other facts, or ciphertexts changed by a function."""
    found = fhe.BatchedContribution.from_bytes(body, source="a test")
    if "content" in changes:
        content = changes.pop("content")(found.payload())
        changes["content"] = Payload(content, 0, len(content))
    return attrs.evolve(found, **changes).to_bytes()


def test_contributions_that_do_not_belong_are_refused_and_leave_nothing(players, batch, tmp_path):
    fine = body_of(players, "north", batch, tmp_path)
    rule = players.made.parameters
    foreign = attrs.evolve(rule, step=2, high_columns=3, low_columns=3)
    polynomial = packed_bytes(rule.chain.primes(rule.circuit.level_of(0))[:1], rule.degree, 1)
    claims_less = {"length": len(fine) - 1}
    too_long = {"length": len(fine) + 4096}
    cases = {
        "longer than announced": (413, fine, {"sent": fine + b"x"}),
        "longer, in chunks": (413, fine, {"sent": iter([fine, b"x"])}),
        "shorter, in chunks": (400, fine, {"sent": iter([fine[:-1]])}),
        "another digest": (400, fine, {"sent": fine[:-1] + b"x"}),
        "announced shorter": (413, fine, {"claims": claims_less}),
        "announced longer than a contribution is": (413, fine, {"claims": too_long}),
        "another signer": (401, fine, {"claims": {"sender": "south"}}),
        "truncated": (422, fine[:-100], {}),
        "a flipped bit": (422, fine[:-50] + bytes([fine[-50] ^ 1]) + fine[-49:], {}),
        "nothing": (422, b"", {}),
        "foreign parameters": (422, altered(fine, parameters=foreign), {}),
        "another batch": (422, altered(fine, batch="other"), {}),
        "another client": (422, altered(fine, name="south"), {}),
        "another position": (422, altered(fine, contributor=1), {}),
        "other keys": (422, altered(fine, key="0" * 64), {}),
        "no residues": (422, altered(fine, content=lambda c: b"\xff" * 4096 + c[4096:]), {}),
        "a polynomial of zeros": (
            422,
            altered(fine, content=lambda c: c[:polynomial] + bytes(len(c) - polynomial)),
            {},
        ),
    }
    before = bodies(players)
    path = f"/batches/{batch}/contribution"
    for what, (status, body, how) in cases.items():
        found = players.send("north", "PUT", path, body, **how)
        assert found.status_code == status, (what, found.text)
        # Where it lay on the evaluator's disk is nobody's business.
        assert str(players.running.folder) not in found.text
        assert bodies(players) == before, what
    assert players.send("south", "PUT", path, fine).status_code == 422
    assert players.status(batch)["clients"] == dict.fromkeys(CLIENTS, "asked")
    member, target = players.member("north"), f"/v1/{players.manifest.fingerprint}{path}"
    claims = new_request(member, "evaluator", players.manifest.fingerprint, "PUT", target, fine)
    token = signed(member, claims)
    statuses = [players.post("PUT", target, token, fine).status_code for _ in "ab"]
    assert statuses == [201, 409], "a replayed request"
    assert players.send("north", "PUT", path, fine).status_code == 200
    other = body_of(players, "north", batch, tmp_path)
    assert players.send("north", "PUT", path, other).status_code == 409
    # Its sealed query is gone, what it sent is there.
    wait_until(lambda: len(bodies(players)) == len(before))
    assert hashlib.sha256(fine).hexdigest() in bodies(players)


def test_a_cut_line_leaves_nothing_and_one_of_two_uploads_is_taken(players, batch, tmp_path):
    fine = body_of(players, "north", batch, tmp_path)
    before, half = bodies(players), len(fine) // 2
    first = Upload(players, "north", batch, fine)
    first.send(0, half)
    wait_until(lambda: bodies(players) != before)
    path = f"/batches/{batch}/contribution"
    assert players.send("north", "PUT", path, fine).status_code == 503, "at the same time"
    first.cut()
    wait_until(lambda: bodies(players) == before)
    assert players.status(batch)["clients"]["north"] == "asked"
    second = Upload(players, "north", batch, fine)
    second.send(0, half)
    wait_until(lambda: bodies(players) != before)
    # A member's own line repeats what is busy, and both are told that it is there.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        told = pool.submit(players.new_channel("north").call, "PUT", path, fine)
        second.send(half, len(fine))
        assert second.answer()[0] == 201
        assert told.result().status == 200
    second.cut()


def test_sealed_queries_come_apart_once_each_from_the_querier(players, tmp_path):
    """And an opening says who is asked, within the engine's number of queries."""
    name, degree = "apart", players.made.parameters.degree
    terms = {"queries": 12, "quorum": 3, "patience": 600.0, "expires": time.time() + 600}
    inline = json.loads(players.opening(name, SOME))["sealed"]
    for what, changes, status in (
        ("together", {"sealed": inline}, 422),
        ("a stranger", {"apart": [*CLIENTS, "east"]}, 422),
        ("too few", {"apart": ["north", "south", "south"]}, 422),
        ("too many queries", {"apart": CLIENTS, "queries": degree + 1}, 413),
    ):
        body = json.dumps({**terms, **changes}).encode()
        found = players.send("querier", "PUT", f"/batches/{name}", body)
        assert found.status_code == status, (what, found.text)
    assert f"a batch has at most {degree} queries" in found.text
    many, querier = np.zeros((degree, 2), np.float32), players.querier()
    with pytest.raises(InputError, match=rf"at most {degree}, so ask at most {degree - 3} at once"):
        querier.open(name, many, new_audit(3), BatchTerms())
    opening = json.dumps({**terms, "apart": CLIENTS}).encode()
    assert players.send("querier", "PUT", f"/batches/{name}", opening).status_code == 201
    assert players.send("querier", "PUT", f"/batches/{name}", opening).status_code == 200
    assert players.status(name)["clients"] == dict.fromkeys(CLIENTS, "announced")
    assert players.send("north", "GET", f"/batches/{name}/query").status_code == 409

    def sealed(client, **changes):
        facts = Facts(
            federation=players.manifest.fingerprint,
            batch=name,
            contributor=client,
            public=players.querier().public.fingerprint,
            queries=12,
            quorum=3,
            expires=terms["expires"],
        )
        own, by = attrs.evolve(facts, **changes), players.member("querier")
        features = players.made.queries[SOME]
        return seal_query(own, features, None, by, players.manifest).to_bytes()

    path = f"/batches/{name}/sealed/north"
    north = sealed("north")
    forged = bytearray(north)
    forged[-40] ^= 1  # of the ciphertext; the envelope's own digest is made anew
    forged = bytes(forged[:-32]) + hashlib.sha256(forged[:-32]).digest()
    for what, sender, body, status in (
        ("a client", "north", north, 403),
        ("another client's", "querier", sealed("south"), 422),
        ("another batch's", "querier", sealed("north", batch="b"), 422),
        ("another quorum's", "querier", sealed("north", quorum=2), 422),
        ("another key's", "querier", sealed("north", public="0" * 64), 422),
        ("not signed", "querier", forged, 422),
        ("nothing", "querier", b"", 422),
    ):
        found = players.send(sender, "PUT", path, body)
        assert found.status_code == status, (what, found.text)
        assert not bodies(players), what
    assert players.send("querier", "PUT", f"/batches/{name}/sealed/east", north).status_code == 409
    assert players.send("querier", "PUT", path, north).status_code == 201
    assert players.send("querier", "PUT", path, north).status_code == 200
    assert players.send("querier", "PUT", path, sealed("north")).status_code == 409
    assert players.send("north", "GET", f"/batches/{name}/query").content == north
    assert players.status(name)["clients"] == {
        **dict.fromkeys(CLIENTS, "announced"),
        "north": "asked",
    }
    players.channel("querier").call("DELETE", f"/batches/{name}")
    wait_until(lambda: not bodies(players))


def test_a_full_disk_is_one_refusal_and_nothing_is_kept(players, batch, tmp_path):
    """The limit on a file's size is met as a full disk is; when there is room again it goes on."""
    fine, before = body_of(players, "north", batch, tmp_path), bodies(players)
    path, pid = f"/batches/{batch}/contribution", players.running.pid("evaluator")
    usual = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4 << 20, usual[1]))
    try:
        found = Upload(players, "north", batch, fine)
        found.send(0, 5 << 20)
        status, said = found.answer()
        assert (status, json.loads(said)["detail"]) == (503, "the disk is full")
        assert bodies(players) == before
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)
    assert players.send("north", "PUT", path, fine).status_code == 201


def test_kills_within_an_upload_and_an_evaluation_lose_nothing(players, made, tmp_path):
    """What was acknowledged is on the disk, what was not is gone, and the answer is right."""
    running = players.running
    name = players.open(SOME)
    fine = body_of(players, "north", name, tmp_path)
    players.contribute("south", name)
    wait_until(lambda: len(bodies(players)) == 3)  # its sealed query is gone
    before = bodies(players)
    half = Upload(players, "north", name, fine)
    half.send(0, len(fine) // 2)
    wait_until(lambda: not whole(bodies(players)))
    running.kill("evaluator")
    half.cut()
    assert not whole(bodies(players))
    start(running)
    assert bodies(players) == before
    states = {"north": "asked", "south": "sent", "west": "asked"}
    assert players.status(name)["clients"] == states
    players.contribute("north", name)
    players.contribute("west", name)
    wait_until(lambda: half_done(players, name))
    assert list(folder_of(players, SCRATCH).iterdir())
    running.kill("evaluator")
    start(running)
    found = players.fetch(name)
    assert found.present == CLIENTS
    assert found.classes.tolist() == made.clear(SOME)
    wait_until(lambda: not bodies(players) and not list(folder_of(players, SCRATCH).iterdir()))


@pytest.mark.slow  # a second evaluator and its workers
def test_workers_answer_a_batch_of_engine_bgv(made, tmp_path):
    """Keys and contributions are sent to them from the files where they lie."""
    copy_parties(made.folder, tmp_path / "parties")
    own = read_secrets(tmp_path / "parties" / "evaluator" / IDENTITY, "evaluator")
    write_circle(tmp_path, evaluator=own.identity.public.hex())
    with (
        worker(tmp_path, "w1", tmp_path / "one") as (_, address),
        deployment(tmp_path / "parties") as parties,
    ):
        parties.start(
            *("evaluator", "--workers", address, "--members", str(tmp_path / "members.json"))
        )
        players = Players(made, parties)
        name = players.open(SOME, quorum=2, patience=0.5)
        for client in ("north", "west"):
            players.contribute(client, name)
        assert players.fetch(name).classes.tolist() == made.clear(SOME, ["north", "west"])
        assert players.status(name)["done"] > 0
