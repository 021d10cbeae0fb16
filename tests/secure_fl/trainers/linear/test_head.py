"""FedNewton, algorithm 2, and LocalNewton on smooth convex objectives."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.federation import FixedNumber
from secure_fl.objectives import SoftmaxLoss, SquaredLoss
from secure_fl.trainers.linear import (
    LBFGS,
    ConjugateGradient,
    Diagonal,
    Exact,
    LowRank,
    NewtonState,
    fednewton_head,
    localnewton,
    oneshot,
)
from tests.secure_fl.trainers.linear.federations import pool, pooled_minimum

SOLVERS = [
    Exact(1e-3),
    ConjugateGradient(1e-3, iterations=5),
    Diagonal(1e-3),
    LowRank(1e-3, rank=4),
    LBFGS(8),
]


def start_of(objective, features=6):
    return NewtonState(objective.zeros(features))


def test_an_unguarded_round_is_that_of_the_algorithm_box():
    """Eqs. (6) to (8), with the gradient and Hessians of torch.func."""
    import torch
    from torch.nn import functional

    data, ridge, damping, eta = pool(), 0.01, 0.1, 0.3
    objective = SoftmaxLoss(ridge, 3)
    weights = np.random.default_rng(1).standard_normal((6, 3))
    at = torch.tensor(weights)

    def value(w, rows):
        logits = torch.tensor(data.X[rows]) @ w
        loss = functional.cross_entropy(logits, torch.tensor(data.y[rows]))
        return loss + 0.5 * ridge * w.square().sum()

    gradient = torch.func.grad(lambda w: value(w, slice(None)))(at).numpy().ravel()
    step = np.zeros(18)
    for share, rows in zip(data.shares, data.parts, strict=True):
        hessian = torch.func.hessian(lambda w, rows=rows: value(w, rows))(at).numpy()
        damped = hessian.reshape(18, 18) + damping * np.eye(18)
        step += share * np.linalg.solve(damped, gradient)
    (state,) = fednewton_head(
        data.federation(),
        objective,
        start=NewtonState(weights),
        rounds=1,
        solver=Exact(damping),
        step_size=eta,
        safeguard=False,
    )
    np.testing.assert_allclose(state.weights, weights - eta * step.reshape(6, 3), atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("objective", [SoftmaxLoss(0.02, 3), SoftmaxLoss(0.02, 2)], ids=repr)
def test_every_solver_reaches_the_pooled_minimum(solver, objective):
    data = pool(classes=objective.classes, skew=0.7)
    fed = data.federation()
    start = start_of(objective)
    *_, last = fednewton_head(fed, objective, start=start, rounds=150, solver=solver)
    expected = pooled_minimum(objective, data)
    np.testing.assert_allclose(last.weights, expected, atol=2e-4)


@given(
    seed=st.integers(0, 10_000),
    skew=st.floats(0, 2.5),
    which=st.integers(0, 4),
    memory=st.integers(0, 3),
)
@settings(max_examples=40)
def test_no_guarded_round_increases_the_pooled_objective(seed, skew, which, memory):
    data = pool(seed, sizes=(3, 25, 9, 4), skew=skew)
    objective = SoftmaxLoss(1e-4, 3)
    start = NewtonState(3.0 * np.random.default_rng(seed).standard_normal((6, 3)))
    states = [
        start,
        *fednewton_head(data.federation(), objective, start=start, rounds=8, solver=SOLVERS[which]),
    ]
    values = [objective.value(state.weights, data.X, data.y) for state in states]
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(values))
    assert values[-1] < values[0]


def test_the_guarded_step_is_shortened_where_the_whole_one_overshoots():
    """Few records a client and no ridge to speak of: local Hessians miss directions."""
    data = pool(sizes=(3, 3, 3, 3, 3), skew=1.5)
    objective = SoftmaxLoss(1e-4, 3)
    options = {"start": start_of(objective), "rounds": 5, "solver": Exact(1e-4)}

    def values(**more):
        states = fednewton_head(data.federation(), objective, **options, **more)
        return [objective.value(state.weights, data.X, data.y) for state in states]

    printed, guarded = values(safeguard=False), values()
    assert max(printed) > objective.value(objective.zeros(6), data.X, data.y)
    assert guarded[-1] < min(printed[-1], guarded[0])


@pytest.mark.parametrize("solver", [Exact(1e-3), LBFGS(5)], ids=["exact", "lbfgs"])
@pytest.mark.parametrize("safeguard", [True, False])
def test_a_resumed_run_has_the_same_bits(solver, safeguard):
    data, objective = pool(), SoftmaxLoss(0.01, 3)
    options = {"rounds": 6, "solver": solver, "safeguard": safeguard}
    states = list(
        fednewton_head(data.federation(), objective, start=start_of(objective), **options)
    )
    for stop, state in enumerate(states[:-1]):
        rest = fednewton_head(data.federation(), objective, start=state, **options)
        for resumed, expected in zip(rest, states[stop + 1 :], strict=True):
            np.testing.assert_array_equal(resumed.weights, expected.weights)


@pytest.mark.parametrize(
    ("solver", "sums"), [(Exact(1.0), 1 + 2 * 4), (LBFGS(), 1 + 4)], ids=["clients", "server"]
)
def test_rounds_whose_first_trial_holds_reuse_its_gradient(solver, sums):
    data, objective = pool(skew=0.0), SoftmaxLoss(0.1, 3)
    fed = data.federation()
    states = list(
        fednewton_head(fed, objective, start=start_of(objective), rounds=4, solver=solver)
    )
    assert all(state.step == 1.0 for state in states)
    assert fed.sums == sums


def test_partial_participation_asks_each_rounds_clients_afresh():
    data, objective = pool(sizes=(20, 18, 22, 19)), SoftmaxLoss(0.05, 3)
    fed = data.federation(seed=1, participation=FixedNumber(2))
    start = start_of(objective)
    *_, last = fed.rounds(
        fednewton_head(fed, objective, start=start, rounds=10, solver=Exact(1e-3))
    )
    assert fed.sums >= 3 * 10
    first, end = (objective.value(s.weights, data.X, data.y) for s in (start, last))
    assert end < first


def test_step_sizes_out_of_range_are_refused():
    objective = SoftmaxLoss(0.05, 3)
    for size in (0.0, -1.0, np.inf):
        with pytest.raises(ValueError, match="step size"):
            next(
                fednewton_head(
                    pool().federation(),
                    objective,
                    start=start_of(objective),
                    rounds=1,
                    solver=Exact(),
                    step_size=size,
                )
            )


class TestLocalNewton:
    def test_one_unguarded_step_on_squared_loss_averages_the_local_solutions(self):
        data, objective = pool(), SquaredLoss(0.02, 3)
        start = NewtonState(np.random.default_rng(0).standard_normal((6, 3)))
        (state,) = localnewton(
            data.federation(), objective, start=start, rounds=1, solver=Exact(), safeguard=False
        )
        (expected,) = oneshot(data.federation(), objective)
        np.testing.assert_allclose(state.weights, expected.weights, rtol=1e-8, atol=1e-10)

    def test_many_local_steps_reach_the_local_minima(self):
        data, objective = pool(), SoftmaxLoss(0.02, 3)
        (state,) = localnewton(
            data.federation(),
            objective,
            start=start_of(objective),
            rounds=1,
            solver=Exact(),
            local_steps=30,
            safeguard=False,
        )
        (expected,) = oneshot(data.federation(), objective)
        np.testing.assert_allclose(state.weights, expected.weights, atol=1e-4)

    def test_the_safeguard_never_increases_the_pooled_objective(self):
        data, objective = pool(skew=2.0), SoftmaxLoss(1e-3, 3)
        states = localnewton(
            data.federation(),
            objective,
            start=start_of(objective),
            rounds=6,
            solver=Exact(),
            local_steps=3,
        )
        values = [objective.value(state.weights, data.X, data.y) for state in states]
        assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(values))

    def test_no_local_steps_are_refused(self):
        objective = SoftmaxLoss(0.02, 3)
        with pytest.raises(ValueError, match="local steps"):
            next(
                localnewton(
                    pool().federation(),
                    objective,
                    start=start_of(objective),
                    rounds=1,
                    solver=Exact(),
                    local_steps=0,
                )
            )
