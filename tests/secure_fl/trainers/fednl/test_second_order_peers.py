"""DINGO and NL1: against dense linear algebra, through masked sums, and their guarantees."""

from itertools import pairwise

import numpy as np
import pytest

from secure_fl.federation import Client, Federation, SecureAggregation
from secure_fl.trainers.fednl import (
    LogisticRidge,
    dingo,
    mean_slope,
    newton,
    newton_learn,
    optimum,
)
from secure_fl.trainers.fednl.dingo import corrected, directions
from secure_fl.trainers.fednl.triangles import unpack
from tests.secure_fl.trainers.fednl.problems import random_clients

OBJECTIVE = LogisticRidge(0.05)
D = 8


def hessian(client: Client, x: np.ndarray) -> np.ndarray:
    A = client.features.toarray()
    p = 1 / (1 + np.exp(-(A @ x)))
    return A.T * (p * (1 - p) / len(A)) @ A + OBJECTIVE.penalty * np.eye(len(x))


def test_the_directions_are_the_least_squares_solutions() -> None:
    """H g, the minimal solution of H v = g, and that of the stacked system (Crane, Roosta 2019)."""
    client = random_clients(1, 30, D)[0]
    x, g = np.random.default_rng(1).standard_normal((2, D))
    H, phi = hessian(client, x), 0.3
    found = directions(client, OBJECTIVE, x, g, phi)
    stacked = np.vstack([H, phi * np.eye(D)])
    damped = np.linalg.lstsq(stacked, np.append(g, np.zeros(D)), rcond=None)[0]
    assert np.allclose(found["curved"], H @ g)
    assert np.allclose(found["inverse"], np.linalg.solve(H, g))
    assert np.allclose(found["damped"], damped)


def test_a_rank_deficient_hessian_has_its_pseudo_inverse() -> None:
    client = Client("a", np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([1.0, -1.0]))
    found = directions(client, LogisticRidge(0.0), np.zeros(2), np.array([1.0, 0.0]), 0.1)
    H = np.full((2, 2), 5 / 8)
    assert np.allclose(found["inverse"], np.linalg.pinv(H) @ [1.0, 0.0])


def test_the_corrected_direction_is_the_closest_one_that_decreases_enough() -> None:
    """Case 3 minimises |H~ p + g~| subject to <p, h> <= -theta |g|^2; KKT by a dense solve."""
    client = random_clients(1, 30, D)[0]
    x, g, h = np.random.default_rng(2).standard_normal((3, D))
    phi, theta = 0.3, 5.0
    p = -corrected(client, OBJECTIVE, x, g, h, phi, theta)
    H = hessian(client, x)
    M = H @ H + phi**2 * np.eye(D)
    kkt = np.block([[M, h[:, None]], [h[None], np.zeros((1, 1))]])
    wanted = np.linalg.solve(kkt, np.append(-H @ g, -theta * g @ g))
    assert wanted[-1] > 0  # the constraint is active
    assert np.allclose(p, wanted[:D])


@pytest.mark.parametrize("scale", [0.1, 5.0])
def test_dingo_decreases_the_gradient_norm_every_round(scale: float) -> None:
    fed = Federation(random_clients(4, 30, D))
    x0 = scale * np.random.default_rng(0).standard_normal(D)
    norms = [
        np.linalg.norm(mean_slope(fed, OBJECTIVE, s.weights)[1])
        for s in dingo(fed, OBJECTIVE, d=D, rounds=40, x0=x0)
    ]
    assert norms[-1] < 1e-6 * norms[0]
    assert all(b < a for a, b in pairwise(norms) if a > 1e-13)


def test_a_demanding_theta_forces_the_third_case_and_the_run_still_converges() -> None:
    fed = Federation(random_clients(4, 30, D))
    states = list(dingo(fed, OBJECTIVE, d=D, rounds=60, theta=2.0, phi=0.5))
    assert 3 in {s.case for s in states}
    assert np.linalg.norm(states[-1].gradient) < 1e-4 * np.linalg.norm(states[0].gradient)


def test_one_client_makes_dingo_newtons_method_on_the_gradient_norm() -> None:
    clients = random_clients(1, 60, D)
    *_, last = dingo(Federation(clients), OBJECTIVE, d=D, rounds=8)
    best, _ = optimum(Federation(clients), OBJECTIVE, d=D)
    assert np.allclose(last.weights, best, atol=1e-10)


@pytest.mark.parametrize("trainer", [dingo, newton_learn])
def test_masked_sums_give_the_plain_trajectory(trainer: object) -> None:
    secure = Federation(random_clients(4, 30, D), aggregation=SecureAggregation(clip=2.0**12))
    plain = Federation(random_clients(4, 30, D))
    for a, b in zip(
        trainer(secure, OBJECTIVE, d=D, rounds=5),  # type: ignore[operator]
        trainer(plain, OBJECTIVE, d=D, rounds=5),  # type: ignore[operator]
        strict=True,
    ):
        assert np.allclose(a.weights, b.weights, atol=1e-7)


def test_newton_learn_with_all_coefficients_is_newton_a_round_late() -> None:
    """K = m learns every coefficient at once, so that H^{k+1} is the Hessian at x^k."""
    fed = Federation(random_clients(3, 30, D))
    states = list(newton_learn(fed, OBJECTIVE, d=D, rounds=4, k=30))
    exact = list(newton(fed, OBJECTIVE, d=D, rounds=1))
    assert np.allclose(states[1].weights, exact[1].weights)
    for before, after in pairwise(states):
        wanted = np.mean([hessian(c, before.weights) for c in random_clients(3, 30, D)], axis=0)
        ridge = OBJECTIVE.penalty * np.eye(D)
        assert np.allclose(unpack(after.hessian, D) + ridge, wanted)


def test_newton_learn_converges_with_one_coefficient_a_round() -> None:
    fed = Federation(random_clients(4, 30, D))
    best, _ = optimum(fed, OBJECTIVE, d=D)
    *_, last = newton_learn(fed, OBJECTIVE, d=D, rounds=100, x0=best + 0.1)
    assert np.allclose(last.weights, best, atol=1e-10)
    assert last.bits == 64 * (D * (D + 1) / 2 + 100 * (D + D + 1))


@pytest.mark.parametrize(
    ("trainer", "options", "message"),
    [
        (dingo, {"rho": 1.0}, "rho 1.0"),
        (dingo, {"theta": 0.0}, "theta"),
        (newton_learn, {"k": 0}, "k 0"),
    ],
)
def test_options_out_of_range_are_refused(
    trainer: object, options: dict[str, object], message: str
) -> None:
    fed = Federation(random_clients(2, 10, D))
    with pytest.raises(ValueError, match=message):
        next(trainer(fed, OBJECTIVE, d=D, rounds=1, **options))  # type: ignore[operator]
