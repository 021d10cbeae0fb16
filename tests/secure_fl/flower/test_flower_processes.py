"""Training over Flower: a SuperLink and three SuperNodes, real processes on loopback."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kahm import classify
from secure_fl.data import read_clients
from secure_fl.demo.credentials import write_certificates, write_ssh_key
from secure_fl.demo.flower_parties import Loopback, loopback
from secure_fl.federation import Client, Federation, SecureAggregation
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.head import head_path
from secure_fl.heads.manifest import load_manifest
from secure_fl.heads.run_folder import all_measures, create_run, load_run
from secure_fl.trainers.fednl import LogisticRidge, fednl
from tests.secure_fl.flower.consortium import (
    CLASSES,
    LONGEST,
    NAMES,
    in_process,
    node_config,
    start_node,
    start_run,
    wait_for,
    weights,
    write_parties,
    write_run,
)
from tests.secure_fl.flower.successors import AFTER, BEFORE, adopted

pytest.importorskip("flwr", reason="needs the extra `flower` (pip install securefl[flower])")


@pytest.fixture
def net(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Loopback]:
    """With securefl's nodes, and their state in a database."""
    write_parties(tmp_path, classes=getattr(request, "param", CLASSES))
    with loopback(tmp_path) as found:
        found.superlink()
        for name in NAMES:
            start_node(found, name)
        yield found


@pytest.fixture
def flowers(tmp_path: Path) -> Iterator[Loopback]:
    """With Flower's own nodes."""
    write_parties(tmp_path)
    with loopback(tmp_path) as found:
        found.superlink()
        for name in NAMES:
            start_node(found, name, flowers=True)
        yield found


# ------------------------------------------------------------------------------------------- TLS


@pytest.mark.parametrize(
    "flowers", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["securefl", "flower"]
)
def test_heads_are_trained_over_tls_by_registered_nodes_and_stay_with_them(
    tmp_path: Path, flowers: bool
) -> None:
    """The heads are those of one process; a stranger's node gets nowhere and is told why."""
    refused = "Failed to initialize the connection" if flowers else "does not take the key of"
    write_parties(tmp_path)
    with loopback(tmp_path, write_certificates(tmp_path)) as net:
        net.superlink()
        keys = {name: write_ssh_key(tmp_path, name) for name in NAMES}
        register = ("flwr", "supernode", "register")
        commands = [
            net.start(f"register {name}", *register, str(key.with_suffix(".pub")), net.name)
            for name, key in keys.items()
        ]
        for name, command in zip(NAMES, commands, strict=True):
            assert command.wait(timeout=LONGEST) == 0, net.log(f"register {name}")
            start_node(net, name, keys[name], flowers=flowers)
        stranger = {"data": str(tmp_path / "clients" / "c0.npz"), "state": str(tmp_path / "other")}
        start = net.supernode if flowers else net.node
        start("stranger", stranger, write_ssh_key(tmp_path, "stranger"))
        app = write_run(net, "heads", method="kahm", batch_size=5)
        out = tmp_path / "heads.run"
        options = "--runtime", "flower", "--superlink", "here", "--out", str(out)
        run = net.start("heads", "securefl", "train", str(app), *options)
        assert run.wait(timeout=LONGEST) == 0, net.log("heads")
        wait_for(lambda: refused in net.log("stranger"), net, "heads")
    manifest = load_manifest(out)
    data = read_clients(tmp_path / "clients")
    expected = train_heads([(each.name, each.X, each.y) for each in data], manifest)
    create_run(tmp_path / "here", expected, manifest)
    kept = {name: tmp_path / name / "heads" / manifest.fingerprint[:16] for name in NAMES}
    for name, run_folder in kept.items():
        assert head_path(run_folder, name).read_bytes() == (
            head_path(tmp_path / "here", name).read_bytes()
        )
    heads = [load_run(folder, [name])[1][0] for name, folder in kept.items()]
    X = np.concatenate([each.X for each in data]).astype(np.float32)
    measures = [all_measures(each, X, manifest) for each in (heads, expected)]
    np.testing.assert_array_equal(classify(measures[0]), classify(measures[1]))


@pytest.mark.slow  # four nodes and two runs
def test_nodes_that_are_given_a_successor_keep_their_heads_and_the_newcomer_trains(
    tmp_path: Path,
) -> None:
    """c1 leaves and c2 joins: c0 hands out the machines that it has."""
    write_parties(tmp_path)
    plan = {"method": "kahm", "batch_size": 5}
    with loopback(tmp_path) as net:
        net.superlink()
        for name in BEFORE:
            start_node(net, name)
        run = start_run(net, "before", clients=",".join(BEFORE), threshold=2, **plan)
        assert run.wait(timeout=LONGEST) == 0, net.log("before")
        wait_for((tmp_path / "before.run").exists, net, "before")
        before = load_manifest(tmp_path / "before.run")
        agreed = adopted(tmp_path, before)
        for name in BEFORE:
            net.kill(name)
        for name in AFTER:
            net.node(f"{name} again", node_config(tmp_path, name, federation=str(agreed)), None)
        settings = {"clients": ",".join(AFTER), "federation": str(agreed), **plan}
        start_run(net, "after", **settings)
        wait_for((tmp_path / "after.run").exists, net, "after")
    after = load_manifest(tmp_path / "after.run")
    assert after == load_manifest(agreed)
    kept = [tmp_path / "c0" / "heads" / each.fingerprint[:16] for each in (before, after)]
    old, new = (load_run(folder, ["c0"])[1][0].bank.records for folder in kept)
    assert old.tobytes() == new.tobytes()
    folder = tmp_path / "c2" / "heads" / after.fingerprint[:16]
    assert load_run(folder, ["c2"])[1][0].client == "c2"
    assert not (tmp_path / "c1" / "heads" / after.fingerprint[:16]).exists()


# --------------------------------------------------------------------------------- linear models


@pytest.mark.slow
def test_fednewton_on_flowers_own_nodes_has_the_bytes_of_one_process(flowers: Loopback) -> None:
    assert start_run(flowers, "plain", rounds=1).wait(timeout=LONGEST) == 0
    assert weights(flowers, "plain").tobytes() == in_process(flowers, 1).tobytes()


@pytest.mark.slow
def test_masked_sums_on_flowers_own_nodes_give_the_model_of_one_process(flowers: Loopback) -> None:
    options = {"secure": True, "max_weight": 100.0}
    start_run(flowers, "masked", rounds=1, **options).wait(timeout=LONGEST)
    expected = in_process(flowers, 1, secure=True)
    np.testing.assert_allclose(weights(flowers, "masked"), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "net"), [("fednewton", ("x", "y", "z")), ("fednl", ("x", "y"))], indirect=["net"]
)
def test_masked_sums_on_flower_give_the_model_of_one_process(net: Loopback, method: str) -> None:
    """Two classes for FedNL, which trains one model for each of more."""
    classes = ",".join(read_clients(net.folder / "clients")[0].classes)
    options = {"method": method, "secure": True, "max_weight": 100.0, "classes": classes}
    start_run(net, "masked", rounds=1, **options).wait(timeout=LONGEST)
    expected = in_process(net, 1, method, secure=True)
    np.testing.assert_allclose(weights(net, "masked"), expected, atol=1e-6)


@pytest.mark.slow
def test_private_ridge_on_flower_is_booked_at_the_server(net: Loopback) -> None:
    books = str(net.folder / "server.books")
    promise = {"epsilon": 50.0, "delta": 1e-3, "norm": 1.0, "ledger": books}
    start_run(net, "ridge", method="private-ridge", secure=True, **promise).wait(timeout=LONGEST)
    assert weights(net, "ridge").shape == (7, 3)
    assert len(Path(books).read_text().splitlines()) == 2


OWN_SERVER = """
from pathlib import Path

import numpy as np

from secure_fl.federation import SecureAggregation
from secure_fl.trainers.fednl import LogisticRidge, fednl
from secure_fl.flower import NetworkFederation
from secure_fl.flower.app import GridTransport, make_server_app


def train(grid, config):
    names = config["clients"].split(",")
    fed = NetworkFederation(
        GridTransport(grid, names), names, aggregation=SecureAggregation(max_weight=1.0)
    )
    states = fednl(fed, LogisticRidge(0.1), d=6, rounds=1, option=2)
    (*_, state) = fed.rounds(states, progress=lambda line: print(line, flush=True))
    np.save(config["out"], state.weights)


app = make_server_app(train)
"""
OWN_CLIENT = """
from pathlib import Path

import numpy as np

import secure_fl.trainers.fednl  # registers the steps that a server may ask for
from secure_fl.data import read_client
from secure_fl.federation import Client
from secure_fl.flower import Node, NodePolicy
from secure_fl.flower.app import make_client_app
from secure_fl.crypto.identities import read_directory, read_identity


def node(own, run):
    records = read_client(own["data"])
    targets = np.where(np.array(records.labels) == "x", 1.0, -1.0)
    return Node(
        records.name,
        lambda: Client(records.name, records.X, targets),
        Path(own["state"]),
        identity=read_identity(Path(own["identity"])),
        directory=read_directory(Path(own["directory"])),
        terms=NodePolicy(secure=True),
    )


app = make_client_app(node)
"""


@pytest.mark.slow
def test_a_trainer_of_ones_own_runs_on_flower_fednl_with_masked_sums(flowers: Loopback) -> None:
    app = write_run(flowers, "own")
    (app / "securefl_app" / "server.py").write_text(OWN_SERVER)
    (app / "securefl_app" / "client.py").write_text(OWN_CLIENT)
    flowers.run("own", app).wait(timeout=LONGEST)
    found = flowers.folder / "own.run.npy"
    assert found.exists(), flowers.log("own") + flowers.log("c0")
    clients = [
        Client(each.name, each.X, np.where(each.y == 0, 1.0, -1.0))
        for each in read_clients(flowers.folder / "clients")
    ]
    fed = Federation(clients, aggregation=SecureAggregation())
    (*_, state) = fednl(fed, LogisticRidge(0.1), d=6, rounds=1, option=2)
    np.testing.assert_allclose(np.load(found), state.weights, atol=1e-6)


# ---------------------------------------------------------------------------- machines that fail


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "masked"])
def test_a_node_killed_between_two_messages_and_started_again_is_not_missed(
    net: Loopback, secure: bool
) -> None:
    """It keeps its number at the SuperLink, and answers what it was asked before it died."""
    options = {"secure": True, "max_weight": 100.0} if secure else {}
    run = start_run(net, "again", rounds=6, time_out=60, **options)
    for number in (0, 2, 4):
        wait_for(lambda number=number: f"round {number}:" in net.log("again"), net, "again")
        net.kill("c1")
        start_node(net, "c1")
    run.wait(timeout=LONGEST)
    assert "round 6: 3 of 3 clients" in net.log("again")
    assert net.log("again").count("3 of 3 clients") == 7
    found, expected = weights(net, "again"), in_process(net, 6, secure=secure)
    if secure:
        np.testing.assert_allclose(found, expected, atol=1e-6)
    else:
        assert found.tobytes() == expected.tobytes()


@pytest.mark.slow
def test_a_run_goes_on_without_a_node_that_was_killed_and_ends_below_the_threshold(
    net: Loopback,
) -> None:
    run = start_run(net, "killed", rounds=3, threshold=2, time_out=60)
    wait_for(lambda: "round 1:" in net.log("killed"), net, "killed")
    net.kill("c2")
    run.wait(timeout=LONGEST)
    assert "round 3: 2 of 3 clients" in net.log("killed")
    assert np.isfinite(weights(net, "killed")).all()
    net.kill("c1")
    start_run(net, "lost", rounds=3, threshold=2, time_out=60, wait=10).wait(timeout=LONGEST)
    assert "QuorumError" in net.log("lost")
    assert not (net.folder / "lost.run").exists()
    start_node(net, "c1")
    start_node(net, "c2")
    start_run(net, "heads", method="kahm", batch_size=5).wait(timeout=LONGEST)
    assert load_manifest(net.folder / "heads.run").clients == NAMES


@pytest.mark.slow
def test_an_answer_after_its_time_out_is_not_used_and_the_node_is_asked_again(
    net: Loopback,
) -> None:
    """The late node computes the first sum to its end; neither its value nor it are lost sums."""
    run = start_run(net, "late", rounds=6, threshold=2, time_out=60)
    wait_for(lambda: "round 0:" in net.log("late"), net, "late")
    net.signal("c2", signal.SIGSTOP)
    wait_for(lambda: "2 of 3 clients" in net.log("late"), net, "late")
    net.signal("c2", signal.SIGCONT)
    run.wait(timeout=LONGEST)
    assert "round 6: 3 of 3 clients" in net.log("late")


@pytest.mark.slow
def test_a_killed_superlink_is_resumed_from_the_checkpoint_to_the_same_bytes(
    net: Loopback,
) -> None:
    kept = str(net.folder / "run.checkpoint")
    start_run(net, "first", rounds=3, checkpoint=kept)
    wait_for(lambda: "round 1:" in net.log("first"), net, "first")
    net.kill("superlink")
    net.superlink()
    start_run(net, "second", rounds=3, checkpoint=kept).wait(timeout=LONGEST)
    assert "round 0:" not in net.log("second")
    assert weights(net, "second").tobytes() == in_process(net, 3).tobytes()


@pytest.mark.slow
def test_a_node_that_joins_late_takes_its_place_in_the_next_sum(net: Loopback) -> None:
    net.kill("c2")
    run = start_run(net, "joined", rounds=5, threshold=2, time_out=60, wait=5)
    wait_for(lambda: "round 0:" in net.log("joined"), net, "joined")
    assert "round 0: 2 of 3 clients" in net.log("joined")
    start_node(net, "c2")
    run.wait(timeout=LONGEST)
    assert "round 5: 3 of 3 clients" in net.log("joined")


def test_everything_that_a_deployment_started_is_gone_when_it_ends(tmp_path: Path) -> None:
    """A child that outlives its parent, in a session of its own, too."""
    with loopback(tmp_path) as net:
        orphan = (
            "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=1).pid)"
        )
        net.start("parent", "python", "-c", orphan).wait(timeout=60)
        pid = net.log("parent").strip()
        assert Path("/proc", pid).exists()
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout
    assert state.strip()[:1] in ("", "Z")


def test_a_deployment_ends_with_the_process_that_started_it_however_that_ends(
    tmp_path: Path,
) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from secure_fl.demo.flower_parties import Loopback\n"
        "net = Loopback(Path(sys.argv[1]))\n"
        "print(net.start('child', 'python', '-c', 'import time; time.sleep(600)').pid)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = parent.stdout.readline().strip()
        assert Path("/proc", pid).exists()
        parent.kill()
    command = ["ps", "-o", "args=", pid]
    end = time.monotonic() + 60
    while "sleep" in subprocess.run(command, capture_output=True, text=True).stdout:
        assert time.monotonic() < end
        time.sleep(0.05)
