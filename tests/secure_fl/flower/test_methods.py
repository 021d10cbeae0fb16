"""Every method of the command line over nodes: what one process gives, from the same settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fl.data import read_clients
from secure_fl.training.linear import train_linear_model
from secure_fl.training.linear_model import LinearModel
from secure_fl.training.recipe import METHODS, RECORD_PRIVATE, Method, Recipe
from tests.secure_fl.flower.machines import Machines

SETTINGS: dict[str, Any] = {"rounds": 2, "ridge": 0.1, "seed": 4}
OF_SUMS: tuple[Method, ...] = tuple(each for each in METHODS if each not in RECORD_PRIVATE)
"""private-ridge draws other noise in every run; test_node_books.py has it."""


def in_process(machines: Machines, method: Method, secure: bool = False) -> Any:
    recipe = Recipe(method, secure=secure, **SETTINGS)
    clients = read_clients(machines.folder / "clients")
    return train_linear_model(clients, recipe, scale=0.5).model.weights


@pytest.mark.parametrize("method", OF_SUMS)
def test_a_method_over_nodes_has_the_bytes_of_one_process(tmp_path: Path, method: Method) -> None:
    machines = Machines(tmp_path)
    found = LinearModel.load(machines.train("run", method=method, **SETTINGS))
    assert found.weights.tobytes() == in_process(machines, method).tobytes()
    assert found.scale == 0.5


@pytest.mark.parametrize("method", ["fedavg", "fednewton", "fednl", "fednl-pp"])
def test_a_method_over_nodes_with_masked_sums_has_the_model_of_one_process(
    tmp_path: Path, method: Method
) -> None:
    machines = Machines(tmp_path)
    weighted: dict[str, Any] = {} if method.startswith("fednl") else {"max_weight": 64.0}
    plan = {"method": method, "secure": True, **weighted, **SETTINGS}
    found = LinearModel.load(machines.train("run", **plan)).weights
    np.testing.assert_allclose(found, in_process(machines, method, secure=True), atol=1e-6)
