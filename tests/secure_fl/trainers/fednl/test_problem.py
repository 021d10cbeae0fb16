import numpy as np
import pytest
from scipy.sparse import csr_array

from secure_fl.errors import LabelError
from secure_fl.federation import Client
from secure_fl.trainers.fednl.problem import LocalProblem
from secure_fl.trainers.fednl.triangles import entries_of, packed_size, places_of, unpack
from tests.secure_fl.trainers.fednl.problems import random_clients

PENALTY = 0.01


def dense(client: Client, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Loss, gradient and Hessian by automatic differentiation."""
    import torch

    A, b = torch.tensor(client.features.toarray()), torch.tensor(client.targets)

    def f(w: "torch.Tensor") -> "torch.Tensor":
        return torch.nn.functional.softplus(-b * (A @ w)).mean() + PENALTY / 2 * (w @ w)

    w = torch.tensor(x, requires_grad=True)
    return (
        float(f(w).detach()),
        torch.func.grad(f)(w).detach().numpy(),
        torch.func.hessian(f)(w).detach().numpy(),
    )


@pytest.mark.parametrize("entrywise", [True, False])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("density", [0.15, 0.6])
def test_kernels_agree_with_automatic_differentiation(
    entrywise: bool, binary: bool, density: float
) -> None:
    """Pairs of sparse rows, of rows with one value, and contiguous rows."""
    client = random_clients(1, 25, 9, density=density)[0]
    if binary:
        client.features.data[:] = 0.5
    x = np.random.default_rng(1).standard_normal(9)
    local = LocalProblem(client, entrywise)
    assert (local.columns is not None) == (density > 0.2)
    loss, gradient = local.evaluate(x, PENALTY)
    H = unpack(local.support.dense(local.hessian(PENALTY)), 9)
    wanted = dense(client, x)
    assert loss == pytest.approx(wanted[0], rel=1e-13)
    assert local.loss(x, PENALTY) == pytest.approx(wanted[0], rel=1e-13)
    assert np.allclose(gradient, wanted[1], atol=1e-14)
    assert np.allclose(H, wanted[2], atol=1e-14)


@pytest.mark.parametrize("scale", [1e4, 1e8])
def test_huge_margins_neither_overflow_nor_give_nan(scale: float) -> None:
    client = Client("a", csr_array([[scale], [-scale]]), np.array([1.0, 1.0]))
    local = LocalProblem(client, True)
    with np.errstate(all="raise", under="ignore"):
        loss, gradient = local.evaluate(np.array([1.0]), 0.0)
    # One margin of +scale costs nothing, the other -scale costs itself.
    assert loss == pytest.approx(scale / 2)
    assert gradient == pytest.approx([scale / 2])
    assert np.array_equal(local.hessian(0.0), [0.0])


def test_a_feature_that_is_always_zero_has_the_ridge_alone() -> None:
    client = Client("a", csr_array([[1.0, 0.0], [2.0, 0.0]]), np.array([1.0, -1.0]))
    local = LocalProblem(client, True)
    local.evaluate(np.ones(2), PENALTY)
    H = unpack(local.support.dense(local.hessian(PENALTY)), 2)
    assert H[1, 1] == PENALTY
    assert H[0, 1] == 0.0


def test_targets_other_than_plus_and_minus_one_are_refused() -> None:
    with pytest.raises(LabelError, match=r'client "a".*-1 and 1'):
        LocalProblem(Client("a", csr_array([[1.0]]), np.array([0.0])), True)


def test_packed_places_and_entries_are_inverse() -> None:
    places = np.arange(packed_size(400), dtype=np.int64)
    rows, columns = entries_of(places)
    assert np.array_equal(places_of(rows, columns), places)
    assert np.all((columns >= 0) & (columns <= rows))
