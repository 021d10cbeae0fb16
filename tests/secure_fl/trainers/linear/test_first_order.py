"""FedAvg with its server optimisers, FedProx and one-shot averaging."""

import numpy as np
import pytest

from secure_fl.errors import InputError
from secure_fl.federation import FixedNumber
from secure_fl.objectives import SoftmaxLoss, SquaredLoss
from secure_fl.trainers.linear import (
    Adam,
    Averaging,
    AveragingState,
    LocalTraining,
    Momentum,
    fedavg,
    fedprox,
    oneshot,
)
from tests.secure_fl.trainers.linear.federations import pool

RATE = 0.7


def run(data, objective, rounds, training, server=None, **options):
    start = AveragingState(objective.zeros(6))
    fed = data.federation(**options)
    return list(
        fed.rounds(
            fedavg(fed, objective, start=start, rounds=rounds, training=training, server=server)
        )
    )


@pytest.mark.parametrize("objective", [SoftmaxLoss(0.01, 3), SquaredLoss(0.01, 3)], ids=repr)
class TestWholeBatchesOnce:
    """One whole-batch local step is a gradient step on the pooled records, so torch can tell."""

    def torch_steps(self, objective, data, make, rounds):
        import torch

        weights = torch.zeros(6, 3, dtype=torch.float64)
        optimizer = make([weights])
        for _ in range(rounds):
            gradient = objective.gradient(weights.numpy(), data.X, data.y)
            weights.grad = torch.tensor(gradient)
            optimizer.step()
        return weights.numpy()

    def test_fedavg_is_gradient_descent_on_the_pooled_records(self, objective):
        import torch

        data = pool()
        expected = self.torch_steps(objective, data, lambda w: torch.optim.SGD(w, RATE), 5)
        states = run(data, objective, 5, LocalTraining(RATE))
        np.testing.assert_allclose(states[-1].weights, expected, rtol=1e-10, atol=1e-13)

    def test_fedavgm_is_gradient_descent_with_momentum(self, objective):
        import torch

        data = pool()
        expected = self.torch_steps(
            objective, data, lambda w: torch.optim.SGD(w, RATE, momentum=0.6), 5
        )
        states = run(data, objective, 5, LocalTraining(RATE), Momentum(1.0, 0.6))
        np.testing.assert_allclose(states[-1].weights, expected, rtol=1e-10, atol=1e-13)

    def test_local_steps_of_one_client_with_momentum_are_torchs(self, objective):
        import torch

        data = pool(sizes=(25,))
        expected = self.torch_steps(
            objective, data, lambda w: torch.optim.SGD(w, RATE, momentum=0.6), 5
        )
        states = run(data, objective, 1, LocalTraining(RATE, epochs=5, momentum=0.6))
        np.testing.assert_allclose(states[-1].weights, expected, rtol=1e-10, atol=1e-13)


def test_fedadam_follows_reddi_et_al():
    """Algorithm 2 there, entry by entry in plain floats."""
    data, objective, server = pool(), SoftmaxLoss(0.01, 3), Adam(0.05, 0.8, 0.9, 0.01)
    states = run(data, objective, 4, LocalTraining(RATE), server)
    x = m = 0.0
    v = 0.01**2
    before = objective.zeros(6)
    for state in states:
        change = -RATE * float(objective.gradient(before, data.X, data.y)[2, 1])
        m = 0.8 * m + 0.2 * change
        v = 0.9 * v + 0.1 * change**2
        x += 0.05 * m / (v**0.5 + 0.01)
        before = state.weights
        assert float(before[2, 1]) == pytest.approx(x, rel=1e-10)


def test_mini_batches_visit_every_record_once_an_epoch():
    """A loss linear in the weights makes an epoch's change independent of order and cut."""
    data = pool(sizes=(23,))
    objective = SquaredLoss(0.0, 3)
    tiny = 1e-9  # so small a rate leaves the gradient as at the start
    whole = objective.gradient(objective.zeros(6), data.X, data.y)
    training = LocalTraining(tiny, epochs=2, batch_size=1)
    (state,) = run(data, objective, 1, training)
    np.testing.assert_allclose(state.weights, -2 * 23 * tiny * whole, rtol=1e-6)


def test_batches_depend_on_seed_and_round_alone():
    data, objective = pool(), SoftmaxLoss(0.01, 3)
    training = LocalTraining(RATE, batch_size=4)
    first, second, other = (
        run(data, objective, 3, training, seed=seed)[-1].weights for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("server", [None, Momentum(0.9), Adam(0.1)], ids=repr)
def test_a_resumed_run_has_the_same_bits(server):
    data, objective, training = pool(), SoftmaxLoss(0.01, 3), LocalTraining(RATE, 2)
    states = run(data, objective, 5, training, server)
    fed = data.federation()
    rest = list(fedavg(fed, objective, start=states[1], rounds=5, training=training, server=server))
    assert [s.round for s in rest] == [3, 4, 5]
    np.testing.assert_array_equal(rest[-1].weights, states[-1].weights)


def test_a_round_is_one_sum():
    data, objective = pool(), SoftmaxLoss(0.01, 3)
    fed = data.federation(participation=FixedNumber(2))
    start = AveragingState(objective.zeros(6))
    list(fedavg(fed, objective, start=start, rounds=4, training=LocalTraining(RATE)))
    assert fed.sums == 4


class TestFedProx:
    def test_exact_rounds_are_the_closed_form(self):
        """argmin F_j(w) + mu/2 |w - w0|^2 = (H_j + mu I)^-1 (b_j + mu w0), averaged."""
        data, ridge, mu = pool(), 0.02, 0.3
        start = np.random.default_rng(0).standard_normal((6, 3))
        expected = np.zeros((6, 3))
        for share, p in zip(data.shares, data.parts, strict=True):
            matrix = data.X[p].T @ data.X[p] / len(p) + (ridge + mu) * np.eye(6)
            cross = data.X[p].T @ np.eye(3)[data.y[p]] / len(p)
            expected += share * np.linalg.solve(matrix, cross + mu * start)
        objective = SquaredLoss(ridge, 3)
        (state,) = fedprox(
            data.federation(), objective, start=AveragingState(start), rounds=1, proximal=mu
        )
        np.testing.assert_allclose(state.weights, expected, rtol=1e-9)

    def test_local_descent_tends_to_the_exact_round(self):
        data, objective = pool(), SquaredLoss(0.02, 3)
        start = AveragingState(objective.zeros(6))
        exact, trained = (
            next(fedprox(data.federation(), objective, start=start, rounds=1, **options))
            for options in (
                {"proximal": 0.3},
                {"proximal": 0.3, "training": LocalTraining(1.0, 300)},
            )
        )
        np.testing.assert_allclose(trained.weights, exact.weights, atol=1e-8)

    def test_without_the_proximal_term_it_is_fedavg(self):
        data, objective, training = pool(), SoftmaxLoss(0.02, 3), LocalTraining(RATE, 3)
        start = AveragingState(objective.zeros(6))
        (state,) = fedprox(
            data.federation(), objective, start=start, rounds=1, proximal=0.0, training=training
        )
        (expected,) = run(data, objective, 1, training)
        np.testing.assert_array_equal(state.weights, expected.weights)

    def test_bad_settings_are_refused(self):
        start = AveragingState(np.zeros((6, 3)))
        fed, softmax = pool().federation(), SoftmaxLoss(0.1, 3)
        with pytest.raises(ValueError, match="proximal"):
            next(fedprox(fed, softmax, start=start, rounds=1, proximal=-1.0))
        with pytest.raises(ValueError, match="quadratic"):
            next(fedprox(fed, softmax, start=start, rounds=1, proximal=1.0))


class TestOneShot:
    def test_softmax_models_are_those_of_scikit_learn_averaged(self):
        from sklearn.linear_model import LogisticRegression

        data, ridge = pool(), 0.05
        expected = np.zeros((6, 3))
        for share, p in zip(data.shares, data.parts, strict=True):
            model = LogisticRegression(
                C=1 / (ridge * len(p)), fit_intercept=False, tol=1e-12, max_iter=10_000
            )
            expected += share * model.fit(data.X[p], data.y[p]).coef_.T
        (state,) = oneshot(data.federation(), SoftmaxLoss(ridge, 3))
        np.testing.assert_allclose(state.weights, expected, atol=1e-4)

    def test_a_ridge_is_needed(self):
        with pytest.raises(InputError, match="ridge"):
            next(oneshot(pool().federation(), SoftmaxLoss(0.0, 3)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: LocalTraining(0.0),
        lambda: LocalTraining(np.nan),
        lambda: LocalTraining(0.1, epochs=0),
        lambda: LocalTraining(0.1, batch_size=0),
        lambda: LocalTraining(0.1, momentum=1.0),
        lambda: Averaging(0.0),
        lambda: Momentum(beta=1.0),
        lambda: Adam(beta_2=1.0),
        lambda: Adam(tau=0.0),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match=r"rate|epochs|momentum|beta|tau"):
        make()
