"""`--rounds auto`: where a run ends, and that its objective is the clients' own."""

import json

import numpy as np
import pytest
from attrs import evolve
from scipy.special import log_softmax

from secure_fl.data import Dataset, write_clients
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, SecureAggregation
from secure_fl.objectives import SoftmaxLoss
from secure_fl.privacy.promises import ClientPromise
from secure_fl.trainers.linear._client import local_value
from secure_fl.trainers.methods.averaging import FedAvg
from secure_fl.training import settling
from secure_fl.training.settling import (
    MOST_ROUNDS,
    PATIENCE,
    objective_of,
    until_settled,
    window_of,
)
from secure_fl.training.train import train
from tests.cli.command import securefl


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(0)
    y = [np.arange(n) % 2 for n in (30, 20)]
    return [
        Dataset(rng.normal(size=(len(c), 2)) + 2 * c[:, None], c, ("a", "b"), f"c{len(c)}")
        for c in y
    ]


def test_a_run_ends_so_many_rounds_after_its_last_progress():
    values = [9.0, 5.0, 4.9, 4.0, *[3.9] * 20]
    found = until_settled(iter(range(24)), values.__getitem__, {})
    assert list(found) == list(range(4 + PATIENCE))


def test_values_that_are_not_finite_are_no_progress():
    found = list(until_settled(iter(range(50)), lambda i: 1.0 if i == 0 else float("nan"), {}))
    assert len(found) == 1 + PATIENCE


def test_where_some_clients_take_part_in_a_round_the_mean_of_several_is_judged():
    """An objective of one easy and one hard client in turn: each easy one is no progress."""
    turns = [1.0, 9.0] * 40
    assert len(list(until_settled(iter(range(80)), turns.__getitem__, {}, window=2))) < 13
    # What falls for all is progress, whoever is heard: by single rounds only the easy client is.
    falling = [value * 0.97**i for i, value in enumerate(turns)]
    assert len(list(until_settled(iter(range(80)), falling.__getitem__, {}, window=2))) == 80
    assert [window_of(10, drawn) for drawn in (None, 10, 4, 1)] == [1, 1, 3, 10]


def test_the_objective_is_that_of_all_records_together(clients):
    objective = SoftmaxLoss(1e-3, 2)
    weights = np.array([[0.3, -0.2], [1.0, 0.5]])
    members = [Client(each.name, each.X, each.y) for each in clients]
    X, y = (np.concatenate([getattr(each, part) for each in clients]) for part in ("X", "y"))
    logarithms = log_softmax(X @ weights, axis=1)[np.arange(len(y)), y]
    expected = -logarithms.mean() + 0.5 * 1e-3 * np.sum(weights**2)
    fed = Federation(members, aggregation=SecureAggregation())
    found = objective_of(fed, local_value, objective)(weights)
    assert found == pytest.approx(expected, abs=1e-8)


def test_the_number_of_rounds_must_be_known_before_privacy_is_promised(clients, tmp_path):
    promise = ClientPromise(epsilon=1.0, clip=1.0)
    with pytest.raises(InputError, match="must be known before privacy is promised"):
        train(clients, FedAvg(), settle=True, promise=promise, books=tmp_path / "books")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("cut", [1, 7, 12, 16])
def test_a_run_that_goes_on_from_a_checkpoint_ends_where_it_would_have_ended(
    clients, tmp_path, cut
):
    method = FedAvg(rounds=MOST_ROUNDS, ridge=0.3)
    whole = train(clients, method, settle=True)
    file = tmp_path / "checkpoint"
    train(clients, evolve(method, rounds=cut), settle=True, checkpoint=file)
    for _ in range(2):  # the second time it is at its end already
        resumed = train(clients, method, settle=True, checkpoint=file)
        assert resumed.rounds == whole.rounds < MOST_ROUNDS
        np.testing.assert_array_equal(resumed.model.weights, whole.model.weights)


def test_the_command_goes_on_for_as_many_rounds_as_are_of_use(clients, tmp_path, monkeypatch):
    write_clients(tmp_path / "clients", clients)
    base = ("train", tmp_path / "clients", "--method", "fedavg", "--json")
    rounds = []
    for said in (("--rounds", "auto"), ()):
        out, _ = securefl(*base, *said, "--ridge", 0.3, "--out", tmp_path / f"linear{len(said)}")
        rounds.append(json.loads(out)["rounds"])
    assert PATIENCE < rounds[0] == rounds[1] < MOST_ROUNDS
    monkeypatch.setattr(settling, "MOST_ROUNDS", PATIENCE + 2)
    out, _ = securefl(*base, "--model", "mlp", "--out", tmp_path / "mlp")
    assert PATIENCE < json.loads(out)["rounds"] <= PATIENCE + 2
    noisy = ("--client-epsilon", 1, "--clip", 1, "--aggregate", "secure")
    out, _ = securefl(*base, *noisy, "--out", tmp_path / "noisy")
    assert json.loads(out)["rounds"] == FedAvg().rounds
    _, err = securefl(*base, "--rounds", "some", "--out", tmp_path / "no", check=2)
    assert "expected a whole number, or auto" in " ".join(err.split())
