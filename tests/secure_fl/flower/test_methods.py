"""Every method of the command line over nodes: what one process gives, from the same settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fl.data import read_clients
from secure_fl.errors import InputError
from secure_fl.flower.plan import read_plan
from secure_fl.trainers.methods.averaging import FedAvg
from secure_fl.trainers.registry import find
from secure_fl.trainers.settings import AUTO
from secure_fl.training.linear import train_linear_model
from secure_fl.training.linear_model import LinearModel
from secure_fl.training.settling import MOST_ROUNDS
from secure_fl.training.train import train
from tests.secure_fl.flower.machines import Machines
from tests.secure_fl.methods import LINEAR, linear, own

SETTINGS: dict[str, Any] = {"rounds": 2, "ridge": 0.1}
SEED = 4
OF_SUMS = tuple(each for each in LINEAR if not find(each, "linear").hides_records)
"""Methods that hide records draw other noise in every run; test_node_books.py has one."""


def in_process(machines: Machines, method: str, secure: bool = False) -> Any:
    settings = linear(method, **SETTINGS)
    clients = read_clients(machines.folder / "clients")
    return train_linear_model(clients, settings, secure=secure, seed=SEED, scale=0.5).model.weights


def plan_of(method: str) -> dict[str, Any]:
    return {**own(method, "linear", SETTINGS), "seed": SEED}


@pytest.mark.parametrize("method", OF_SUMS)
def test_a_method_over_nodes_has_the_bytes_of_one_process(tmp_path: Path, method: str) -> None:
    machines = Machines(tmp_path)
    found = LinearModel.load(machines.train("run", method=method, **plan_of(method)))
    assert found.weights.tobytes() == in_process(machines, method).tobytes()
    assert found.scale == 0.5


@pytest.mark.parametrize("method", ["fedavg", "fednewton", "fednl", "fednl-pp"])
def test_a_method_over_nodes_with_masked_sums_has_the_model_of_one_process(
    tmp_path: Path, method: str
) -> None:
    machines = Machines(tmp_path)
    weighted: dict[str, Any] = {} if method.startswith("fednl") else {"max_weight": 64.0}
    plan = {"method": method, "secure": True, **weighted, **plan_of(method)}
    found = LinearModel.load(machines.train("run", **plan)).weights
    np.testing.assert_allclose(found, in_process(machines, method, secure=True), atol=1e-6)


def test_a_run_over_nodes_ends_where_one_of_one_process_does(tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    plan = {"method": "fedavg", "ridge": 0.3, "rounds": AUTO}
    found = LinearModel.load(machines.train("run", **plan))
    method = FedAvg(rounds=MOST_ROUNDS, ridge=0.3)
    here = train(read_clients(tmp_path / "clients"), method, scale=0.5, settle=True)
    assert here.rounds < MOST_ROUNDS
    assert found.weights.tobytes() == here.model.weights.tobytes()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == here.rounds


def test_rounds_must_be_known_where_a_plan_promises_privacy() -> None:
    parties = {"clients": "a,b", "classes": "0,1", "out": "run", "method": "fedavg"}
    noise = {"client-epsilon": 1.0, "clip": 1.0, "ledger": "books"}
    with pytest.raises(InputError, match="must be known before privacy is promised"):
        read_plan({**parties, **noise, "rounds": AUTO})
