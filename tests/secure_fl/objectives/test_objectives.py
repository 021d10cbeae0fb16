"""Objectives against automatic differentiation, high precision and each other."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from secure_fl.errors import FeatureError, LabelError
from secure_fl.objectives import Objective, SoftmaxLoss, SquaredLoss

N, D, C = 23, 5, 4
OBJECTIVES = [
    SquaredLoss(0.3, C),
    SquaredLoss(0.0, 2),
    SoftmaxLoss(0.1, C),
    SoftmaxLoss(0.0, 2),
]


def case(objective: Objective, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Weights, features, codes and a direction; a class without records where C > 2."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    y = rng.integers(0, max(2, objective.classes - 1), N)
    weights = rng.standard_normal(objective.shape(D))
    return weights, X, y, rng.standard_normal(weights.shape)


def torch_value(objective: Objective, X: Any, y: Any) -> Any:
    """The same objective written with torch's own losses."""
    import torch
    from torch.nn import functional

    features, codes = torch.tensor(X), torch.tensor(y)

    def value(weights: Any) -> Any:
        margins = features @ weights
        if isinstance(objective, SquaredLoss):
            hot = functional.one_hot(codes, objective.classes).to(torch.float64)
            loss = 0.5 * (margins - hot).square().sum() / len(codes)
        else:
            loss = functional.cross_entropy(margins, codes)
        return loss + 0.5 * objective.ridge * weights.square().sum()

    return value


def full_hessian(objective: Objective, weights: Any, X: Any, y: Any) -> Any:
    """The Hessian as a matrix over all weights in C order."""
    block = objective.hessian(weights, X, y)
    return np.kron(block, np.eye(weights.size // len(block)))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
class TestDerivatives:
    def test_value_and_gradient_are_those_of_automatic_differentiation(self, objective):
        import torch

        weights, X, y, _ = case(objective)
        value = torch_value(objective, X, y)
        at = torch.tensor(weights)
        assert objective.value(weights, X, y) == pytest.approx(float(value(at)), rel=1e-13)
        expected = torch.func.grad(value)(at).numpy()
        np.testing.assert_allclose(objective.gradient(weights, X, y), expected, atol=1e-14)
        both = objective.value_and_gradient(weights, X, y)
        assert both[0] == objective.value(weights, X, y)
        np.testing.assert_array_equal(both[1], objective.gradient(weights, X, y))

    def test_hessian_and_its_product_are_those_of_automatic_differentiation(self, objective):
        import torch

        weights, X, y, direction = case(objective)
        value, at = torch_value(objective, X, y), torch.tensor(weights)
        expected = torch.func.hessian(value)(at).numpy().reshape(weights.size, weights.size)
        np.testing.assert_allclose(
            full_hessian(objective, weights, X, y), expected, rtol=1e-12, atol=1e-14
        )
        tangent = torch.func.jvp(torch.func.grad(value), (at,), (torch.tensor(direction),))[1]
        np.testing.assert_allclose(
            objective.hessian_product(weights, X, y, direction), tangent.numpy(), atol=1e-13
        )
        np.testing.assert_allclose(
            objective.hessian_diagonal(weights, X, y).ravel(), np.diag(expected), rtol=1e-12
        )

    def test_fisher_diagonal_is_the_mean_squared_gradient_of_single_records(self, objective):
        """fednewton.txt, eq. (12)."""
        weights, X, y, _ = case(objective)
        single = [
            objective.gradient(weights, X[i : i + 1], y[i : i + 1]) - objective.ridge * weights
            for i in range(N)
        ]
        expected = np.mean(np.square(single), axis=0) + objective.ridge
        np.testing.assert_allclose(objective.fisher_diagonal(weights, X, y), expected, rtol=1e-12)

    def test_root_squares_to_the_hessian(self, objective):
        weights, X, y, direction = case(objective)
        root = objective.root(weights, X)
        units = np.eye(weights.size).reshape(-1, *weights.shape)
        R = np.stack([root.forward(unit).ravel() for unit in units], axis=1)
        rebuilt = R.T @ R / N + objective.ridge * np.eye(weights.size)
        expected = full_hessian(objective, weights, X, y)
        np.testing.assert_allclose(rebuilt, expected, rtol=1e-12, atol=1e-15)
        gram = np.kron(root.gram(), np.eye(len(R) // root.rows))
        np.testing.assert_allclose(gram, R @ R.T, rtol=1e-12, atol=1e-14)
        back = root.back(root.forward(direction)).ravel()
        np.testing.assert_allclose(back, R.T @ (R @ direction.ravel()), rtol=1e-12, atol=1e-14)

    def test_sparse_features_give_what_dense_ones_give(self, objective):
        weights, X, y, direction = case(objective)
        X = np.where(np.abs(X) > 0.7, X, 0.0)
        S = csr_array(X)
        dense, sparse = (
            [
                objective.value(weights, each, y),
                objective.gradient(weights, each, y),
                objective.hessian(weights, each, y),
                objective.hessian_product(weights, each, y, direction),
                objective.hessian_diagonal(weights, each, y),
                objective.fisher_diagonal(weights, each, y),
                objective.predict(weights, each),
            ]
            for each in (X, S)
        )
        for one, other in zip(dense, sparse, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-14)

    def test_the_mean_over_clients_weighted_by_records_is_the_pooled_objective(self, objective):
        """fednewton.txt, proposition 1."""
        weights, X, y, _ = case(objective)
        parts = [slice(0, 3), slice(3, 10), slice(10, N)]
        for method in ("value", "gradient", "hessian"):
            shares = [
                (len(y[p]) / N, getattr(objective, method)(weights, X[p], y[p])) for p in parts
            ]
            pooled = getattr(objective, method)(weights, X, y)
            np.testing.assert_allclose(sum(p * v for p, v in shares), pooled, atol=1e-13)

    @pytest.mark.parametrize("size", [1e4, -1e4])
    def test_margins_of_ten_thousand_overflow_nothing(self, objective, size):
        weights, X, y, direction = case(objective)
        weights = size * weights / np.abs(X @ weights).max()
        with np.errstate(all="raise", under="ignore"):
            results = [
                objective.value(weights, X, y),
                objective.gradient(weights, X, y),
                objective.hessian(weights, X, y),
                objective.hessian_product(weights, X, y, direction),
                objective.hessian_diagonal(weights, X, y),
                objective.fisher_diagonal(weights, X, y),
            ]
        assert all(np.isfinite(result).all() for result in results)

    def test_bad_shapes_and_codes_are_refused_in_one_line(self, objective):
        weights, X, y, _ = case(objective)
        bad_codes = np.full(N, objective.classes)
        for arguments, error in [
            ((weights, X[:, 1:], y), FeatureError),
            ((weights, X, y[1:]), FeatureError),
            ((weights, X[:0], y[:0]), FeatureError),
            ((weights, X, bad_codes), LabelError),
            ((weights, X, y - 1), LabelError),
        ]:
            with pytest.raises(error) as caught:
                objective.gradient(*arguments)
            assert "\n" not in str(caught.value)


@given(
    margins=st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3),
    label=st.integers(0, 2),
)
@settings(max_examples=15)
def test_softmax_loss_and_slopes_keep_their_digits_at_any_margin(margins, label):
    objective = SoftmaxLoss(0.0, 3)
    X, y, w = np.ones((1, 1)), np.array([label]), np.array([margins])
    with mpmath.workdps(9000):
        terms = [mpmath.exp(mpmath.mpf(m)) for m in margins]
        total = mpmath.fsum(terms)
        loss = mpmath.log(total) - mpmath.mpf(margins[label])
        others = mpmath.fsum(t for i, t in enumerate(terms) if i != label)
        slopes = [float((-others if i == label else t) / total) for i, t in enumerate(terms)]
    # scipy's log-probability of the likeliest class carries an absolute error of one rounding.
    assert objective.value(w, X, y) == pytest.approx(float(loss), rel=1e-12, abs=1e-15)
    np.testing.assert_allclose(objective.gradient(w, X, y)[0], slopes, rtol=1e-11, atol=1e-300)


def test_two_class_softmax_is_the_logistic_loss_of_the_difference():
    from scipy.special import expit, log_expit

    weights, X, y, _ = case(SoftmaxLoss(0.0, 2))
    margins = X @ (weights[:, 1] - weights[:, 0])
    softmax = SoftmaxLoss(0.0, 2)
    loss = -log_expit(np.where(y == 1, margins, -margins)).mean()
    assert softmax.value(weights, X, y) == pytest.approx(loss)
    np.testing.assert_array_equal(softmax.predict(weights, X), margins > 0)
    np.testing.assert_allclose(
        softmax.gradient(weights, X, y)[:, 1], X.T @ (expit(margins) - y) / N, rtol=1e-12
    )


def test_ties_go_to_the_lowest_class():
    X = np.ones((2, 1))
    assert SoftmaxLoss(0.0, 3).predict(np.zeros((1, 3)), X).tolist() == [0, 0]


@pytest.mark.parametrize("ridge", [-1e-9, math.nan, math.inf])
def test_a_ridge_out_of_range_is_refused(ridge):
    for make in (lambda r: SoftmaxLoss(r, 3), lambda r: SquaredLoss(r, 3)):
        with pytest.raises(ValueError, match="ridge"):
            make(ridge)


def test_one_class_is_refused():
    for kind in (SoftmaxLoss, SquaredLoss):
        with pytest.raises(ValueError, match="at least two"):
            kind(0.1, 1)
