"""A client whose update is not finite: refused by the handle, whatever the trainer."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from secure_fl.federation import Client, Federation, QuorumError, SecureAggregation
from secure_fl.trainers.linear.server import Adam, Momentum
from secure_fl.trainers.networks import (
    LocalTraining,
    NetworkState,
    Perceptron,
    Regularization,
    SecondOrder,
    accuracy,
    events,
    fedavg,
    fedavgr,
    fedpm,
    fedrco,
    fl_hc,
)

MODEL = Perceptron(3, 5, (8,))
LOCAL = LocalTraining(0.05, steps=5, batch_size=16)
TERMS = Regularization(1e-4, 1e-4, 1e-2)

TRAINERS = {
    "FedAvg": lambda fed, local=LOCAL, **o: fedavg(fed, MODEL, training=local, **o),
    "FedAvgM": lambda fed, local=LOCAL, **o: fedavg(
        fed, MODEL, training=local, server=Momentum(), **o
    ),
    "FedAdam": lambda fed, local=LOCAL, **o: fedavg(fed, MODEL, training=local, server=Adam(), **o),
    "FedProx": lambda fed, local=LOCAL, **o: fedavg(
        fed, MODEL, training=replace(local, proximal=0.1), **o
    ),
    "FedAvgR": lambda fed, local=LOCAL, **o: fedavgr(
        fed, MODEL, training=local, regularization=TERMS, **o
    ),
    "FL+HC": lambda fed, local=LOCAL, **o: fl_hc(
        fed, MODEL, training=local, warm_up=99, clusters=2, **o
    ),
    "FedPM": lambda fed, local=LOCAL, **o: fedpm(fed, MODEL, training=local, **o),
    "FedRCO without monitor": lambda fed, local=LOCAL, **o: fedrco(
        fed, MODEL, options=SecondOrder(local, monitor=None), **o
    ),
    "FedRCO": lambda fed, local=LOCAL, **o: fedrco(fed, MODEL, options=SecondOrder(local), **o),
}


def start():
    return NetworkState(MODEL.initial(np.random.default_rng(0)))


def run(fed, trainer, rounds=4):
    for state in fed.rounds(TRAINERS[trainer](fed, start=start(), rounds=rounds)):
        assert np.isfinite(state.parameters).all()
    return state


@pytest.mark.parametrize("aggregation", [None, SecureAggregation(clip=1000.0)])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_records_that_are_not_finite_never_reach_the_global_model(clients, trainer, aggregation):
    """The client with them is refused in every round, or resets itself; the others go on."""
    clients[2].features[:] = np.nan
    fed = Federation(clients, aggregation=aggregation)
    for state in TRAINERS[trainer](fed, start=start(), rounds=3):
        assert np.isfinite(state.parameters).all()
        assert set(fed.refused) == (set() if trainer == "FedRCO" else {"c2"})
        fed.close_round()
    if trainer == "FedRCO":
        assert Federation(clients).sum(events)["resets"] == 3 * LOCAL.steps


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_round_in_which_every_update_is_refused_ends_with_an_error(clients, trainer):
    for client in clients:
        client.features[:] = np.nan
    if trainer == "FedRCO":
        # Every client resets to the global model: nothing is refused, nothing moves.
        state = run(Federation(clients), trainer, rounds=1)
        assert np.array_equal(state.parameters, start().parameters)
    else:
        with pytest.raises(QuorumError):
            run(Federation(clients), trainer, rounds=1)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_no_state_with_a_non_finite_number_follows_from_a_learning_rate_times_1000(
    clients, trainer
):
    """Either the steps stay finite, or the handle refuses what they lead to."""
    wild = replace(LOCAL, learning_rate=1000 * LOCAL.learning_rate)
    states = TRAINERS[trainer](Federation(clients), wild, start=start(), rounds=6)
    with contextlib.suppress(QuorumError):
        for state in states:
            assert np.isfinite(state.parameters).all()


def test_an_explosion_at_one_client_is_survived_and_the_others_still_learn(clients):
    """With the monitor the federation learns beside a client of unbounded features."""
    clients.append(Client("wild", 1e12 * clients[0].features, clients[0].targets))
    fed = Federation(clients)
    state = run(fed, "FedRCO", rounds=15)
    X = np.concatenate([c.features for c in clients[:4]])
    y = np.concatenate([c.targets for c in clients[:4]])
    assert accuracy(MODEL, state.parameters, X, y) > 0.8
    counted = fed.sum(events)
    assert counted["resets"] + counted["rollbacks"] > 0
