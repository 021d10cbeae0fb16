import numpy as np
import pytest
import torch

from dp import Ledger
from secure_fl.federation import (
    Client,
    ClientPrivacy,
    Federation,
    PrivacyError,
    SecureAggregation,
)
from secure_fl.trainers.networks import (
    DPSGD,
    LinearModel,
    LocalTraining,
    NetworkState,
    Perceptron,
    accuracy,
    fedpm,
    seconds,
)


def last(states):
    *_, state = states
    return state


def test_one_step_is_the_globally_preconditioned_global_gradient(clients):
    """The identity that FedPM is built on; here in closed form for softmax regression."""
    model, damping, rate = LinearModel(3, 5), 0.05, 0.4
    start = model.initial(np.random.default_rng(1))
    training = LocalTraining(rate, steps=1, batch_size=1000)
    found = last(
        fedpm(
            Federation(clients),
            model,
            start=NetworkState(start),
            rounds=1,
            training=training,
            damping=damping,
        )
    )
    theta = np.c_[start[:15].reshape(3, 5), start[15:]].astype(float)
    gradient, preconditioner = np.zeros((3, 6)), np.zeros((6, 6))
    for client in clients:
        A = np.c_[client.features, np.ones(len(client))]
        scores = np.exp(A @ theta.T)
        residual = scores / scores.sum(axis=1, keepdims=True) - np.eye(3)[client.targets]
        gradient += residual.T @ A
        preconditioner += A.T @ A + damping * len(client) * np.eye(6)
    step = theta - rate * gradient @ np.linalg.inv(preconditioner)
    expected = np.concatenate([step[:, :5].ravel(), step[:, 5]])
    assert np.allclose(found.parameters, expected, atol=1e-4)


def test_fedpm_learns_the_same_in_the_clear_and_under_masks(clients):
    model = Perceptron(3, 5, (16,))
    options = {
        "start": NetworkState(model.initial(np.random.default_rng(0))),
        "rounds": 10,
        "training": LocalTraining(0.05, steps=10, batch_size=16),
    }
    X = np.concatenate([c.features for c in clients])
    y = np.concatenate([c.targets for c in clients])
    plain = last(fedpm(fed := Federation(clients), model, **options))
    assert accuracy(model, plain.parameters, X, y) > 0.85
    spent = fed.sum(seconds)
    assert 0 < spent["inverting"] < spent["training"]
    secure = Federation(clients, aggregation=SecureAggregation(clip=1000.0))
    masked = last(fedpm(secure, model, **{**options, "rounds": 2}))
    clear = last(fedpm(Federation(clients), model, **{**options, "rounds": 2}))
    assert np.abs(masked.parameters - clear.parameters).max() < 1e-3


def test_a_convolution_and_its_bias_come_back_in_their_places():
    """Zero gradient, zero change: with a vanishing rate the model must not move."""
    from secure_fl.trainers.networks import ConvNet

    rng = np.random.default_rng(0)
    client = Client("a", rng.normal(size=(20, 144)), rng.integers(0, 3, 20))
    model = ConvNet(3, (1, 12, 12))
    start = model.initial(rng)
    changes = []
    for rate in (1e-30, 1e-3, 2e-3):
        training = LocalTraining(rate, steps=1, batch_size=20)
        fed = Federation([client])
        state = last(fedpm(fed, model, start=NetworkState(start), rounds=1, training=training))
        changes.append(state.parameters - start)
    assert np.abs(changes[0]).max() == 0
    assert np.allclose(changes[2], 2 * changes[1], atol=1e-5)
    loss = [loss_of(model, start + change, client.features, client.targets) for change in changes]
    assert loss[0] > loss[1] > loss[2]


def loss_of(model, parameters, X, y):
    from secure_fl.trainers.networks import load

    network = model.build()
    load(network, parameters)
    with torch.no_grad():
        scores = network(torch.from_numpy(X.astype(np.float32)))
        return float(torch.nn.functional.cross_entropy(scores, torch.from_numpy(y)))


@pytest.mark.parametrize(
    ("training", "damping", "words"),
    [
        (LocalTraining(0.1, momentum=0.9), 0.03, "second-order"),
        (LocalTraining(0.1, proximal=0.1), 0.03, "second-order"),
        (LocalTraining(0.1), 0.0, "damping is 0.0"),
        (LocalTraining(0.1), float("nan"), "damping is nan"),
    ],
)
def test_settings_that_do_not_fit_second_order_steps_are_refused(clients, training, damping, words):
    model = LinearModel(3, 5)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    with pytest.raises(ValueError, match=words):
        next(
            fedpm(
                Federation(clients),
                model,
                start=start,
                rounds=1,
                training=training,
                damping=damping,
            )
        )


def test_record_level_privacy_is_refused_for_factors(clients):
    model = LinearModel(3, 5)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    private = LocalTraining(0.1, privacy=DPSGD(1.0, 1e-5, 1))
    with pytest.raises(PrivacyError, match="FedPM: no record-level privacy"):
        next(fedpm(Federation(clients), model, start=start, rounds=1, training=private))


def test_client_level_privacy_is_refused_before_any_sum(clients, tmp_path):
    """Noise on the summed factors would leave them not positive definite."""
    model = LinearModel(3, 5)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    books = tmp_path / "books.jsonl"
    ledger = Ledger.create(books, "the federation")
    before = books.read_bytes()
    fed = Federation(clients, privacy=ClientPrivacy(1.0, 1.0, 1, ledger, 1e-5))
    with pytest.raises(PrivacyError, match="FedPM: no client-level privacy"):
        next(fedpm(fed, model, start=start, rounds=1, training=LocalTraining(0.1)))
    assert books.read_bytes() == before
