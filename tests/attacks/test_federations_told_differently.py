"""A server that has clients train heads of different federations, or by different plans.

A head is no sum and nothing of it leaves its node, but it is trained, released and booked for what
the server said: with other clients, another scale or other settings it answers no query, and a
release is spent.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from secure_fl.federation import QuorumError, wire
from secure_fl.flower.transport import ANSWER, REQUEST
from secure_fl.heads.manifest import load_manifest
from tests.attacks.table import Attack
from tests.secure_fl.flower.machines import NAMES, Machines

ATTACK = Attack(
    name="has clients train heads of different federations",
    holds="the training server, the configuration of each node, all signatures that it has seen",
    before="heads that every node takes for the federation's: of other clients, scales or seeds",
    after="heads that no node takes into use: all clients must have signed the same federation and"
    " plan, each as it was told itself",
)

Change = Callable[[str, dict[str, Any]], dict[str, Any]]


class Server:
    """Passes on to each node what it likes."""

    def __init__(self, machines: Machines, change: Change) -> None:
        self._machines = machines
        self._change = change

    def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        told = {
            name: self._change(name, dict(wire.decode(each, kind=REQUEST)))
            for name, each in requests.items()
        }
        found = {
            name: dict(
                wire.decode(
                    self._machines.node(name).answer(wire.encode(each, kind=REQUEST)), kind=ANSWER
                )
            )
            for name, each in told.items()
        }
        said = Counter(each["federation"] for each in found.values() if "federation" in each)
        for each in found.values():
            if "federation" in each:
                # It goes on as if all had answered alike.
                each["federation"] = said.most_common(1)[0][0]
        return {name: wire.encode(each, kind=ANSWER) for name, each in found.items()}


def in_use(machines: Machines) -> dict[str, list[Any]]:
    """The federations whose heads each node has taken into use."""
    return {
        name: [
            load_manifest(path)
            for path in (machines.folder / name / "heads").glob("*")
            if not path.name.endswith(".unconfirmed")
        ]
        for name in NAMES
    }


def attempt(machines: Machines, exchange: Any, **config: Any) -> None:
    from secure_fl.flower.plan import read_plan
    from secure_fl.flower.training import train

    plan = {
        "clients": ",".join(NAMES),
        "classes": "x,y,z",
        "scale": 0.5,
        "method": "kahm",
        "out": str(machines.folder / "out"),
        **config,
    }
    machines.config = plan
    with pytest.raises(QuorumError):
        train(exchange, read_plan(plan), lambda line: None)


@pytest.mark.parametrize("changed", [{"scale": 1e-9}, {"batch-size": 3}, {"seed": 9}, {"bits": 4}])
def test_a_node_with_another_plan(tmp_path: Path, changed: dict[str, Any]) -> None:
    """The server ships c0 another configuration, and asks it for the federation of that."""
    machines = Machines(tmp_path)
    own = machines.node

    def node(name: str) -> Any:
        plain = dict(machines.config)
        if name == "c0":
            machines.config = {**plain, **changed}
        try:
            return own(name)
        finally:
            machines.config = plain

    machines.node = node  # type: ignore[method-assign]
    told = {key.replace("-", "_"): each for key, each in changed.items()}

    def change(name: str, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "head" and name == "c0":
            facts = {k: v for k, v in told.items() if k in request["federation"]}
            request["federation"] = {**request["federation"], **facts}
        return request

    try:
        attempt(machines, Server(machines, change))
    finally:
        found = in_use(machines)
        assert not any(found.values()), f"heads in use: { {n: len(f) for n, f in found.items()} }"


def test_a_node_that_is_told_of_other_clients(tmp_path: Path) -> None:
    """c2 is told that it is alone with c1; c0 and c1 that all three take part."""
    machines = Machines(tmp_path)

    def change(name: str, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "head" and name == "c2":
            request["federation"] = {**request["federation"], "clients": ("c1", "c2")}
        return request

    try:
        attempt(machines, Server(machines, change))
    finally:
        assert not any(in_use(machines).values())


def test_signatures_of_an_earlier_federation_do_not_confirm_another(tmp_path: Path) -> None:
    """The server has signatures of all over one plan, and passes them on for the next."""
    machines = Machines(tmp_path)
    kept: dict[str, Any] = {}

    def record(name: str, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "confirm head":
            kept.setdefault("signatures", request["signatures"])
        return request

    machines.config = {}
    machines.train("first", method="kahm", seed=1)
    first = in_use(machines)
    assert all(len(found) == 1 for found in first.values())

    def replay(name: str, request: dict[str, Any]) -> dict[str, Any]:
        record(name, request)
        if request["do"] == "confirm head":
            request["signatures"] = {**request["signatures"], "c1": kept["signatures"]["c0"]}
        return request

    attempt(machines, Server(machines, replay), **{"batch-size": 7})
    assert in_use(machines) == first
