"""Training over Flower: a SuperLink and three SuperNodes, real processes on loopback."""

import contextlib
import json
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fl.data import Dataset, read_clients, write_clients
from secure_fl.errors import InputError
from secure_fl.federated_training import train_linear_model
from secure_fl.linear_model import LinearModel
from secure_fl.recipe import Recipe
from secure_fl.runtime.flower import write_app
from secure_fl.runtime.identities import read_directory, read_identity, write_identity
from secure_fl.runtime.plan import read_plan
from secure_fl.runtime.settings import make_node
from tests.secure_fl.runtime.flower_run import BIN, Deployment, deployment
from tests.secure_fl.trainers.federations import pool

NAMES = ("c0", "c1", "c2")
pytest.importorskip("flwr", reason="needs the extra `flower` (pip install securefl[flower])")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Deployment]:
    """A SuperLink and three SuperNodes with records and identities."""
    data = pool()
    sets = [
        Dataset(data.X[rows], data.y[rows].astype(np.int64), ("x", "y", "z"), name)
        for name, rows in zip(NAMES, data.parts, strict=True)
    ]
    write_clients(tmp_path / "clients", tuple(sets))
    public = {name: write_identity(tmp_path / f"{name}.key") for name in NAMES}
    (tmp_path / "members.json").write_text(json.dumps(public))
    with deployment(tmp_path) as found:
        found.superlink()
        for name in NAMES:
            node(found, name)
        yield found


def node(machines: Deployment, name: str) -> None:
    folder = machines.folder
    config = {
        "data": str(folder / "clients" / f"{name}.npz"),
        "state": str(folder / "state" / name),
        "identity": str(folder / f"{name}.key"),
        "directory": str(folder / "members.json"),
    }
    machines.supernode(name, config)


def write(machines: Deployment, name: str, **settings: Any) -> Path:
    config = {
        "clients": ",".join(NAMES),
        "classes": "x,y,z",
        "method": "fednewton",
        "ridge": 0.1,
        "safeguard": False,
        "out": str(machines.folder / f"{name}.run"),
        **{key.replace("_", "-"): value for key, value in settings.items()},
    }
    app = machines.folder / f"{name}.app"
    write_app(app, config)
    return app


def start(machines: Deployment, name: str, **settings: Any) -> "subprocess.Popen[bytes]":
    app = write(machines, name, **settings)
    return machines.start(name, "flwr", "run", str(app), "here", "--stream")


def wait_for(condition: Callable[[], bool], machines: Deployment, name: str) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, machines.log(name) + machines.log("c0")
        time.sleep(0.1)


def weights(machines: Deployment, name: str) -> Any:
    try:
        return LinearModel.load(machines.folder / f"{name}.run").weights
    except InputError:
        raise AssertionError(machines.log(name) + machines.log("c0")) from None


def in_process(
    machines: Deployment, rounds: int, *, without: str = "", secure: bool = False
) -> Any:
    clients = [c for c in read_clients(machines.folder / "clients") if c.name != without]
    recipe = Recipe("fednewton", rounds=rounds, safeguard=False, ridge=0.1, secure=secure)
    return train_linear_model(clients, recipe).model.weights


def test_fednewton_on_flower_has_the_bytes_of_one_process(machines: Deployment) -> None:
    app = write(machines, "plain", rounds=1)
    out = str(machines.folder / "plain.run")
    options = "--runtime", "flower", "--superlink", "here", "--out", out
    run = machines.start("plain", "securefl", "train", str(app), *options)
    assert run.wait(timeout=240) == 0, machines.log("plain")
    assert weights(machines, "plain").tobytes() == in_process(machines, 1).tobytes()


@pytest.mark.slow
def test_secure_fednewton_on_flower_gives_the_model_of_one_process(machines: Deployment) -> None:
    start(machines, "masked", rounds=1, secure=True, max_weight=100.0).wait(timeout=400)
    found = weights(machines, "masked")
    np.testing.assert_allclose(found, in_process(machines, 1), atol=1e-6)


@pytest.mark.slow
def test_a_run_goes_on_without_a_node_that_was_killed_and_ends_below_the_threshold(
    machines: Deployment,
) -> None:
    run = start(machines, "killed", rounds=3, threshold=2, time_out=30)
    wait_for(lambda: "round 1:" in machines.log("killed"), machines, "killed")
    machines.kill("c2")
    run.wait(timeout=400)
    assert "round 3: 2 of 3 clients" in machines.log("killed")
    assert np.isfinite(weights(machines, "killed")).all()
    machines.kill("c1")
    start(machines, "lost", rounds=3, threshold=2, time_out=30, wait=10).wait(timeout=400)
    assert "QuorumError" in machines.log("lost")
    assert not (machines.folder / "lost.run").exists()


@pytest.mark.slow
def test_a_killed_superlink_is_resumed_from_the_checkpoint_to_the_same_bytes(
    machines: Deployment,
) -> None:
    kept = str(machines.folder / "run.checkpoint")
    start(machines, "first", rounds=3, checkpoint=kept)
    wait_for(lambda: "round 1:" in machines.log("first"), machines, "first")
    machines.kill("superlink")
    for name in NAMES:
        machines.kill(name)
    machines.superlink()
    for name in NAMES:
        node(machines, name)
    start(machines, "second", rounds=3, checkpoint=kept).wait(timeout=400)
    assert "round 0:" not in machines.log("second")
    assert weights(machines, "second").tobytes() == in_process(machines, 3).tobytes()


@pytest.mark.slow
def test_a_node_that_comes_back_takes_its_place_in_the_next_sum(machines: Deployment) -> None:
    machines.kill("c2")
    run = start(machines, "late", rounds=5, threshold=2, time_out=30, wait=5)
    wait_for(lambda: "round 0:" in machines.log("late"), machines, "late")
    assert "round 0: 2 of 3 clients" in machines.log("late")
    node(machines, "c2")
    run.wait(timeout=400)
    assert "round 5: 3 of 3 clients" in machines.log("late")


# ------------------------------------------------------------------------------- settings, files


def securefl(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(BIN / "securefl"), *arguments], capture_output=True, text=True)


def test_the_command_writes_an_app_and_an_identity(tmp_path: Path) -> None:
    app, key = tmp_path / "app", tmp_path / "a.key"
    settings = "--max-weight", "100", "--set", "ridge=0.5", "--set", "safeguard=false"
    options = "--clients", "a,b", "--classes", "x,y", "--out", "run", *settings
    assert securefl("flower", "app", str(app), *options).returncode == 0
    config = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    plan = read_plan(config)
    assert (plan.clients, plan.recipe.ridge, plan.recipe.safeguard) == (("a", "b"), 0.5, False)
    assert plan.recipe.secure
    printed = securefl("flower", "identity", str(key)).stdout.strip()
    assert read_identity(key).public.hex() == printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "fedavg"), "--method has no meaning for --runtime flower"),
        ((), "no app folder"),
    ],
)
def test_train_on_flower_refuses_what_it_cannot_mean(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    out = str(tmp_path / "run")
    found = securefl("train", str(tmp_path), "--out", out, "--runtime", "flower", *arguments)
    assert found.returncode == 2
    assert message in found.stderr


PLAN = {"clients": "a,b", "classes": "x,y", "method": "fednewton", "out": "run"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"colour": 1}, "colour: no setting of a run"),
        ({"clients": "a"}, "clients: found 1"),
        ({"method": "private-ridge"}, "private-ridge"),
        ({"secure": True}, "max-weight: missing"),
        ({"random-features": 10}, "features: missing"),
        ({"client-epsilon": 1.0}, "needs clip and ledger"),
        (
            {"method": "localnewton", "client-epsilon": 1.0, "clip": 1.0, "ledger": "l"},
            "line search",
        ),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_plan(PLAN | changed)


@pytest.mark.parametrize(
    ("own", "message"),
    [({"data": "a.npz"}, "state: missing"), ({"data": "a", "state": "b", "dta": "c"}, "dta")],
)
def test_a_nodes_configuration_is_checked(own: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_node(own, PLAN)


def test_an_app_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with contextlib.suppress(InputError):
        write_app(tmp_path / "app", PLAN | {"rounds": 0})
    assert list(tmp_path.iterdir()) == []
    write_app(tmp_path / "app", PLAN)
    with pytest.raises(InputError, match="exists already"):
        write_app(tmp_path / "app", PLAN)


def test_an_identity_is_kept_for_good_and_for_its_owner(tmp_path: Path) -> None:
    key = tmp_path / "a.key"
    public = write_identity(key)
    assert read_identity(key).public.hex() == public
    with pytest.raises(InputError, match="exists already"):
        write_identity(key)
    key.chmod(0o644)
    with pytest.raises(InputError, match="others may read it"):
        read_identity(key)


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1}', '{"a": "zz"}', '{"a": "00"}'])
def test_a_directory_of_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "members.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"members\.json"):
        read_directory(path)
