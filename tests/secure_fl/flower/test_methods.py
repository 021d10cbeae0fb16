"""Every method of the command line over nodes: what one process gives, from the same settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fl.data import read_clients
from secure_fl.trainers.registry import find
from secure_fl.training.linear import train_linear_model
from secure_fl.training.linear_model import LinearModel
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
