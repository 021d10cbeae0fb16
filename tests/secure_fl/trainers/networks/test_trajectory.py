"""What a client keeps of its steps: the norms are those of torch and of an explicit Fisher."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from secure_fl.federation import Federation
from secure_fl.trainers.networks import (
    LinearModel,
    LocalTraining,
    NetworkState,
    Perceptron,
    SecondOrder,
    events,
    fedrco,
    keep_trajectory,
    load,
    trajectory,
)

MODEL = Perceptron(3, 5, (6,))


def run(clients, options, model=MODEL, rounds=3):
    fed = Federation(clients, seed=1)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    *_, state = fed.rounds(fedrco(fed, model, start=start, rounds=rounds, options=options))
    return fed, state


def test_the_first_steps_norms_are_those_of_the_gradient_and_of_the_explicit_fisher(clients):
    model, client = LinearModel(3, 5), clients[0]
    keep_trajectory(client)
    # One batch of all records: their order does not matter.
    run(clients[:1], SecondOrder(LocalTraining(0.05, steps=1, batch_size=99)), model, rounds=1)
    network = model.build()
    load(network, model.initial(np.random.default_rng(0)))
    X = torch.from_numpy(client.features.astype(np.float32))
    y = torch.from_numpy(client.targets)
    cross_entropy(network(X), y).backward()
    head = network.head
    gradient = torch.cat([head.weight.grad, head.bias.grad[:, None]], dim=1).double().numpy()
    a = np.c_[X.numpy(), np.ones(len(X))].astype(float)
    g = (torch.softmax(network(X), 1) - torch.eye(3)[y]).detach().double().numpy()
    omega, gamma = a.T @ a / len(X), g.T @ g / len(X)
    pi = np.sqrt(np.trace(omega) / 6 * 3 / np.trace(gamma))
    root = math.sqrt(0.03)
    fisher = np.kron(omega + pi * root * np.eye(6), gamma + root / pi * np.eye(3))
    natural = np.linalg.solve(fisher, gradient.T.ravel())
    ((number, plain, layer, found, applied, verdict),) = trajectory(client)
    assert (number, verdict) == (0, 0)
    assert plain == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
    assert layer == pytest.approx(np.linalg.norm(natural), rel=1e-4)
    assert found == applied == layer


def test_a_trajectory_has_every_step_with_the_events_that_are_counted(clients):
    """Long steps, so that the monitor has something to do; two clients keep theirs, two do not."""
    for client in clients[:2]:
        keep_trajectory(client)
    options = SecondOrder(LocalTraining(20.0, steps=4, batch_size=16))
    run(clients, options)
    assert [len(trajectory(each)) for each in clients] == [12, 12, 0, 0]
    alone = Federation(clients[:2])
    counted = alone.sum(events)
    rows = np.concatenate([trajectory(each) for each in clients[:2]])
    assert (rows[:, 5] == 1).sum() == counted["rollbacks"] > 0
    assert (rows[:, 5] == 2).sum() == counted["resets"] > 0
    assert rows[:12, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    _, _, layer, found, applied, verdict = rows.T
    assert (found[np.isfinite(found)] >= layer[np.isfinite(found)]).all()
    assert (applied[verdict == 2] == 0).all()
    assert (applied[verdict == 0] == found[verdict == 0]).all()
    assert np.allclose(applied[verdict == 1], np.minimum(10.0, found[verdict == 1]))


@pytest.mark.parametrize("monitored", [True, False])
def test_keeping_a_trajectory_changes_no_bit_of_the_run(clients, monitored):
    training = LocalTraining(0.05, steps=4, batch_size=16)
    options = SecondOrder(training) if monitored else SecondOrder(training, monitor=None)
    _, without = run(clients, options)
    for client in clients:
        client.state.clear()
        keep_trajectory(client)
    _, kept = run(clients, options)
    assert np.array_equal(kept.parameters, without.parameters)
    found = trajectory(clients[0])
    assert np.array_equal(found[:, 3], found[:, 4])
