"""Trainers under what the handle offers: masked sums, checkpoints, lost clients."""

import numpy as np
import pytest

from secure_fl.federation import RandomDropOuts, SecureAggregation
from secure_fl.objectives import SoftmaxLoss, SquaredLoss
from secure_fl.trainers.linear import (
    LBFGS,
    Adam,
    AveragingState,
    Exact,
    LocalTraining,
    NewtonState,
    fedavg,
    fednewton,
    fednewton_head,
    fedprox,
    localnewton,
    oneshot,
)
from tests.secure_fl.trainers.linear.federations import pool

SQUARED, SOFTMAX = SquaredLoss(0.01, 3), SoftmaxLoss(0.01, 3)
ZERO_MODEL, ZERO = AveragingState(np.zeros((6, 3))), NewtonState(np.zeros((6, 3)))
TRAINING = LocalTraining(0.5, epochs=2, batch_size=5)

TRAINERS = {
    "fedavg": lambda fed, start: fedavg(
        fed, SOFTMAX, start=start or ZERO_MODEL, rounds=4, training=TRAINING
    ),
    "fedadam": lambda fed, start: fedavg(
        fed, SOFTMAX, start=start or ZERO_MODEL, rounds=4, training=TRAINING, server=Adam(0.1)
    ),
    "fedprox": lambda fed, start: fedprox(
        fed, SOFTMAX, start=start or ZERO_MODEL, rounds=4, proximal=0.1, training=TRAINING
    ),
    "localnewton": lambda fed, start: localnewton(
        fed, SOFTMAX, start=start or ZERO, rounds=4, solver=Exact()
    ),
    "fednewton": lambda fed, start: fednewton(fed, SQUARED, rounds=4, start=start),
    "fednewton, memory": lambda fed, start: fednewton(
        fed, SQUARED, rounds=4, memory=3, start=start
    ),
    "fednewton_head": lambda fed, start: fednewton_head(
        fed, SOFTMAX, start=start or ZERO, rounds=4, solver=Exact(0.01), memory=2
    ),
    "lbfgs": lambda fed, start: fednewton_head(
        fed, SOFTMAX, start=start or ZERO, rounds=4, solver=LBFGS()
    ),
}
SIZES = (30, 8, 17, 12, 9)


@pytest.mark.parametrize("name", TRAINERS)
def test_masked_sums_give_the_plain_model_to_the_quantisation(name):
    data = pool(sizes=SIZES)
    plain, masked = data.federation(), data.federation(aggregation=SecureAggregation())
    *_, expected = plain.rounds(TRAINERS[name](plain, None))
    *_, found = masked.rounds(TRAINERS[name](masked, None))
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)


def test_one_shot_averaging_needs_one_masked_sum():
    data = pool(sizes=SIZES)
    (expected,) = oneshot(data.federation(), SOFTMAX)
    (found,) = oneshot(data.federation(aggregation=SecureAggregation()), SOFTMAX)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-6)


@pytest.mark.parametrize("name", TRAINERS)
def test_a_run_goes_on_from_its_checkpoint_to_the_same_bits(name, tmp_path):
    data = pool(sizes=SIZES)
    whole = data.federation(seed=3)
    states = list(whole.rounds(TRAINERS[name](whole, None)))
    for stop in range(1, len(states)):
        file = tmp_path / f"{stop}"
        broken = data.federation(seed=3)
        running = broken.rounds(TRAINERS[name](broken, None), checkpoint=file)
        for _ in range(stop):
            next(running)
        resumed = data.federation(seed=3)
        start = resumed.resume(file)
        *_, last = resumed.rounds(TRAINERS[name](resumed, start))
        np.testing.assert_array_equal(last.weights, states[-1].weights)
        assert last.round == states[-1].round


@pytest.mark.parametrize("name", TRAINERS)
def test_lost_clients_leave_a_finite_model(name):
    data = pool(sizes=SIZES)
    fed = data.federation(seed=1, drop_outs=RandomDropOuts(0.3))
    *_, last = fed.rounds(TRAINERS[name](fed, None))
    assert np.isfinite(last.weights).all()
    objective = SQUARED if name.startswith("fednewton") and "head" not in name else SOFTMAX
    begin = objective.value(ZERO.weights, data.X, data.y)
    assert objective.value(last.weights, data.X, data.y) < begin
