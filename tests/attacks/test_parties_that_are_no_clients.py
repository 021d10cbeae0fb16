"""A training server that fills a masked sum up with members who are no clients.

All parties are in one list of members, so that the server, the evaluator and the querier have
identities that nodes know. Each of the owner's rules on numbers of clients is kept.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from secure_fl.crypto.identities import (
    MARK,
    NOT_CLIENTS,
    read_directory,
    read_identity,
    write_identity,
)
from secure_fl.federation import Client
from secure_fl.federation.executor import Call, run_step
from secure_fl.flower import Node
from secure_fl.flower.plan import read_plan
from secure_fl.flower.settings import Owner
from secure_fl.objectives import SquaredLoss
from secure_fl.trainers.linear._client import local_gradient
from tests.attacks.cheat import Cheat, decoded
from tests.attacks.table import Attack
from tests.secure_fl.flower.consortium import NAMES, node_config, write_parties

ATTACK = Attack(
    name="fills a masked sum up with members that are no clients",
    holds="the training server and its key, and two members of the same list: evaluator, querier",
    before="one client's update, to 1e-10, from a sum of three of which two know their own",
    after="nothing: a node has no part in sums with members that are no clients",
)

VICTIM = NAMES[0]
OBJECTIVE, WEIGHTS = SquaredLoss(0.1, 3), np.zeros((7, 3))
STEP = 2.0**20 / 2**52
"""Of the codes of three clients with the clip of `PLAIN`, rounded up."""
PLAN = {"clients": ",".join(NAMES), "classes": "x,y,z", "method": "fednewton", "out": "run"}


@pytest.mark.parametrize("accomplices", [NOT_CLIENTS[:2], ("lab", "clinic")])
def test_a_sum_with_the_server_and_its_accomplice(
    tmp_path: Path, accomplices: tuple[str, str]
) -> None:
    """The second two are queriers by the list alone, whose names do not say so."""
    write_parties(tmp_path)
    members = json.loads((tmp_path / "members.json").read_text())
    for name in accomplices:
        mark = "" if name in NOT_CLIENTS else MARK
        members[name] = mark + write_identity(tmp_path / f"{name}.key")
    (tmp_path / "members.json").write_text(json.dumps(members))
    owner = Owner(node_config(tmp_path, VICTIM, secure=True))

    def node(name: str) -> Node:
        if name == VICTIM:
            return owner.node(PLAN)
        return Node(
            name,
            lambda: Client(name, np.zeros((1, 7)), np.zeros(1, int)),
            tmp_path / name,
            identity=read_identity(tmp_path / f"{name}.key"),
            directory=read_directory(tmp_path / "members.json"),
            description=read_plan(PLAN).description,
        )

    def update(name: str) -> np.ndarray:
        call = Call(local_gradient, (OBJECTIVE, WEIGHTS), 0, 0, 0)
        return np.ravel(run_step(call, node(name)._load()))

    names = (VICTIM, *accomplices)
    cheat = Cheat(node, names, threshold=3)
    request = cheat.request(local_gradient, OBJECTIVE, WEIGHTS)
    found = decoded(cheat.sum(dict.fromkeys(names, request)), STEP)
    if found is not None:
        alone = found - sum(map(update, accomplices))
        pytest.fail(f"the update of {VICTIM}, off by {np.abs(alone - update(VICTIM)).max():.1g}")
