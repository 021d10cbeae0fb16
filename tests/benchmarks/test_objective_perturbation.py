"""Objective perturbation against its density, its stationarity, and the curve of a Gaussian."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.stats import norm

from benchmarks._data import Split
from benchmarks._objective_perturbation import (
    _corners,
    jacobian_cost,
    objective_perturbation,
    perturbation_delta,
    perturbation_noise,
    perturbed_minimum,
)
from secure_fl.privacy.promises import Neighbours


def records(n: int = 60, d: int = 4, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, d)), rng.integers(0, classes, n)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def log_density(
    grid: np.ndarray, X: np.ndarray, y: np.ndarray, ridge: float, sigma: float
) -> np.ndarray:
    """Of the exact minimum at weights of one feature, shape (points, C): a change of variables."""
    points, classes = grid.shape
    b, hessian = -ridge * grid, np.tile(ridge * np.eye(classes), (points, 1, 1))
    for x, label in zip(X, y, strict=True):
        odds = np.exp(x * grid - (x * grid).max(axis=1, keepdims=True))
        p = odds / odds.sum(axis=1, keepdims=True)
        b = b - x * (p - np.eye(classes)[label])
        hessian += x**2 * (np.eye(classes) * p[:, None] - p[:, :, None] * p[:, None])
    # Normalised by the factor of the Gaussian: the two data sets share it.
    found: np.ndarray = norm.logpdf(b, scale=sigma).sum(axis=1) + np.linalg.slogdet(hessian)[1]
    return found


@pytest.mark.parametrize(
    ("neighbours", "removed", "replaced"),
    [
        ("add-remove", ([1.0], [0]), ([], [])),
        ("add-remove", ([], []), ([1.0], [0])),
        ("add-remove", ([1.0, -1.0, -0.8], [0, 1, 0]), ([1.0, -1.0], [0, 1])),
        ("replace", ([1.0], [0]), ([-1.0], [0])),
        ("replace", ([1.0, 0.5], [0, 1]), ([1.0, 0.5], [1, 1])),
    ],
)
@pytest.mark.parametrize("classes", [2, 3])
def test_no_pair_of_neighbours_is_further_apart_than_delta(
    neighbours: Neighbours,
    removed: tuple[list[float], list[int]],
    replaced: tuple[list[float], list[int]],
    classes: int,
) -> None:
    """The hockey-stick divergence of the weights' densities, integrated, for one feature."""
    ridge, sigma, epsilon = 1.0, 2.5, 1.5
    axis = np.linspace(-14, 14, 241 if classes == 2 else 81)
    grid = np.stack(np.meshgrid(*[axis] * classes), axis=-1).reshape(-1, classes)
    cell = (axis[1] - axis[0]) ** classes
    first, second = (
        log_density(grid, np.array(X), np.array(y, dtype=int), ridge, sigma)
        for X, y in (removed, replaced)
    )
    assert abs(np.exp(first).sum() * cell - 1) < 0.01
    divergence = np.maximum(np.exp(first) - math.exp(epsilon) * np.exp(second), 0).sum() * cell
    stated = perturbation_delta(epsilon, sigma, ridge, classes, neighbours)
    assert 0 <= divergence <= stated < 1


def test_a_neighbour_that_a_smaller_noise_does_not_hide() -> None:
    """The promise is not kept with a third of the noise, so the noise is not far too large."""
    ridge, epsilon, delta = 3.0, 1.0, 1e-3
    sigma = perturbation_noise(epsilon, delta, ridge, 2, "replace")
    axis = np.linspace(-12, 12, 601)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

    def divergence(sigma: float) -> float:
        both = (log_density(grid, np.ones(1), np.array([label]), ridge, sigma) for label in (0, 1))
        first, second = (np.exp(each) for each in both)
        cell = (axis[1] - axis[0]) ** 2
        return float(np.maximum(first - math.exp(epsilon) * second, 0).sum() * cell)

    assert divergence(sigma) <= delta
    assert divergence(sigma / 3) > delta


def test_the_noise_is_that_of_the_gaussian_of_its_corners() -> None:
    """Two classes, one record added: one corner; delta by Balle and Wang's theorem 8."""
    epsilon, delta, ridge = 2.0, 1e-5, 4.0
    sigma = perturbation_noise(epsilon, delta, ridge, 2, "add-remove")
    left = epsilon - math.log(1 + 1 / (2 * ridge))
    mu = math.sqrt(2) * math.sqrt(1.01) / sigma
    found = norm.cdf(mu / 2 - left / mu) - math.exp(left) * norm.cdf(-mu / 2 - left / mu)
    assert 0.999 * delta < found <= delta


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_no_records_move_the_linear_term_further_than_the_stated_corners(classes: int) -> None:
    """All corners for random and extreme records of norm at most 1, farthest first."""
    rng = np.random.default_rng(4)
    corners = sorted(_corners(classes, "replace"), reverse=True)
    stated = np.concatenate([np.full(count, length) for length, count in corners])
    basis = np.eye(classes)
    for _ in range(200):
        x, other = (each / np.linalg.norm(each) for each in rng.normal(size=(2, 3)))
        kinds = [(x, other), (x, x), (x, -x), (x, rng.uniform(-1, 1) * x)]
        x, other = kinds[rng.integers(4)]
        y, z = rng.integers(0, classes, 2)
        found = np.sort(
            [
                np.linalg.norm(
                    np.outer(basis[j] - basis[y], x) - np.outer(basis[k] - basis[z], other)
                )
                for j in range(classes)
                for k in range(classes)
            ]
        )[::-1]
        # The last is that of p = e_y and p' = e_z, which moves nothing.
        assert np.all(found[:-1] <= stated + 1e-9)
        assert found[-1] == 0


@pytest.mark.parametrize("classes", [2, 7])
def test_the_jacobian_costs_most_where_a_record_may_be_of_any_class(classes: int) -> None:
    """Of random and even probabilities: the exact log determinant over a Hessian of ridge * I."""
    rng = np.random.default_rng(1)
    bound = jacobian_cost(0.3, classes)
    for p in (*rng.dirichlet(np.ones(classes), 50), np.full(classes, 1 / classes)):
        added = np.diag(p) - np.outer(p, p)
        exact = np.linalg.slogdet(np.eye(classes) + added / 0.3)[1]
        assert exact <= bound + 1e-12
    assert math.isclose(exact, bound)


def test_the_minimum_is_stationary_by_another_librarys_gradient() -> None:
    X, y = records()
    b = np.random.default_rng(2).normal(size=(4, 3))
    theta = torch.tensor(perturbed_minimum(X, y, b, 0.7, 1e-4), requires_grad=True)
    loss = torch.nn.functional.cross_entropy(
        torch.tensor(X) @ theta, torch.tensor(y), reduction="sum"
    )
    whole = loss + 0.35 * theta.square().sum() + (torch.tensor(b) * theta).sum()
    (gradient,) = torch.autograd.grad(whole, theta)
    assert float(gradient.norm()) <= 1e-4


@pytest.mark.parametrize("neighbours", get_args(Neighbours))
def test_weights_classify_where_the_noise_is_small_and_a_ridge_that_costs_all_is_refused(
    neighbours: Neighbours,
) -> None:
    X, y = records(600)
    y = np.argmax(X[:, :3], axis=1)
    data = Split(X.astype(np.float32), y, X.astype(np.float32), y, ("a", "b", "c"), "made up")
    rng = np.random.default_rng(3)
    theta = objective_perturbation(data, 20.0, 1e-3, 1.0, neighbours, rng)
    assert np.mean(np.argmax(X @ theta, axis=1) == y) > 0.85
    with pytest.raises(ValueError, match=r"ridge 0.1 is too small for epsilon 1; take a larger"):
        objective_perturbation(data, 1.0, 1e-3, 0.1, neighbours, rng)
