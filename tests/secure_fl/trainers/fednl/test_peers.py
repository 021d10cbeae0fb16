"""DORE, Artemis, SHED and FedNS against their formulas, on dense matrices and in plain loops."""

import importlib

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from secure_fl.federation import Federation, PrivacyError, SecureAggregation
from secure_fl.trainers.fednl import (
    Identity,
    LogisticRidge,
    SharedRandK,
    TopK,
    artemis,
    dore,
    fedns,
    shed,
    smoothness,
)
from secure_fl.trainers.fednl.dore import dore_sizes
from secure_fl.trainers.fednl.fedns import hadamard, sketched
from secure_fl.trainers.fednl.shed import renewals
from tests.secure_fl.trainers.fednl.problems import random_clients

N, M, D, PENALTY = 4, 15, 6, 0.05
OBJECTIVE = LogisticRidge(PENALTY)
RNG = np.random.default_rng(0)
"""Of places that follow from a shared seed, which make no use of it."""


def made():
    return random_clients(N, M, D, seed=3)


class Dense:
    """A client's logistic loss by its formulas."""

    def __init__(self, client):
        self.A, self.b = client.features.toarray(), client.targets

    def loss(self, x):
        return np.mean(np.logaddexp(0, -self.b * (self.A @ x))) + PENALTY / 2 * x @ x

    def gradient(self, x):
        pull = -self.b * expit(-self.b * (self.A @ x))
        return self.A.T @ pull / M + PENALTY * x

    def hessian(self, x):
        p = expit(self.A @ x)
        return (self.A.T * (p * (1 - p))) @ self.A / M + PENALTY * np.eye(D)


def dense():
    return [Dense(client) for client in made()]


def constants():
    return smoothness(Federation(made()), OBJECTIVE, d=D)


def test_dore_is_its_algorithm_with_any_compressor():
    up, down, rounds = SharedRandK(3, 7), SharedRandK(2, 8), 9
    own, n = dense(), N
    sizes = dore_sizes(D / 3 - 1, D / 2 - 1, n, constants().largest, PENALTY)
    x, h, e = np.zeros(D), np.zeros(D), np.zeros(D)
    shifts = [np.zeros(D) for _ in own]
    for k in range(rounds):
        sent = [up.vector(o.gradient(x) - s, RNG, k) for o, s in zip(own, shifts, strict=True)]
        shifts = [s + sizes.alpha * c for s, c in zip(shifts, sent, strict=True)]
        estimate = h + np.mean(sent, axis=0)
        h = h + sizes.alpha * np.mean(sent, axis=0)
        q = (x - sizes.gamma * estimate) - x + sizes.eta * e
        packed = down.vector(q, RNG, k)
        e = q - packed
        x = x + sizes.beta * packed
    fed = Federation(made())
    states = dore(fed, OBJECTIVE, constants(), d=D, rounds=rounds, compressor=up, down=down)
    *_, state = fed.rounds(states)
    assert np.allclose(state.weights, x, atol=1e-12)
    assert np.allclose(state.left_out, e, atol=1e-12)
    assert state.bits == rounds * up.vector_bits(D)
    assert state.bits_down == rounds * down.vector_bits(D)


def test_artemis_is_its_algorithm_with_some_clients_a_round():
    up, down, rounds, tau, seed = SharedRandK(3, 7), SharedRandK(2, 8), 9, 2, 4
    own = dense()
    omega, omega_down = D / 3 - 1, D / 2 - 1
    alpha = 1 / (2 * (omega + 1))
    gamma = 1 / (constants().largest * (omega_down + 1) * (1 + 8 * omega / tau))
    x, memory, memories = np.zeros(D), np.zeros(D), [np.zeros(D) for _ in own]
    for k in range(rounds):
        chosen = np.sort(np.random.default_rng([seed, k]).permutation(N)[:tau])
        sent = {i: up.vector(own[i].gradient(x) - memories[i], RNG, k) for i in chosen}
        gradient = memory + sum(sent.values()) / tau
        for i, c in sent.items():
            memories[i] = memories[i] + alpha * c
        memory = np.mean(memories, axis=0)
        x = x - gamma * down.vector(gradient, RNG, k)
    fed = Federation(made())
    states = artemis(
        fed,
        OBJECTIVE,
        constants(),
        d=D,
        rounds=rounds,
        tau=tau,
        compressor=up,
        down=down,
        seed=seed,
    )
    *_, state = fed.rounds(states)
    assert np.allclose(state.weights, x, atol=1e-12)
    assert np.allclose(state.memory, memory, atol=1e-12)
    assert state.bits == rounds * up.vector_bits(D) * tau / N


@pytest.mark.parametrize("trainer", [dore, artemis])
def test_dithered_first_order_peers_come_to_the_minimum(trainer):
    fed = Federation(made(), seed=1)
    *_, state = fed.rounds(trainer(fed, OBJECTIVE, constants(), d=D, rounds=300))
    assert np.abs(np.mean([o.gradient(state.weights) for o in dense()], axis=0)).max() < 1e-5


def test_without_compression_both_are_gradient_descent():
    x, L = np.zeros(D), constants().largest
    steps = {dore: 2 / (PENALTY + L), artemis: 1 / L}
    for trainer, size in steps.items():
        fed = Federation(made())
        options = {"compressor": Identity(), "down": Identity()}
        *_, state = fed.rounds(trainer(fed, OBJECTIVE, constants(), d=D, rounds=5, **options))
        x = np.zeros(D)
        for _ in range(5):
            x = x - size * np.mean([o.gradient(x) for o in dense()], axis=0)
        assert np.allclose(state.weights, x, atol=1e-12)


def test_shed_is_its_algorithm_between_renewals_and_at_them():
    rounds, period = 8, 3
    own, x = dense(), np.zeros(D)
    for k in range(rounds):
        if k % period == 0:
            pairs = [np.linalg.eigh(o.hessian(x)) for o in own]
            q = 0
        q = min(q + 2, D)
        H = np.zeros((D, D))
        for values, vectors in pairs:
            values, vectors = values[::-1], vectors[:, ::-1]
            rho = values[min(q, D - 1)]
            H += (vectors[:, :q] * (values[:q] - rho)) @ vectors[:, :q].T + rho * np.eye(D)
        gradient = np.mean([o.gradient(x) for o in own], axis=0)
        p, size = -np.linalg.solve(H / N, gradient), 1.0
        while np.mean([o.loss(x + size * p) for o in own]) > np.mean(
            [o.loss(x) for o in own]
        ) + 0.49 * size * (gradient @ p):
            size /= 2
        x = x + size * p
    fed = Federation(made())
    *_, state = fed.rounds(shed(fed, OBJECTIVE, d=D, rounds=rounds, pairs=2, period=period))
    assert np.allclose(state.weights, x, atol=1e-10)
    assert state.renewed == 6


def test_shed_with_all_pairs_is_newtons_method_and_renews_by_fibonacci():
    """The gaps 1, 1, 2, 3, 5, 8 end at rounds 1, 2, 4, 7, 12 and 20."""
    assert renewals(13) == {0, 1, 2, 4, 7, 12, 20}
    fed, own = Federation(made()), dense()
    *_, state = fed.rounds(shed(fed, OBJECTIVE, d=D, rounds=6, pairs=D, period=1))
    assert np.abs(np.mean([o.gradient(state.weights) for o in own], axis=0)).max() < 1e-12


def test_shed_asks_for_single_clients_pairs_and_so_refuses_masked_sums():
    fed = Federation(made(), aggregation=SecureAggregation())
    with pytest.raises(PrivacyError, match="single clients"):
        list(shed(fed, OBJECTIVE, d=D, rounds=1))


@pytest.mark.parametrize("secure", [False, True])
def test_fedns_with_a_sketch_of_all_records_is_newtons_method(secure):
    own, x = dense(), np.zeros(D)
    for _ in range(4):
        H = np.mean([o.hessian(x) for o in own], axis=0)
        x = x - 0.9 * np.linalg.solve(H, np.mean([o.gradient(x) for o in own], axis=0))
    fed = Federation(made(), aggregation=SecureAggregation(clip=100.0) if secure else None)
    *_, state = fed.rounds(fedns(fed, OBJECTIVE, d=D, rounds=4, k=M, size=0.9))
    assert np.allclose(state.weights, x, atol=1e-4 if secure else 1e-10)


@pytest.mark.parametrize("kind", ["srht", "gaussian"])
@pytest.mark.parametrize("k", [2, 12])
def test_fedns_steps_by_the_mean_of_the_clients_sketched_hessians(kind, k, monkeypatch):
    """Few rows travel as they are, many as the triangle; either way it is the same sum."""
    module = importlib.import_module("secure_fl.trainers.fednl.fedns")
    seen = []

    def kept(rows, *more):
        found = sketched(rows, *more)
        seen.append((rows, found))
        return found

    monkeypatch.setattr(module, "sketched", kept)
    fed = Federation(made(), seed=6)
    *_, state = fed.rounds(fedns(fed, OBJECTIVE, d=D, rounds=1, k=k, kind=kind))
    H, gradient = PENALTY * np.eye(D), np.zeros(D)
    for own, (rows, found) in zip(dense(), seen, strict=True):
        assert found.shape == (k, D)
        assert np.allclose(rows.T @ rows + PENALTY * np.eye(D), own.hessian(np.zeros(D)))
        H, gradient = H + found.T @ found / N, gradient + own.gradient(np.zeros(D)) / N
    assert np.allclose(state.weights, -np.linalg.solve(H, gradient), atol=1e-10)


@pytest.mark.parametrize("kind", ["srht", "gaussian"])
def test_sketches_keep_second_moments_on_average(kind):
    rng = np.random.default_rng(0)
    B = rng.normal(size=(11, 3))
    found = np.array([(s := sketched(B, 4, kind, rng)).T @ s for _ in range(4000)])
    error = found.std(axis=0) / len(found) ** 0.5
    assert (np.abs(found.mean(axis=0) - B.T @ B) < 5 * error + 1e-12).all()


@settings(max_examples=20)
@given(st.integers(0, 6), st.integers(1, 4), st.integers(0, 99))
def test_the_fast_transform_is_the_product_with_hadamards_matrix(power, columns, seed):
    X = np.random.default_rng(seed).normal(size=(2**power, columns))
    expected = scipy.linalg.hadamard(2**power) @ X / 2 ** (power / 2)
    assert np.allclose(hadamard(X), expected)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda fed: fedns(fed, OBJECTIVE, d=D, rounds=1, k=0), "k 0"),
        (lambda fed: fedns(fed, LogisticRidge(0.0), d=D, rounds=1), "penalty"),
        (lambda fed: shed(fed, OBJECTIVE, d=D, rounds=1, pairs=0), "0 pairs"),
        (lambda fed: shed(fed, LogisticRidge(0.0), d=D, rounds=1), "penalty"),
        (lambda fed: artemis(fed, OBJECTIVE, constants(), d=D, rounds=1, tau=9), "tau 9"),
        (
            lambda fed: dore(fed, OBJECTIVE, constants(), d=D, rounds=1, compressor=TopK(2)),
            "unbiased",
        ),
    ],
)
def test_what_is_out_of_range_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        next(call(Federation(made())))
