"""Squared loss on real targets: the trainers of the squared loss are ridge regressions."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error, r2_score

from secure_fl.errors import FeatureError, LabelError
from secure_fl.federation import Client, Federation, SecureAggregation
from secure_fl.objectives import RegressionLoss, r_squared, rmse
from secure_fl.trainers.linear import (
    AveragingState,
    LocalTraining,
    dkrr,
    fedavg,
    fednewton,
    krr,
    similarity,
)

SIZES, WIDTH, RIDGE = (30, 50, 40), 4, 0.1


def federation(outputs=1, **options):
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(WIDTH, outputs))
    clients = []
    for i, n in enumerate(SIZES):
        X = rng.normal(size=(n, WIDTH)) + 0.2 * i
        y = X @ slopes + rng.normal(size=(n, outputs))
        clients.append(Client(f"c{i}", X, y[:, 0] if outputs == 1 else y))
    return clients, Federation(clients, **options)


def pooled(clients):
    X, y = (np.concatenate([getattr(c, name) for c in clients]) for name in ("features", "targets"))
    return X, y


def sklearn_weights(X, y):
    """Its objective is a sum of squares, ours half their mean."""
    model = Ridge(alpha=RIDGE * len(X), fit_intercept=False, solver="cholesky").fit(X, y)
    return np.asarray(model.coef_).reshape(-1, WIDTH).T


@pytest.mark.parametrize("outputs", [1, 3])
def test_pooled_newton_and_gradient_rounds_are_ridge_regression(outputs):
    clients, fed = federation(outputs)
    objective = RegressionLoss(RIDGE, outputs)
    expected = sklearn_weights(*pooled(clients))
    (exact,) = krr(fed, objective)
    assert np.allclose(exact.weights, expected, atol=1e-10)
    *_, newton = fednewton(fed, objective, rounds=8, memory=8)
    assert np.allclose(newton.weights, expected, atol=1e-8)
    start = AveragingState(objective.zeros(WIDTH))
    training = LocalTraining(0.3)
    *_, averaged = fedavg(fed, objective, start=start, rounds=300, training=training)
    assert np.allclose(averaged.weights, expected, atol=1e-8)


def test_dkrr_is_the_mean_of_the_clients_ridge_regressions_by_records():
    clients, fed = federation()
    own = [sklearn_weights(c.features, c.targets) for c in clients]
    (state,) = dkrr(fed, RegressionLoss(RIDGE))
    assert np.allclose(state.weights, np.average(own, axis=0, weights=SIZES), atol=1e-10)


def test_regression_runs_under_masked_sums():
    clients, fed = federation(aggregation=SecureAggregation(clip=100.0))
    *_, state = fednewton(fed, RegressionLoss(RIDGE), rounds=6)
    assert np.allclose(state.weights, sklearn_weights(*pooled(clients)), atol=1e-3)


def test_the_gradient_is_that_of_the_value():
    (client, *_), _ = federation(2)
    objective, rng = RegressionLoss(RIDGE, 2), np.random.default_rng(1)
    w, direction = rng.normal(size=(2, WIDTH, 2))
    X, y = client.features, client.targets
    slope = np.vdot(objective.gradient(w, X, y), direction)
    up, down = (objective.value(w + h * direction, X, y) for h in (1e-5, -1e-5))
    assert slope == pytest.approx((up - down) / 2e-5, rel=1e-7)


def test_errors_are_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    y, predicted = rng.normal(size=(2, 50))
    assert rmse(predicted, y) == pytest.approx(mean_squared_error(y, predicted) ** 0.5)
    assert r_squared(predicted, y) == pytest.approx(r2_score(y, predicted))
    assert np.isnan(r_squared(predicted, np.ones(50)))


def test_predictions_are_values():
    clients, fed = federation()
    objective = RegressionLoss(RIDGE)
    (state,) = krr(fed, objective)
    X, _ = pooled(clients)
    assert np.array_equal(objective.predict(state.weights, X), (X @ state.weights)[:, 0])
    many = RegressionLoss(RIDGE, 2)
    assert many.predict(np.ones((WIDTH, 2)), X).shape == (len(X), 2)


@pytest.mark.parametrize(
    ("X", "y", "error", "part"),
    [
        (np.ones((3, WIDTH)), np.array([0.0, np.nan, 1.0]), LabelError, "not finite"),
        (np.ones((3, WIDTH)), np.ones((3, 2)), LabelError, "shape"),
        (np.ones((0, WIDTH)), np.ones(0), FeatureError, "at least one record"),
        (np.ones((3, WIDTH + 1)), np.ones(3), FeatureError, "weights have the shape"),
    ],
)
def test_targets_that_are_none_are_refused(X, y, error, part):
    with pytest.raises(error, match=part):
        RegressionLoss(RIDGE).gradient(np.zeros((WIDTH, 1)), X, y)


def test_a_regression_has_an_output():
    with pytest.raises(ValueError, match="at least one"):
        RegressionLoss(RIDGE, 0)


def test_similarity_by_hand():
    """Diagonal matrices: P, R and Delta are the largest ratios of their entries."""
    sampled = [np.diag([1.0, 3.0]), np.diag([2.0, 2.0])]
    whole = [np.diag([2.0, 3.0]), np.diag([4.0, 1.0])]
    found = similarity(sampled, whole, [0.5, 0.5], 1.0)
    assert found.shift == pytest.approx((1.0, 1.0))
    assert found.inverse == pytest.approx((3 / 2, 5 / 3))
    assert found.sampling == pytest.approx((1 / 3, 1 / 2))
    terms = (3 / 2 * (2 / 3 + 1) * 2, 5 / 3 * (1 + 1) * 2)
    assert found.upsilon == pytest.approx(sum(terms) / 2)
    with pytest.raises(ValueError, match="ridge"):
        similarity(sampled, whole, [0.5, 0.5], 0.0)
