"""Training alone and tuning at home are what the clients would do by themselves."""

import numpy as np

from secure_fl.federation import Federation
from secure_fl.trainers.networks import (
    LinearModel,
    LocalTraining,
    NetworkState,
    fedavg,
    fine_tuned,
    local_only,
)
from secure_fl.trainers.networks.fedrco import personal_model

TRAINING = LocalTraining(0.1, steps=3, batch_size=1000, momentum=0.5)
"""Whole batches: then nothing depends on the order of the records."""


def alone(client, model, start, rounds):
    """A federation of one client, averaged: that client's own training."""
    fed = Federation([client])
    states = fedavg(fed, model, start=NetworkState(start), rounds=rounds, training=TRAINING)
    *_, last = fed.rounds(states)
    return last.parameters


def test_clients_that_train_alone_are_federations_of_one(clients):
    model = LinearModel(3, 5)
    start = model.initial(np.random.default_rng(0))
    fed = Federation(clients)
    begin = NetworkState(start)
    states = fed.rounds(local_only(fed, model, start=begin, rounds=4, training=TRAINING))
    for state in states:
        assert np.array_equal(state.parameters, start)
    for client in clients:
        assert np.allclose(personal_model(client), alone(client, model, start, 4), atol=1e-5)


def test_a_tuned_model_is_one_round_of_training_from_the_global_one(clients):
    model = LinearModel(3, 5)
    start = model.initial(np.random.default_rng(1))
    fine_tuned(Federation(clients), model, start, TRAINING)
    for client in clients:
        assert np.allclose(personal_model(client), alone(client, model, start, 1), atol=1e-5)
