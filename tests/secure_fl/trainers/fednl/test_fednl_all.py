"""The FedNL that has all of it: against the single ones, and its formulas in dense NumPy."""

import numpy as np
import pytest

from secure_fl.federation import (
    Federation,
    ScriptedDropOuts,
    SecureAggregation,
    Stage,
)
from secure_fl.trainers.fednl import (
    Identity,
    LogisticRidge,
    RankR,
    SharedRandK,
    TopK,
    fednl_all,
    fednl_ls,
    fednl_pp,
    mean_value,
    optimum,
)
from secure_fl.trainers.fednl.problem import local_problem
from tests.secure_fl.trainers.fednl.problems import random_clients

OBJECTIVE = LogisticRidge(0.05)
D, N = 8, 5


def federation(**options):
    return Federation(random_clients(N, 30, D), **options)


@pytest.mark.parametrize("tau", [1, 3, 5])
def test_without_search_and_model_compressor_it_is_partial_participation(tau):
    """Its model is one step behind Algorithm 2's, whose yielded one is the next round's."""
    options = {"d": D, "tau": tau, "seed": 4, "compressor": RankR(1)}
    single = [s.weights for s in fednl_pp(federation(), OBJECTIVE, rounds=9, **options)]
    both = list(fednl_all(federation(), OBJECTIVE, rounds=10, search=False, **options))
    np.testing.assert_allclose([s.weights for s in both[1:]], single, rtol=1e-9, atol=1e-12)


def test_with_all_clients_and_exact_hessians_it_searches_as_the_line_search_does():
    """The estimate of the gradient is then the gradient, and both are Newton's method."""
    x0 = 6.0 * np.random.default_rng(0).standard_normal(D)
    options = {"d": D, "compressor": Identity(), "x0": x0}
    single = list(fednl_ls(federation(), OBJECTIVE, rounds=9, **options))
    both = list(fednl_all(federation(), OBJECTIVE, rounds=9, option=1, **options))
    # FedNL-LS takes the Hessian of the point before, so only the first steps are the same.
    np.testing.assert_allclose(both[1].weights, single[1].weights, rtol=1e-9)
    best, _ = optimum(federation(), OBJECTIVE, d=D)
    np.testing.assert_allclose(both[-1].weights, best, atol=1e-9)


def dense_functions(clients):
    """Values, gradients and Hessians of all clients' functions."""

    def of(client, x):
        A, b = client.features.toarray(), client.targets
        margins = b * (A @ x)
        p = 1 / (1 + np.exp(margins))
        value = np.mean(np.logaddexp(0, -margins)) + 0.5 * OBJECTIVE.penalty * x @ x
        gradient = -(A.T @ (b * p)) / len(b) + OBJECTIVE.penalty * x
        hessian = (A.T * (p * (1 - p))) @ A / len(b) + OBJECTIVE.penalty * np.eye(D)
        return value, gradient, hessian

    return lambda x: list(zip(*(of(client, x) for client in clients), strict=True))


def in_numpy(clients, rounds, tau, seed, entries, x0, option):
    """The module's formulas, whole matrices, one client after the other; Rank-1 Hessians."""
    functions, n = dense_functions(clients), len(clients)
    z = x0.copy()
    _, gradients, hessians = functions(z)
    H, w = [h.copy() for h in hessians], [z.copy() for _ in clients]
    g_at, error = [np.array(g) for g in gradients], [0.0] * n
    models = []
    for k in range(rounds):
        mean_H, mean_error = sum(H) / n, sum(error) / n
        corrected = sum(
            (H[i] + error[i] * np.eye(D)) @ w[i] - g_at[i] for i in range(n)
        ) / n  # fmt: skip
        q = (mean_H + mean_error * np.eye(D)) @ z - corrected
        if option == 1:
            values, vectors = np.linalg.eigh(mean_H)
            used = vectors * np.maximum(values, OBJECTIVE.penalty) @ vectors.T
        else:
            used = mean_H + mean_error * np.eye(D)
        direction = -np.linalg.solve(used, q)
        kept = np.argsort(-np.abs(direction))[:entries]
        told = np.zeros(D)
        told[kept] = direction[kept]
        if q @ told >= 0:
            told = direction
        size, now = 1.0, np.mean(functions(z)[0])
        while np.mean(functions(z + size * told)[0]) > now + 0.49 * size * (q @ told) + 1e-15:
            size *= 0.5
        z = z + size * told
        rng = np.random.default_rng([seed, k])
        for i in np.sort(rng.choice(n, tau, replace=False)):
            _, gradients, hessians = functions(z)
            away = hessians[i] - H[i]
            values, vectors = np.linalg.eigh(away)
            top = np.argmax(np.abs(values))
            H[i] = H[i] + values[top] * np.outer(vectors[:, top], vectors[:, top])
            w[i], g_at[i] = z.copy(), np.array(gradients[i])
            error[i] = np.linalg.norm(H[i] - hessians[i])
        models.append(z.copy())
    return models


@pytest.mark.parametrize("option", [1, 2])
def test_everything_at_once_is_its_formulas_in_dense_numpy(option):
    x0 = 2.0 * np.random.default_rng(3).standard_normal(D)
    clients = random_clients(N, 30, D)
    wanted = in_numpy(clients, 8, 2, 7, 5, x0, option)
    found = fednl_all(
        Federation(clients), OBJECTIVE, d=D, rounds=8, tau=2, seed=7, option=option,
        compressor=RankR(1), model_compressor=TopK(5), x0=x0,
    )  # fmt: skip
    models = [state.weights for state in found][1:]
    np.testing.assert_allclose(models, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("tau", [1, 3])
def test_no_round_increases_the_objective_and_it_converges_from_far_away(tau):
    """However stale the estimates and however little of the direction is sent."""
    fed = federation()
    x0 = 10.0 * np.random.default_rng(1).standard_normal(D)
    best, _ = optimum(fed, OBJECTIVE, d=D)
    states = fednl_all(
        fed, OBJECTIVE, d=D, rounds=300, tau=tau, compressor=RankR(1), model_compressor=TopK(4),
        x0=x0,
    )  # fmt: skip
    models = [state.weights for state in states]
    losses = np.array([mean_value(fed, OBJECTIVE, x) for x in models])
    assert np.all(np.diff(losses) <= 1e-13)
    np.testing.assert_allclose(models[-1], best, atol=1e-6)


def test_masked_sums_give_the_trajectory_of_plain_ones():
    options = {"d": D, "rounds": 6, "tau": 4, "seed": 1, "model_compressor": TopK(5)}
    secure = federation(aggregation=SecureAggregation(clip=2.0**12, bits=64))
    compressor = SharedRandK(D * (D + 1) // 2)
    wanted = fednl_all(federation(), OBJECTIVE, compressor=compressor, **options)
    found = fednl_all(secure, OBJECTIVE, **options)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.weights, b.weights, atol=1e-6)


def test_a_client_lost_after_it_moved_is_made_up_for():
    """The server asks anew, so that its means stay those of the clients."""
    drops = ScriptedDropOuts(at={(3, 0): {"c1": Stage.MASK}})
    clients = random_clients(N, 30, D)
    fed = Federation(clients, drop_outs=drops)
    best, _ = optimum(federation(), OBJECTIVE, d=D)
    options = {"d": D, "rounds": 60, "tau": 5, "compressor": RankR(1)}
    *_, last = fed.rounds(fednl_all(fed, OBJECTIVE, **options))
    held = [local_problem(c).support.dense(c.state["hessian"]) for c in clients]
    np.testing.assert_allclose(last.hessian, np.mean(held, axis=0), atol=1e-12)
    np.testing.assert_allclose(last.weights, best, atol=1e-8)


def test_a_run_that_goes_on_from_a_state_is_the_same_run():
    options = {"d": D, "tau": 2, "seed": 3, "compressor": RankR(1), "model_compressor": TopK(4)}
    whole = list(fednl_all(federation(), OBJECTIVE, rounds=8, **options))
    fed = federation()
    *_, half = fednl_all(fed, OBJECTIVE, rounds=4, **options)
    *_, last = fednl_all(fed, OBJECTIVE, rounds=8, start=half, **options)
    np.testing.assert_array_equal(last.weights, whole[-1].weights)
    assert (last.bits, last.bits_down) == (whole[-1].bits, whole[-1].bits_down)


def test_bits_are_those_of_who_takes_part_and_what_it_missed():
    """Without the search a client is sent what changed since it took part, at most the model."""
    n, rounds, tau, sent = N, 7, 2, TopK(3).vector_bits(D)
    states = list(
        fednl_all(
            federation(), OBJECTIVE, d=D, rounds=rounds, tau=tau, search=False,
            compressor=TopK(4), model_compressor=TopK(3),
        )
    )  # fmt: skip
    up = TopK(4).matrix_bits(D) + 64 * (D + 1)
    assert states[-1].bits - states[0].bits == pytest.approx(rounds * tau / n * up)
    missed, down = np.zeros(n), 0.0
    for k in range(rounds):
        missed += sent
        chosen = np.random.default_rng([0, k]).choice(n, tau, replace=False)
        down += np.minimum(missed[chosen], 64 * D).sum() / n
        missed[chosen] = 0
    # A direction that the compressor turned upwards would be sent whole; here none is.
    assert states[-1].bits_down == pytest.approx(down)


@pytest.mark.parametrize(
    "wrong", [{"tau": 0}, {"tau": 6}, {"option": 3}, {"model_rate": 0.0}, {"c": 0.7}]
)
def test_what_is_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match="found"):
        list(fednl_all(federation(), OBJECTIVE, d=D, rounds=1, **wrong))
