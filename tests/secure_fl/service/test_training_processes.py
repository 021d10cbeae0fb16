"""Training over the service's channel as processes: kill -9 of node and server, TLS, SIGTERM."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="needs the extra `service` (pip install securefl[service])")

from secure_fl.crypto.identities import write_identity
from secure_fl.data import read_clients
from secure_fl.demo.credentials import write_certificates
from secure_fl.demo.flower_parties import Loopback, loopback
from secure_fl.flower.app import write_app
from secure_fl.training.fitted import FittedModel
from secure_fl.training.linear_model import LinearModel
from secure_fl.training.train import train
from tests.secure_fl.flower import consortium
from tests.secure_fl.flower.consortium import CLASSES, LONGEST, NAMES, node_config, write_parties
from tests.secure_fl.methods import linear

ROUNDS = 60
OPTIONS = {"safeguard": False, "ridge": 0.1}


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Loopback]:
    """Three clients' nodes, with TLS."""
    write_parties(tmp_path)
    members = json.loads((tmp_path / "members.json").read_text())
    members["server"] = write_identity(tmp_path / "training.key")
    (tmp_path / "members.json").write_text(json.dumps(members))
    with loopback(tmp_path, write_certificates(tmp_path)) as found:
        for name in NAMES:
            start(found, name)
        yield found


def start(net: Loopback, name: str) -> None:
    net.client(name, node_config(net.folder, name))


def begin(net: Loopback, name: str, **settings: Any) -> Any:
    """Starts a run that writes NAME.run."""
    config = {
        "clients": ",".join(NAMES),
        "classes": ",".join(CLASSES),
        "method": "fednewton",
        "rounds": ROUNDS,
        "out": str(net.folder / f"{name}.run"),
        **OPTIONS,
        **{key.replace("_", "-"): value for key, value in settings.items()},
    }
    write_app(net.folder / f"{name}.app", config)
    return net.train(name, net.folder / f"{name}.app", net.folder / f"{name}.run")


def wait_for(condition: Callable[[], bool], net: Loopback, name: str) -> None:
    consortium.wait_for(condition, net, name, every=0.02)


def weights(net: Loopback, name: str) -> Any:
    assert (net.folder / f"{name}.run").exists(), net.log(name) + net.log("c0")
    return LinearModel.load(net.folder / f"{name}.run").weights


def in_process(net: Loopback, **options: Any) -> Any:
    clients = read_clients(net.folder / "clients")
    settings = linear("fednewton", rounds=ROUNDS, **OPTIONS)
    fitted = train(clients, settings, **options)
    assert isinstance(fitted, FittedModel)
    return fitted.model.weights


@pytest.mark.slow  # a minute of processes that start and are killed
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "masked"])
def test_nodes_killed_between_two_messages_and_started_again_are_not_missed(
    net: Loopback, secure: bool
) -> None:
    options = {"secure": True, "max_weight": 100.0} if secure else {}
    run = begin(net, "again", **options)
    for number, name in ((2, "c0"), (10, "c1"), (20, "c2"), (30, "c1")):
        wait_for(lambda number=number: f"round {number}:" in net.log("again"), net, "again")
        net.kill(name)
        start(net, name)
    assert run.wait(timeout=LONGEST) == 0, net.log("again")
    assert net.log("again").count("3 of 3 clients") == ROUNDS + 1
    found, expected = weights(net, "again"), in_process(net, secure=secure)
    if secure:
        np.testing.assert_allclose(found, expected, atol=1e-6)
    else:
        assert found.tobytes() == expected.tobytes()


@pytest.mark.slow  # a minute of processes that start and are killed
def test_a_server_that_was_killed_goes_on_from_its_checkpoint_to_the_same_bytes(
    net: Loopback,
) -> None:
    """Scaled by all clients' moments, which nobody is asked for again."""
    scaled: dict[str, Any] = {"scaling": "moments", "scale": 0.2}
    options = {"checkpoint": str(net.folder / "run.checkpoint"), **scaled}
    begin(net, "first", **options)
    wait_for(lambda: "round 5:" in net.log("first"), net, "first")
    net.kill("first")
    assert begin(net, "second", **options).wait(timeout=LONGEST) == 0, net.log("second")
    assert "round 0:" not in net.log("second")
    assert "scaling: means and deviations" not in net.log("second")
    assert weights(net, "second").tobytes() == in_process(net, **scaled).tobytes()


@pytest.mark.slow  # half a minute of processes that start
def test_a_node_that_waits_ends_at_once_when_it_is_told_to(net: Loopback) -> None:
    run = begin(net, "short")
    assert run.wait(timeout=LONGEST) == 0, net.log("short")
    assert "Traceback" not in net.log("short")
    for name, number in zip(NAMES, (signal.SIGTERM, signal.SIGINT, signal.SIGTERM), strict=True):
        net.signal(name, number)
        wait_for(lambda name=name: "stopped;" in net.log(name), net, name)
        assert "Traceback" not in net.log(name)
