"""What a Flower run is told: app folders, plans, nodes' configurations, identities."""

import contextlib
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from secure_fl.crypto.identities import read_directory, read_identity, write_identity
from secure_fl.errors import InputError
from secure_fl.federation import wire
from secure_fl.flower.app import GridTransport, answer_of, write_app
from secure_fl.flower.plan import read_plan
from secure_fl.flower.settings import make_node
from secure_fl.flower.transport import ANSWER, REQUEST

BIN = Path(sys.executable).parent


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
    assert plan.secure
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


def test_the_command_writes_an_app_of_heads(tmp_path: Path) -> None:
    options = "--clients", "a,b", "--classes", "x,y", "--out", "run", "--method", "kahm"
    assert securefl("flower", "app", str(tmp_path / "app"), *options).returncode == 0
    refused = securefl("flower", "app", str(tmp_path / "no"), *options, "--aggregate", "secure")
    assert refused.returncode == 2
    assert "secure: no setting of a run" in refused.stderr


PLAN = {"clients": "a,b", "classes": "x,y", "method": "fednewton", "out": "run"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"colour": 1}, "colour: no setting of a run"),
        ({"clients": "a"}, "clients: found 1"),
        ({"method": "private-ridge"}, "private-ridge: needs secure"),
        ({"epsilon": 1.0}, "epsilon: of private-gradient, private-ridge and kahm"),
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


@pytest.mark.parametrize("request_", [None, b"rubbish"])
def test_an_error_leaves_its_node_without_its_text(tmp_path: Path, request_: bytes | None) -> None:
    own = {"data": str(tmp_path / "no such file.npz"), "state": "/dev/null/secret"}
    answer = answer_of(lambda: make_node(own, PLAN), request_)
    assert set(wire.decode(answer, kind=ANSWER)) == {"dropped"}
    assert b"secret" not in answer
    assert b"such" not in answer


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


class Slow(GridTransport):
    """Two nodes in place of the network; the second one misses the first questions."""

    def __init__(self, missed: int) -> None:
        super().__init__(self, ["a", "b"], wait=0.0)
        self._missed = missed
        self.questions = 0

    def get_node_ids(self) -> list[int]:
        return [1, 2]

    def _carry(self, content: Mapping[int, bytes], seconds: float) -> list[tuple[int, bytes]]:
        found = []
        for node, request in content.items():
            what = wire.decode(request, kind=REQUEST)["do"]
            self.questions += what == "name" and node == 2
            if node == 1 or self.questions > self._missed:
                found.append((node, wire.encode({"name": "?ab"[node]}, kind=ANSWER)))
        return found


def test_a_node_that_is_late_with_its_name_is_asked_again_and_not_for_ever() -> None:
    request = wire.encode({"do": "run"}, kind=REQUEST)
    late, silent = Slow(2), Slow(99)
    answered = [set(late({"a": request, "b": request}, 1.0)) for _ in range(4)]
    assert answered == [{"a"}, {"a"}, {"a", "b"}, {"a", "b"}]
    for _ in range(9):
        assert set(silent({"a": request, "b": request}, 1.0)) == {"a"}
    assert (late.questions, silent.questions) == (3, 3)
