"""FedNew and FedSophia against their formulas, written down with torch's derivatives."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation
from secure_fl.objectives import SoftmaxLoss, SquaredLoss
from secure_fl.trainers.linear import (
    AveragingState,
    FedNewState,
    LocalTraining,
    Sophia,
    fednew,
    fedsophia,
)
from secure_fl.trainers.linear.fedsophia import sampled_diagonal

D, C, RIDGE = 3, 3, 0.05


def clients(sizes=(12, 20, 30)):
    rng = np.random.default_rng(5)
    return [
        Client(f"c{i}", rng.normal(size=(n, D)) + 0.3 * i, rng.integers(0, C, n))
        for i, n in enumerate(sizes)
    ]


class Oracle:
    """One client's softmax loss of the flat weights, differentiated by torch."""

    def __init__(self, client):
        self.X, self.y = torch.tensor(client.features), torch.tensor(client.targets)
        self.share = len(client)

    def loss(self, w):
        return cross_entropy(self.X @ w.reshape(D, C), self.y) + RIDGE / 2 * (w**2).sum()

    def gradient(self, w):
        return torch.func.grad(self.loss)(torch.tensor(w)).numpy()

    def hessian(self, w):
        return torch.func.hessian(self.loss)(torch.tensor(w)).numpy()


def mean(values, oracles):
    return np.average(values, axis=0, weights=[each.share for each in oracles])


def test_fednew_is_one_step_of_admm_a_round():
    alpha, rho, rounds = 0.2, 0.7, 6
    oracles = [Oracle(client) for client in clients()]
    x, y = np.zeros(D * C), np.zeros(D * C)
    multipliers = [np.zeros(D * C) for _ in oracles]
    for _ in range(rounds):
        own = [
            np.linalg.solve(
                each.hessian(x) + (alpha + rho) * np.eye(D * C),
                each.gradient(x) - multiplier + rho * y,
            )
            for each, multiplier in zip(oracles, multipliers, strict=True)
        ]
        y = mean(own, oracles)
        multipliers = [m + rho * (o - y) for m, o in zip(multipliers, own, strict=True)]
        x = x - y
    objective = SoftmaxLoss(RIDGE, C)
    zeros = objective.zeros(D)
    fed = Federation(clients())
    *_, state = fed.rounds(
        fednew(fed, objective, start=FedNewState(zeros, zeros), rounds=rounds, alpha=alpha, rho=rho)
    )
    assert np.allclose(state.weights.ravel(), x, atol=1e-9)
    assert np.allclose(state.direction.ravel(), y, atol=1e-9)


def test_fednew_comes_to_the_pooled_minimum():
    """Where y is 0 and consensus holds, the mean gradient is."""
    objective = SoftmaxLoss(RIDGE, C)
    zeros = objective.zeros(D)
    fed = Federation(clients())
    start = FedNewState(zeros, zeros)
    *_, state = fed.rounds(fednew(fed, objective, start=start, rounds=150, rho=0.3))
    pooled = np.vstack([c.features for c in clients()])
    labels = np.concatenate([c.targets for c in clients()])
    assert np.abs(objective.gradient(state.weights, pooled, labels)).max() < 1e-7


def test_fedsophia_clips_the_running_gradient_over_the_running_diagonal():
    rounds, rate = 3, 0.05
    sophia = Sophia(0.8, 0.6, interval=2, floor=1e-3, bound=0.7, estimator="exact")
    oracles = [Oracle(client) for client in clients()]
    w = np.zeros(D * C)
    kept = [(np.zeros(D * C), np.zeros(D * C), 0) for _ in oracles]
    for _ in range(rounds):
        models = []
        for i, each in enumerate(oracles):
            local, (m, h, done) = w.copy(), kept[i]
            for _ in range(3):
                m = 0.8 * m + 0.2 * each.gradient(local)
                if done % 2 == 0:
                    h = 0.6 * h + 0.4 * np.diag(each.hessian(local))
                done += 1
                local = local - rate * np.clip(m / np.maximum(h, 1e-3), -0.7, 0.7)
            kept[i] = m, h, done
            models.append(local)
        w = mean(models, oracles)
    objective = SoftmaxLoss(RIDGE, C)
    fed = Federation(clients())
    *_, state = fed.rounds(
        fedsophia(
            fed,
            objective,
            start=AveragingState(objective.zeros(D)),
            rounds=rounds,
            training=LocalTraining(rate, epochs=3),
            sophia=sophia,
        )
    )
    assert np.allclose(state.weights.ravel(), w, atol=1e-9)


def test_sampled_labels_give_the_diagonal_of_the_hessian_on_average():
    (client,), rng = clients((8,)), np.random.default_rng(0)
    w = rng.normal(size=D * C)
    expected = np.diag(Oracle(client).hessian(w))
    objective = SoftmaxLoss(RIDGE, C)
    drawn = np.array(
        [
            sampled_diagonal(objective, w.reshape(D, C), client.features, rng).ravel()
            for _ in range(4000)
        ]
    )
    error = drawn.std(axis=0) / len(drawn) ** 0.5
    assert (np.abs(drawn.mean(axis=0) - expected) < 5 * error).all()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"rho": 0.0}, "rho"), ({"alpha": -1.0}, "alpha"), ({"rho": float("inf")}, "rho")],
)
def test_fednew_refuses_what_is_out_of_range(wrong, told):
    objective = SoftmaxLoss(RIDGE, C)
    zeros = objective.zeros(D)
    with pytest.raises(ValueError, match=told):
        next(
            fednew(
                Federation(clients()), objective, start=FedNewState(zeros, zeros), rounds=1, **wrong
            )
        )


def test_fedsophia_refuses_momentum_and_labels_drawn_from_no_chances():
    start = AveragingState(np.zeros((D, C)))
    fed, local = Federation(clients()), LocalTraining(0.1)
    with pytest.raises(InputError, match="softmax"):
        next(fedsophia(fed, SquaredLoss(0.1, C), start=start, rounds=1, training=local))
    heavy = LocalTraining(0.1, momentum=0.5)
    with pytest.raises(ValueError, match="momentum"):
        next(fedsophia(fed, SoftmaxLoss(0.1, C), start=start, rounds=1, training=heavy))
    with pytest.raises(ValueError, match="range"):
        Sophia(interval=0)
