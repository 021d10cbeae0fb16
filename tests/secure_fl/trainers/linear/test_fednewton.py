"""FedNewton, algorithm 1, against its closed form; and what the safeguard promises."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.errors import InputError
from secure_fl.federation import FixedNumber
from secure_fl.objectives import SoftmaxLoss, SquaredLoss
from secure_fl.trainers.linear import ConjugateGradient, NewtonState, dkrr, fednewton, krr
from tests.secure_fl.trainers.linear.federations import Pool, pool, pooled_minimum


def closed_form(data: Pool, ridge: float):
    """H_j^-1 and X_j'Y_j / n_j of every client, by explicit inverses."""
    hot = np.eye(3)[data.y]
    inverses, crosses = [], []
    for p in data.parts:
        hessian = data.X[p].T @ data.X[p] / len(p) + ridge * np.eye(data.X.shape[1])
        inverses.append(np.linalg.inv(hessian))
        crosses.append(data.X[p].T @ hot[p] / len(p))
    return inverses, crosses


@pytest.mark.parametrize("sizes", [(30, 8, 17), (4, 5, 3, 40)], ids=["primal", "some dual"])
class TestAgainstTheClosedForm:
    ridge = 0.05

    def test_round_zero_is_the_mean_of_ridge_regressions(self, sizes):
        """Line 3 of algorithm 1; DKRR of section 2."""
        data = pool(sizes=sizes)
        inverses, crosses = closed_form(data, self.ridge)
        expected = sum(p * a @ b for p, a, b in zip(data.shares, inverses, crosses, strict=True))
        objective = SquaredLoss(self.ridge, 3)
        (state,) = fednewton(data.federation(), objective, rounds=0)
        assert state.round == 0
        np.testing.assert_allclose(state.weights, expected, rtol=1e-9, atol=1e-11)
        (reference,) = dkrr(data.federation(), objective)
        np.testing.assert_array_equal(reference.weights, state.weights)

    def test_unguarded_rounds_are_those_of_the_algorithm_box(self, sizes):
        data = pool(sizes=sizes)
        inverses, crosses = closed_form(data, self.ridge)
        shares = data.shares
        hessian = sum(p * np.linalg.inv(a) for p, a in zip(shares, inverses, strict=True))
        cross = sum(p * b for p, b in zip(shares, crosses, strict=True))
        mean_inverse = sum(p * a for p, a in zip(shares, inverses, strict=True))
        objective = SquaredLoss(self.ridge, 3)
        weights = None
        for state in fednewton(data.federation(), objective, rounds=4, safeguard=False):
            if weights is not None:
                weights = weights - mean_inverse @ (hessian @ weights - cross)
                np.testing.assert_allclose(state.weights, weights, rtol=1e-9, atol=1e-10)
            weights = state.weights

    def test_the_best_step_is_never_longer_than_the_printed_one(self, sizes):
        """The mean of inverses is at least the inverse of the mean, so steps only overshoot."""
        data = pool(sizes=sizes)
        inverses, _ = closed_form(data, self.ridge)
        mean_inverse = sum(p * a for p, a in zip(data.shares, inverses, strict=True))
        hessian = sum(p * np.linalg.inv(a) for p, a in zip(data.shares, inverses, strict=True))
        assert np.linalg.eigvals(mean_inverse @ hessian).real.min() > 1 - 1e-9
        states = list(fednewton(data.federation(), SquaredLoss(self.ridge, 3), rounds=6))
        assert all(0 < state.step <= 1 + 1e-9 for state in states)

    def test_the_reported_contraction_is_that_of_the_undamped_step(self, sizes):
        data = pool(sizes=sizes)
        objective = SquaredLoss(self.ridge, 3)
        first, second = fednewton(data.federation(), objective, rounds=1)
        _, undamped = fednewton(data.federation(), objective, rounds=1, safeguard=False)
        before, after = (
            np.linalg.norm(objective.gradient(state.weights, data.X, data.y))
            for state in (first, undamped)
        )
        assert second.contraction == pytest.approx(after / before, rel=1e-9)

    def test_the_point_it_keeps_is_the_pooled_objective_there(self, sizes):
        data = pool(sizes=sizes)
        objective = SquaredLoss(self.ridge, 3)
        for state in fednewton(data.federation(), objective, rounds=3):
            if state.point is not None:
                value, gradient = objective.value_and_gradient(state.weights, data.X, data.y)
                assert state.point.value == pytest.approx(value, rel=1e-12)
                np.testing.assert_allclose(state.point.gradient, gradient, atol=1e-12)


@given(seed=st.integers(0, 10_000), skew=st.floats(0, 2.5), memory=st.integers(0, 3))
@settings(max_examples=40)
def test_no_guarded_round_increases_the_pooled_objective(seed, skew, memory):
    data = pool(seed, sizes=(3, 25, 9, 4), skew=skew)
    objective = SquaredLoss(1e-3, 3)
    states = fednewton(data.federation(), objective, rounds=6, memory=memory)
    values = [objective.value(state.weights, data.X, data.y) for state in states]
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(values))


def test_where_the_printed_algorithm_diverges_the_guarded_one_reaches_the_pooled_solution():
    """The contraction factor above 1 is the case of the paper's dna and Sensorless at 8 rounds."""
    data = pool(sizes=(3, 25, 9, 4), skew=2.0)
    objective = SquaredLoss(1e-3, 3)
    best = objective.value(pooled_minimum(objective, data), data.X, data.y)

    def losses(**options):
        states = fednewton(data.federation(), objective, rounds=30, **options)
        return [objective.value(state.weights, data.X, data.y) - best for state in states]

    printed, guarded = losses(safeguard=False), losses()
    assert printed[-1] > 10 * printed[0]
    assert guarded[-1] < 0.2 * guarded[0]
    # d rounds of conjugate directions end at the solution; columns share one Hessian, but not one
    # Krylov space, so a few more.
    assert losses(memory=10)[-1] < 1e-9 * guarded[0]


@pytest.mark.parametrize("memory", [1, 4])
def test_memory_gives_preconditioned_conjugate_gradients(memory):
    """Oracle: the textbook recursion with explicit matrices (Golub and Van Loan, 11.5.1)."""
    data, ridge = pool(sizes=(3, 25, 9, 4), skew=2.0), 1e-3
    inverses, crosses = closed_form(data, ridge)
    hessian = sum(p * np.linalg.inv(a) for p, a in zip(data.shares, inverses, strict=True))
    inverse = sum(p * a for p, a in zip(data.shares, inverses, strict=True))
    cross = sum(p * b for p, b in zip(data.shares, crosses, strict=True))
    states = fednewton(data.federation(), SquaredLoss(ridge, 3), rounds=4, memory=memory)
    weights = next(states).weights
    rest = cross - hessian @ weights
    step = direction = inverse @ rest
    for state in states:
        length = np.vdot(rest, step) / np.vdot(direction, hessian @ direction)
        weights = weights + length * direction
        before = np.vdot(rest, step)
        rest = rest - length * (hessian @ direction)
        step = inverse @ rest
        direction = step + np.vdot(rest, step) / before * direction
        np.testing.assert_allclose(state.weights, weights, rtol=1e-6, atol=1e-8)


def test_pooled_ridge_regression_is_the_exact_minimum():
    data = pool()
    objective = SquaredLoss(0.01, 3)
    (state,) = krr(data.federation(), objective)
    np.testing.assert_allclose(state.weights, pooled_minimum(objective, data), rtol=1e-9)


def test_clients_alike_are_solved_at_once():
    data = pool(sizes=(20,))
    copies = Pool(np.tile(data.X, (3, 1)), np.tile(data.y, 3), list(np.arange(60).reshape(3, 20)))
    objective = SquaredLoss(0.01, 3)
    states = list(fednewton(copies.federation(), objective, rounds=2))
    best = pooled_minimum(objective, data)
    for state in states:
        np.testing.assert_allclose(state.weights, best, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "sums"),
    [({"safeguard": False}, 1 + 2 * 5), ({}, 2 + 2 * 5), ({"memory": 3}, 2 + 2 * 5)],
    ids=["printed", "guarded", "with memory"],
)
def test_the_safeguard_costs_one_sum_in_all(options, sums):
    fed = pool().federation()
    list(fednewton(fed, SquaredLoss(0.01, 3), rounds=5, **options))
    assert fed.sums == sums


@pytest.mark.parametrize("options", [{"safeguard": False}, {}, {"memory": 3}])
def test_a_resumed_run_has_the_same_bits(options):
    data, objective = pool(), SquaredLoss(0.01, 3)
    whole = list(fednewton(data.federation(), objective, rounds=5, **options))
    for stop in range(5):
        rest = fednewton(data.federation(), objective, rounds=5, start=whole[stop], **options)
        for resumed, state in zip(rest, whole[stop + 1 :], strict=True):
            assert resumed.round == state.round
            np.testing.assert_array_equal(resumed.weights, state.weights)


def test_partial_participation_descends_on_the_participants_of_each_round():
    data, objective = pool(sizes=(20, 18, 22, 19), skew=1.5), SquaredLoss(0.01, 3)
    fed = data.federation(seed=3, participation=FixedNumber(2))
    start = NewtonState(objective.zeros(6))
    before = start
    drawn = []
    for state in fed.rounds(fednewton(fed, objective, rounds=6, start=start)):
        drawn.append(fed.participants)
        before = state
    assert before.round == 6
    assert len(set(drawn)) > 1
    assert objective.value(before.weights, data.X, data.y) < objective.value(
        start.weights, data.X, data.y
    )


def test_an_inexact_solver_still_descends_to_the_pooled_solution():
    data, objective = pool(), SquaredLoss(0.05, 3)
    solver = ConjugateGradient(iterations=2)
    *_, last = fednewton(data.federation(), objective, rounds=150, solver=solver)
    np.testing.assert_allclose(last.weights, pooled_minimum(objective, data), atol=1e-6)


def test_float32_records_are_converted_once_and_give_the_float64_solution():
    data, objective = pool(), SquaredLoss(0.01, 3)
    rounded = Pool(data.X.astype(np.float32), data.y, data.parts)
    exact = Pool(rounded.X.astype(np.float64), data.y, data.parts)
    *_, low = fednewton(rounded.federation(), objective, rounds=2)
    *_, high = fednewton(exact.federation(), objective, rounds=2)
    np.testing.assert_array_equal(low.weights, high.weights)


def test_other_objectives_and_contradictory_options_are_refused():
    fed = pool().federation()
    for trainer in (lambda o: fednewton(fed, o, rounds=1), lambda o: dkrr(fed, o)):
        with pytest.raises(InputError, match="squared loss"):
            next(iter(trainer(SoftmaxLoss(0.1, 3))))
    for trainer in (lambda o: fednewton(fed, o, rounds=1), lambda o: krr(fed, o)):
        with pytest.raises(InputError, match="ridge"):
            next(iter(trainer(SquaredLoss(0.0, 3))))
    with pytest.raises(ValueError, match="memory"):
        next(fednewton(fed, SquaredLoss(0.1, 3), rounds=1, safeguard=False, memory=1))
