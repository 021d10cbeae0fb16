"""Run folders, models, ledgers and checkpoints that version 0.1.0 wrote are read as they were.

`golden/v4` was written by the command of that version, before its modules had rooms; checkpoints
name records by the modules that defined them then.
"""

import json
import shutil
from pathlib import Path

import attrs
import numpy as np
import pytest

import dp
from secure_fl.data import ReadOptions
from secure_fl.errors import FederationError
from secure_fl.federation import checkpoint, wire
from secure_fl.heads.queries import parse_rows, read_queries
from secure_fl.heads.run_folder import all_measures, load_run
from secure_fl.trainers.network_settings import NetworkSettings
from secure_fl.training.linear import train_linear_model
from secure_fl.training.loading import load_model
from secure_fl.training.networks import train_network
from tests.secure_fl.methods import linear, network
from tests.secure_fl.shared import one_line

V4 = Path(__file__).parent / "golden" / "v4"
EXPECTED = json.loads((V4 / "predictions.json").read_text())
MODELS = ("fedavg", "fednewton", "fednl", "mlp", "fedrco", "noisy")


@pytest.fixture(scope="module")
def clients():
    from secure_fl.data import read_clients

    return read_clients(V4 / "clients")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_what_it_predicted_then(name):
    model = load_model(V4 / f"run-{name}")
    X, _ = read_queries(V4 / "clients" / "north.npz", model, ReadOptions(), parse_rows(None))
    assert [model.classes[code] for code in model.predict(X)] == EXPECTED[name]


@pytest.mark.parametrize("name", ["plain", "private", "record"])
def test_heads_answer_what_they_answered_then(name):
    manifest, heads = load_run(V4 / f"run-{name}")
    X, _ = read_queries(V4 / "clients" / "north.npz", manifest, ReadOptions(), parse_rows(None))
    codes = all_measures(heads, X, manifest).min(axis=1).argmin(axis=1)
    assert [manifest.classes[code] for code in codes] == EXPECTED[name]


def method_of(name, rounds):
    if name == "mlp":
        return network("fedavg", model="mlp", rounds=rounds, hidden=(4,))
    if name == "fedrco":
        return network("fedrco", model="mlp", rounds=rounds, hidden=(4,))
    if name == "fedavg":
        return linear(name, rounds=rounds, learning_rate=0.1)  # the default of then
    return linear(name, rounds=rounds)


@pytest.mark.parametrize("name", ["fedavg", "fednewton", "fednl", "mlp", "fedrco"])
def test_a_checkpoint_goes_on_to_where_an_unbroken_run_gets(name, clients, tmp_path):
    method = method_of(name, 4)
    train = train_network if isinstance(method, NetworkSettings) else train_linear_model
    path = tmp_path / "checkpoint"
    shutil.copyfile(V4 / f"{name}.checkpoint", path)
    said = []
    resumed = train(clients, method, checkpoint=path, progress=said.append)
    whole = train(clients, method)
    # Rounds are numbered from 0; the files hold two or three.
    assert int(said[0].removeprefix("round ").partition(":")[0]) >= 2
    # Another processor rounded the first rounds; equal bits on one machine: federation/test_resume.
    np.testing.assert_allclose(resumed.model.weights, whole.model.weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "name", "then", "now"),
    [("fedavg", "learning-rate", "0.1", "0.3"), ("fedadam", "server-rate", "0.01", "0.1")],
)
def test_a_checkpoint_that_began_by_another_default_is_refused(
    method, name, then, now, clients, tmp_path
):
    """Without settings in the file, half the run would go at a rate that nobody chose."""
    path = tmp_path / "checkpoint"
    shutil.copyfile(V4 / "fedavg.checkpoint", path)
    if method != "fedavg":
        # No file of that version is of this method; its content is but for the name.
        checkpoint.save(path, attrs.evolve(checkpoint.load(path), method=method))
        content = wire.decode(path.read_bytes(), kind=checkpoint.KIND)
        older = {k: v for k, v in content.items() if k not in ("settings", "version")}
        path.write_bytes(wire.encode(older, kind=checkpoint.KIND))
    before = path.read_bytes()
    said = {} if name == "learning-rate" else {"learning_rate": 0.1}
    with pytest.raises(FederationError) as caught:
        train_linear_model(clients, linear(method, rounds=4, **said), checkpoint=path)
    assert one_line(caught.value) == (
        f"{path}: a checkpoint of version 1, which does not keep settings, this is version 2; the"
        f" default of {name} was {then} then (securefl 0.1.0) and is {now} now: give {name} {then}"
        " to go on as that run began, or choose another checkpoint file"
    )
    assert path.read_bytes() == before


def test_ledgers_keep_their_totals():
    unit = dp.Element(1.0)
    ledger = dp.Ledger.open(V4 / "clients.ledgers" / "north.jsonl")
    assert ledger.get_epsilon(1e-5, unit).epsilon == pytest.approx(8.0)
    noisy = dp.Ledger.open(V4 / "clients.ledger")
    assert len(noisy.events) == 2
