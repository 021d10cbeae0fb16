import numpy as np
import pytest

from secure_fl.federation import (
    Federation,
    PackedCodes,
    PrivacyError,
    SecureAggregation,
    SparseArray,
    wire,
)
from secure_fl.trainers.fednl import (
    Compressor,
    Dithering,
    LogisticRidge,
    Natural,
    RandK,
    RankR,
    TopK,
    adiana,
    diana,
    gradient_descent,
    gradient_descent_ls,
    mean_slope,
    mean_value,
    optimum,
    shifted_local_gd,
    smoothness,
)
from tests.secure_fl.trainers.fednl.problems import random_clients

OBJECTIVE = LogisticRidge(0.1)
D = 8


@pytest.mark.parametrize(
    ("trainer", "rounds"),
    [
        (gradient_descent, 150),
        (gradient_descent_ls, 100),
        (diana, 400),
        pytest.param(adiana, 1500, marks=pytest.mark.slow),
        (shifted_local_gd, 200),
    ],
)
def test_every_peer_reaches_the_optimum(trainer: object, rounds: int) -> None:
    fed = Federation(random_clients(4, 30, D))
    constants = smoothness(fed, OBJECTIVE, d=D)
    _, value = optimum(fed, OBJECTIVE, d=D)
    *_, last = trainer(fed, OBJECTIVE, constants, d=D, rounds=rounds)  # type: ignore[operator]
    assert mean_value(fed, OBJECTIVE, last.weights) - value < 1e-10
    assert last.round == rounds


def test_the_constants_bound_the_change_of_gradients_and_are_attained_nearby() -> None:
    """L is the largest eigenvalue of the Hessian at 0, where every curvature is 1/4."""
    fed = Federation(random_clients(4, 30, D))
    L = smoothness(fed, OBJECTIVE, d=D)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.standard_normal((2, D))
        change = mean_slope(fed, OBJECTIVE, x)[1] - mean_slope(fed, OBJECTIVE, y)[1]
        assert np.linalg.norm(change) <= L.mean * np.linalg.norm(x - y)
    rows = [(c.features.toarray(), len(c)) for c in random_clients(4, 30, D)]
    at_0 = np.mean([A.T @ A / (4 * m) for A, m in rows], axis=0)
    assert L.mean == pytest.approx(np.linalg.norm(at_0, 2) + 0.1)
    assert L.largest >= L.mean


def test_the_largest_constant_is_not_gathered_behind_secure_aggregation() -> None:
    fed = Federation(random_clients(4, 30, D), aggregation=SecureAggregation(clip=8.0))
    with pytest.raises(PrivacyError):
        smoothness(fed, OBJECTIVE, d=D)


@pytest.mark.parametrize("compressor", [TopK(2), RankR(1)], ids=str)
def test_diana_refuses_compressors_that_are_biased_or_for_matrices(compressor: object) -> None:
    fed = Federation(random_clients(2, 10, D))
    constants = smoothness(fed, OBJECTIVE, d=D)
    with pytest.raises((ValueError, NotImplementedError)):
        next(diana(fed, OBJECTIVE, constants, d=D, rounds=1, compressor=compressor))  # type: ignore[arg-type]


def test_diana_takes_the_step_of_its_theorem() -> None:
    """Mishchenko et al. 2019: min(alpha/(2 mu), 2/((L + mu)(1 + 6 omega/n)))."""
    fed = Federation(random_clients(4, 30, D))
    constants = smoothness(fed, OBJECTIVE, d=D)
    compressor = RandK(2)  # omega = 3
    first, second = diana(fed, OBJECTIVE, constants, d=D, rounds=1, compressor=compressor)
    alpha, mu = 1 / 4, OBJECTIVE.penalty
    gamma = min(alpha / (2 * mu), 2 / ((constants.largest + mu) * (1 + 6 * 3 / 4)))
    # From shifts of 0 the server's shift becomes alpha times the mean of what was sent.
    assert np.allclose(first.weights - second.weights, gamma * second.shift / alpha)


def test_adiana_takes_the_steps_of_its_theorem() -> None:
    """Li et al. 2020, theorem 5, worked by hand for omega = 3, n = 4."""
    fed = Federation(random_clients(4, 30, D))
    constants = smoothness(fed, OBJECTIVE, d=D)
    _, second = adiana(fed, OBJECTIVE, constants, d=D, rounds=1, compressor=RandK(2))
    p = max(1.0, (4 / (32 * 3)) ** 0.5 - 1) / (2 * 4)
    eta = min(1 / (2 * constants.largest), 4 / (64 * 3 * (2 * p * 4 + 1) ** 2 * constants.largest))
    theta = min(0.25, (eta * OBJECTIVE.penalty / p) ** 0.5)
    gamma = eta / (2 * (theta + eta * OBJECTIVE.penalty))
    # From x^0 = 0 every point is 0, so that z^1 = gamma/eta (y^1 - x^0).
    assert np.allclose(second.fast, gamma / eta * second.weights)
    assert np.linalg.norm(second.weights) > 0


@pytest.mark.parametrize(
    ("compressor", "message"),
    [
        (Dithering(3), PackedCodes.of(np.zeros(D), 3, 0.0)),
        (Natural(), PackedCodes.of(np.zeros(D), 12, 0.0)),
        (RandK(2), SparseArray(np.arange(2), np.zeros(2), D)),
        (RandK(D), np.zeros(D)),
    ],
    ids=str,
)
def test_compressed_gradients_travel_as_their_messages(
    compressor: Compressor, message: object
) -> None:
    """DIANA sends one a round and ADIANA two; masked sums, which take no codes, get floats."""
    for trainer, count in ((diana, 1), (adiana, 2)):
        fed = Federation(random_clients(4, 30, D))
        constants = smoothness(fed, OBJECTIVE, d=D)
        before = fed.meter.total("c0").bytes_up
        *_, plain = trainer(fed, OBJECTIVE, constants, d=D, rounds=5, compressor=compressor)
        sent = fed.meter.total("c0").bytes_up - before
        assert sent == 5 * wire.measure((message,) * count)[0]
        masked = Federation(random_clients(4, 30, D), aggregation=SecureAggregation(clip=2.0**12))
        *_, same = trainer(masked, OBJECTIVE, constants, d=D, rounds=5, compressor=compressor)
        assert same.bits == plain.bits
        assert np.linalg.norm(same.weights - plain.weights) < 10 * np.linalg.norm(plain.weights)
