"""Solvers of FedNewton's appendix A against dense linear algebra."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from secure_fl.errors import InputError
from secure_fl.objectives import Objective, SoftmaxLoss, SquaredLoss
from secure_fl.trainers.linear import LBFGS, ConjugateGradient, Diagonal, Exact, LowRank, Solver
from secure_fl.trainers.linear.lbfgs import remember

OBJECTIVES = [SquaredLoss(0.1, 3), SoftmaxLoss(0.1, 2), SoftmaxLoss(0.1, 3)]


def case(objective: Objective, n: int, d: int) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d))
    y = rng.integers(0, objective.classes, n)
    weights = 0.5 * rng.standard_normal(objective.shape(d))
    return weights, X, y, rng.standard_normal(weights.shape)


def dense_solution(
    objective: Objective, weights: Any, X: Any, y: Any, right: Any, damping: float
) -> Any:
    hessian = objective.hessian(weights, X, y)
    damped = hessian + damping * np.eye(len(hessian))
    return np.linalg.solve(damped, right.reshape(len(hessian), -1)).reshape(right.shape)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize(("n", "d"), [(40, 7), (5, 9)], ids=["primal", "dual"])
@pytest.mark.parametrize("damping", [0.0, 0.3])
class TestSolveTheSystem:
    @pytest.mark.parametrize("sparse", [False, True])
    def test_exact(self, objective, n, d, damping, sparse):
        weights, X, y, right = case(objective, n, d)
        expected = dense_solution(objective, weights, X, y, right, damping)
        given = csr_array(X) if sparse else X
        solved = Exact(damping).solve(objective, weights, given, y, right, {})
        np.testing.assert_allclose(solved, expected, rtol=1e-10, atol=1e-12)

    def test_conjugate_gradients_run_to_the_end(self, objective, n, d, damping):
        weights, X, y, right = case(objective, n, d)
        expected = dense_solution(objective, weights, X, y, right, damping)
        solver = ConjugateGradient(damping, iterations=200, tolerance=1e-13)
        solved = solver.solve(objective, weights, X, y, right, {})
        np.testing.assert_allclose(solved, expected, rtol=1e-8, atol=1e-10)

    def test_low_rank_of_full_rank(self, objective, n, d, damping):
        weights, X, y, right = case(objective, n, d)
        expected = dense_solution(objective, weights, X, y, right, damping)
        solved = LowRank(damping, rank=100).solve(objective, weights, X, y, right, {})
        np.testing.assert_allclose(solved, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_low_rank_inverts_the_largest_eigenpairs_and_bounds_the_rest(objective):
    """Oracle: the dense eigendecomposition."""
    weights, X, y, right = case(objective, 60, 12)
    rank = 3
    hessian = objective.hessian(weights, X, y)
    values, vectors = np.linalg.eigh(hessian)
    kept = np.where(np.arange(len(values)) < len(values) - rank, values[-rank], values)
    expected = vectors @ np.diag(1 / kept) @ vectors.T @ right.reshape(len(values), -1)
    solver = LowRank(rank=rank, products=len(values))
    solved = solver.solve(objective, weights, X, y, right, {})
    np.testing.assert_allclose(solved, expected.reshape(right.shape), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_diagonal_divides_by_the_hessians_diagonal(objective):
    weights, X, y, right = case(objective, 30, 5)
    hessian = objective.hessian(weights, X, y)
    diagonal = np.repeat(np.diag(hessian), right.size // len(hessian)).reshape(right.shape)
    solved = Diagonal(0.2).solve(objective, weights, X, y, right, {})
    np.testing.assert_allclose(solved, right / (diagonal + 0.2), rtol=1e-12)


def test_early_stopped_lanczos_finds_the_largest_eigenvalues_first():
    """Ritz values approach the spectrum's upper end from below, the largest soonest."""
    objective = SoftmaxLoss(0.1, 3)
    weights, X, y, right = case(objective, 200, 40)
    X = X * 0.8 ** np.arange(40)
    largest = np.linalg.eigvalsh(objective.hessian(weights, X, y))[-4:]
    found = LowRank(rank=4, products=40)._eigenpairs(objective, weights, X, y, right)[0]
    np.testing.assert_allclose(found, largest, rtol=1e-6)


def test_diagonal_can_take_the_papers_fisher_estimate():
    objective = SoftmaxLoss(0.1, 3)
    weights, X, y, right = case(objective, 30, 5)
    solved = Diagonal(fisher=True).solve(objective, weights, X, y, right, {})
    expected = right / objective.fisher_diagonal(weights, X, y)
    np.testing.assert_array_equal(solved, expected)


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_truncated_conjugate_gradients_minimise_over_the_krylov_space(iterations):
    """The k-th iterate minimises x'Hx/2 - x'v over span{v, Hv, ..., H^(k-1) v}."""
    objective = SoftmaxLoss(0.01, 2)
    weights, X, y, right = case(objective, 40, 8)
    hessian = objective.hessian(weights, X, y)
    flat = right.ravel()
    basis = np.stack([np.linalg.matrix_power(hessian, k) @ flat for k in range(iterations)], 1)
    inside = np.linalg.solve(basis.T @ hessian @ basis, basis.T @ flat)
    solved = ConjugateGradient(iterations=iterations).solve(objective, weights, X, y, right, {})
    np.testing.assert_allclose(solved.ravel(), basis @ inside, rtol=1e-8)


@pytest.mark.parametrize("solver", [Exact(0.1), LowRank(0.1, rank=2)])
def test_a_quadratic_is_factored_once(solver):
    objective = SquaredLoss(0.1, 3)
    weights, X, y, right = case(objective, 40, 7)
    cache: dict[str, Any] = {}
    first = solver.solve(objective, weights, X, y, right, cache)
    # With the kept factor neither records nor weights matter any more.
    again = solver.solve(objective, 0 * weights, 5 * X, y, right, cache)
    np.testing.assert_array_equal(again, first)
    other = solver.solve(SquaredLoss(0.2, 3), weights, X, y, right, cache)
    assert not np.array_equal(other, first)


@pytest.mark.parametrize("solver", [Exact(), Diagonal(), LowRank(rank=2)])
def test_a_singular_hessian_is_refused_in_one_line(solver):
    objective = SquaredLoss(0.0, 2)
    X = np.zeros((9, 6))
    right = np.ones((6, 2))
    with pytest.raises(InputError, match="ridge") as caught:
        solver.solve(objective, np.zeros((6, 2)), X, np.zeros(9, int), right, {})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("n", "d"), [(30, 30), (30, 100)], ids=["primal", "dual"])
def test_a_hessian_too_large_to_form_is_refused_before_it_is_formed(n, d):
    objective = SoftmaxLoss(0.1, 1000)
    zeros = objective.zeros(d)
    with pytest.raises(InputError, match=r"30,000 unknowns.*ConjugateGradient"):
        Exact().solve(objective, zeros, np.zeros((n, d)), np.zeros(n, int), zeros, {})


def test_a_wide_client_solves_what_its_records_span():
    """40,000 unknowns and one record: a Hessian of 12.8 GB is never formed."""
    objective = SoftmaxLoss(0.1, 40)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1, 1000))
    weights, right = rng.standard_normal((2, 1000, 40))
    solved = Exact().solve(objective, weights, X, np.zeros(1, int), right, {})
    product = objective.hessian_product(weights, X, np.zeros(1, int), solved)
    np.testing.assert_allclose(product, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exact(-1.0),
        lambda: Diagonal(np.nan),
        lambda: ConjugateGradient(iterations=0),
        lambda: ConjugateGradient(tolerance=-1.0),
        lambda: LowRank(rank=0),
        lambda: LowRank(rank=4, products=3),
        lambda: LBFGS(0),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match=r"damping|iterations|rank|memory"):
        make()


@pytest.mark.parametrize("solver", [Exact(), ConjugateGradient(), LowRank(rank=2), Diagonal()])
def test_zero_solves_to_zero(solver: Solver):
    objective = SoftmaxLoss(0.1, 3)
    weights, X, y, right = case(objective, 40, 7)
    assert not solver.solve(objective, weights, X, y, 0 * right, {}).any()


class TestLBFGS:
    def test_two_loops_apply_the_inverse_that_bfgs_builds(self):
        """Oracle: the dense BFGS update of the inverse Hessian (Nocedal and Wright, eq. 6.17)."""
        rng = np.random.default_rng(0)
        curvature = rng.standard_normal((6, 6))
        curvature = curvature @ curvature.T + np.eye(6)
        moves = rng.standard_normal((4, 6))
        pairs = tuple((s.reshape(3, 2), (curvature @ s).reshape(3, 2)) for s in moves)
        s, y = moves[-1], curvature @ moves[-1]
        inverse = np.eye(6) * (s @ y) / (y @ y)
        for s in moves:
            y = curvature @ s
            rho = 1 / (s @ y)
            left = np.eye(6) - rho * np.outer(s, y)
            inverse = left @ inverse @ left.T + rho * np.outer(s, s)
        gradient = rng.standard_normal((3, 2))
        direction = LBFGS(4).direction(gradient, pairs)
        np.testing.assert_allclose(direction.ravel(), inverse @ gradient.ravel(), rtol=1e-10)

    def test_without_history_the_direction_is_the_gradient_at_unit_length(self):
        gradient = np.array([3.0, 4.0])
        np.testing.assert_allclose(LBFGS().direction(gradient, ()), [0.6, 0.8])
        assert not LBFGS().direction(np.zeros(2), ()).any()

    def test_memory_keeps_the_newest_pairs_that_show_curvature(self):
        pairs: Any = ()
        for k in range(1, 5):
            pairs = remember(pairs, np.array([float(k)]), np.array([1.0]), 2)
        assert [float(s[0]) for s, _ in pairs] == [3.0, 4.0]
        assert remember(pairs, np.array([1.0]), np.array([-1.0]), 2) is pairs
        assert remember(pairs, np.array([0.0]), np.array([0.0]), 2) is pairs
