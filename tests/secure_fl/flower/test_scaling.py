"""Public ranges in a plan: the heads and models over nodes are those of one process."""

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from secure_fl.data import read_clients
from secure_fl.data.scaling import ranges_of
from secure_fl.errors import InputError
from secure_fl.flower.plan import read_plan
from secure_fl.heads.head import head_path
from secure_fl.trainers.methods.averaging import FedAvg
from secure_fl.trainers.methods.kahm import KAHMHeads
from secure_fl.training.linear_model import LinearModel
from secure_fl.training.train import train
from tests.secure_fl.flower.machines import NAMES, Machines


def listed(numbers: tuple[float, ...] | None) -> str:
    return ",".join(map(repr, numbers or ()))


def test_heads_and_models_are_scaled_by_the_plan_and_keep_the_constants(tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    clients = read_clients(machines.folder / "clients")
    scaling = attrs.evolve(ranges_of(np.concatenate([each.X for each in clients])), factor=0.5)
    ranges: dict[str, Any] = {
        "offsets": listed(scaling.offsets),
        "spreads": listed(scaling.spreads),
    }
    manifest = machines.heads("run", regularisation="relative", **ranges)
    assert manifest.scaling_map == scaling
    here = tmp_path / "here"
    method = KAHMHeads(batch_size=5, regularisation="relative")
    found = train(clients, method, scaling=scaling, scale=0.5, out=here)
    assert found.manifest == manifest
    for name in NAMES:
        kept = head_path(machines.run(name, manifest), name).read_bytes()
        assert kept == head_path(here, name).read_bytes()
    model = LinearModel.load(machines.train("model", method="fedavg", rounds=2, **ranges))
    assert model.scaling_map == scaling
    expected = train(clients, FedAvg(rounds=2), scaling=scaling, scale=0.5).model
    np.testing.assert_allclose(model.weights, expected.weights, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"offsets": "1,2", "spreads": "1"}, "scaling: 2 offsets and 1 spreads"),
        ({"offsets": "1,x", "spreads": "1,1"}, "offsets: expected numbers, with commas"),
        ({"spreads": "1"}, "scaling: 0 offsets and 1 spreads"),
        ({"offsets": "1", "spreads": "0"}, "a spread not above 0"),
    ],
)
@pytest.mark.parametrize("method", ["kahm", "fedavg"])
def test_numbers_that_make_no_scaling_are_refused(
    method: str, given: dict[str, str], message: str
) -> None:
    plan = {"clients": "a,b", "classes": "x,y", "out": "run", "method": method}
    with pytest.raises(InputError, match=message):
        read_plan({**plan, **given})
