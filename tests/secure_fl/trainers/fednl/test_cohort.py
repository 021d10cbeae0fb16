"""The compiled round: the same bits for any way to run it, and its kernels against oracles."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from secure_fl.federation import Client, Federation
from secure_fl.trainers.fednl import (
    Compressor,
    Identity,
    LogisticRidge,
    PowerSGD,
    RandK,
    RankR,
    SharedRandK,
    TopK,
    fednl,
)
from secure_fl.trainers.fednl.lanczos import leading_pair, tridiagonal_eigen
from secure_fl.trainers.fednl.problem import LocalProblem
from secure_fl.trainers.fednl.selection import kth_largest, largest_places, random_places
from secure_fl.trainers.fednl.triangles import unpack
from tests.secure_fl.trainers.fednl.problems import random_clients

D = 9
COMPRESSORS: list[Compressor] = [SharedRandK(7), RandK(7), TopK(7), TopK(40), Identity(), RankR(1)]


def mixed_clients() -> list[Client]:
    """Sparse rows, rows of one value and contiguous rows, of unequal numbers."""
    clients = random_clients(2, 25, D, density=0.15) + random_clients(2, 31, D, seed=1, density=0.7)
    equal = random_clients(1, 40, D, seed=2, density=0.15)[0]
    equal.features.data[:] = 0.5
    return [
        Client(f"c{i}", each.features, each.targets) for i, each in enumerate([*clients, equal])
    ]


def test_one_call_threads_and_processes_give_the_same_bits_and_bytes() -> None:
    """In one call for all, in two threads, and client by client in worker processes."""
    found: list[list[Any]] = []
    for workers in (1, "threads:2", 2):
        found.append([])
        with Federation(mixed_clients(), workers=workers) as fed:
            for compressor in COMPRESSORS:
                states = fednl(
                    fed, LogisticRidge(0.05), d=D, rounds=5, option=2, compressor=compressor
                )
                *_, last = fed.rounds(states)
                traffic = [fed.meter.total(name) for name in fed.names]
                found[-1].append((compressor, last, traffic))
    for others in found[1:]:
        for (compressor, state, traffic), (_, last, wanted) in zip(others, found[0], strict=True):
            assert np.array_equal(state.weights, last.weights), compressor
            assert np.array_equal(state.hessian, last.hessian), compressor
            assert traffic == wanted, compressor


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_the_server_holds_the_mean_of_the_clients_estimates(compressor: Compressor) -> None:
    clients = mixed_clients()
    fed = Federation(clients)
    *_, last = fednl(fed, LogisticRidge(0.05), d=D, rounds=6, option=2, compressor=compressor)
    held = [
        LocalProblem(c, compressor.entrywise).support.dense(c.state["hessian"]) for c in clients
    ]
    assert np.allclose(last.hessian, np.mean(held, axis=0), atol=1e-13)


@settings(max_examples=100)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60),
    st.integers(1, 60),
)
def test_the_kth_largest_magnitude_is_that_of_a_full_sort(values: list[float], k: int) -> None:
    v = np.array(values)
    k = min(k, len(v))
    assert kth_largest(v, k, np.empty(len(v))) == np.sort(np.abs(v))[::-1][k - 1]
    out = np.empty(k, np.int64)
    largest_places(v, k, np.empty(len(v)), out)
    # A stable sort by falling magnitude keeps the lowest places among equals.
    assert np.array_equal(out, np.sort(np.argsort(-np.abs(v), kind="stable")[:k]))


def test_among_nan_the_places_stay_in_range() -> None:
    """A run that diverged must end in a refused update, not in a stray write."""
    v, out = np.array([np.nan, 1.0, -np.nan, np.inf]), np.full(3, 99)
    largest_places(v, 3, np.empty(4), out)
    assert np.all((out >= 0) & (out < 4))


def test_random_places_are_distinct_ascending_and_every_subset_is_as_likely() -> None:
    """All 10 subsets of 2 of 5 places, against a chi-square of 9 degrees at 1e-6 (45.1)."""
    taken, out = np.zeros(5, np.uint8), np.empty(2, np.int64)
    counts: dict[tuple[int, int], int] = {}
    words = np.random.default_rng(0).integers(2**63, size=20_000)
    for word in words.tolist():
        random_places(word, taken, out)
        assert out[0] < out[1]
        key = int(out[0]), int(out[1])
        counts[key] = counts.get(key, 0) + 1
    assert not taken.any()
    assert len(counts) == 10
    assert sum((c - 2000) ** 2 / 2000 for c in counts.values()) < 45.1


@pytest.mark.parametrize(("size", "k"), [(1, 1), (6, 6), (45_451, 2408)])
def test_random_places_of_any_number_stay_in_range(size: int, k: int) -> None:
    out = np.empty(k, np.int64)
    random_places(7, np.zeros(size, np.uint8), out)
    assert np.all(np.diff(out) > 0)
    assert out[0] >= 0
    assert out[-1] < size


def pair_of(M: np.ndarray, rounding: float = 0.0) -> tuple[float, np.ndarray]:
    """`leading_pair` of a dense matrix."""
    order = np.arange(len(M), dtype=np.int64)
    starts = order * (order + 1) // 2
    packed = np.ascontiguousarray(M[np.tri(len(M), dtype=bool)])
    return leading_pair(packed, starts, starts + order, order, rounding)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 110), st.sampled_from([0.0, 1.0, 6.0]))
def test_the_leading_pair_is_that_of_a_full_decomposition(seed: int, d: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    M = (Q * (rng.choice([-1, 1], d) * np.exp(spread * rng.standard_normal(d)))) @ Q.T
    M = (M + M.T) / 2
    value, vector = pair_of(M)
    largest = np.abs(np.linalg.eigvalsh(M)).max()
    assert abs(value) == pytest.approx(largest, rel=1e-12)
    assert np.linalg.norm(vector) == pytest.approx(1, rel=1e-12)
    assert np.linalg.norm(M @ vector - value * vector) <= 1e-10 * largest


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(10, 80), st.sampled_from([1e-15, 1e-9, 1e-3]))
def test_lanczos_looks_no_further_than_the_rounding_of_the_matrix(
    seed: int, d: int, rounding: float
) -> None:
    """A pair with a residual of that size belongs to a matrix within the rounding of this one."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((d, d))
    v = rng.standard_normal(d)
    noise = (noise + noise.T) * (rounding / np.linalg.norm(noise + noise.T))
    for M in (noise, 7 * np.outer(v, v) / (v @ v) + noise):
        value, vector = pair_of(M, rounding)
        assert np.linalg.norm(vector) == pytest.approx(1, rel=1e-12)
        assert np.linalg.norm(M @ vector - value * vector) <= rounding + 1e-13 * abs(value) * d
    exact, _ = pair_of(noise)
    assert pair_of(noise, rounding)[0] != exact


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([0.0, 0.5, 8.0]))
def test_tridiagonal_matrices_are_decomposed(seed: int, n: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    diagonal = rng.standard_normal(n) * np.exp(spread * rng.standard_normal(n))
    beside = rng.standard_normal(n - 1) * (rng.random(n - 1) < 0.8)
    T = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    theta, Z = tridiagonal_eigen(diagonal, beside)
    scale = np.abs(T).max()
    assert np.allclose(np.sort(theta), np.linalg.eigvalsh(T), rtol=0, atol=1e-13 * n * scale)
    assert np.allclose(Z @ Z.T, np.eye(n), atol=1e-12)
    assert np.allclose(Z @ T, theta[:, None] * Z, rtol=0, atol=1e-12 * n * scale)


def test_a_matrix_of_zeros_or_of_equal_magnitudes_has_a_leading_pair() -> None:
    assert pair_of(np.zeros((5, 5)))[0] == 0.0
    signs = np.diag(np.where(np.arange(200) % 2, 1.0, -1.0) * (1 - 1e-9 * np.arange(200)))
    value, vector = pair_of(signs)
    assert abs(value) == pytest.approx(1.0, rel=1e-12)
    assert np.linalg.norm(signs @ vector - value * vector) < 1e-9


def test_features_without_pairs_count_in_the_leading_pair() -> None:
    """A feature that no row has stands on the diagonal alone: here its entry is the largest."""
    client = Client("a", csr_array([[1.0, 0, 2.0, 0], [0, 0, 1.0, 0]]), np.array([1.0, -1.0]))
    fed = Federation([client])
    compressor = RankR(1)
    states = fednl(
        fed, LogisticRidge(7.0), d=4, rounds=1, option=2, compressor=compressor, initial="zero"
    )
    *_, last = states
    H = unpack(last.hessian, 4)
    wanted = np.linalg.eigvalsh(
        client.features.toarray().T @ client.features.toarray() / 8 + 7.0 * np.eye(4)
    )[-1]
    assert np.linalg.matrix_rank(H, tol=1e-9) == 1
    assert np.linalg.eigvalsh(H)[-1] == pytest.approx(wanted)


@pytest.mark.parametrize("rank", [1, 3])
def test_equal_eigenvalues_of_absent_features_keep_server_and_clients_together(rank: int) -> None:
    """From H = 0 every absent feature leaves the ridge as an eigenvalue, all of them equal."""
    rows = np.zeros((6, 7))
    rows[:, :3] = np.random.default_rng(0).standard_normal((6, 3))
    clients = [
        Client(f"c{i}", csr_array(rows + i * (rows != 0)), np.sign(rows[:, 0])) for i in (0, 1)
    ]
    fed = Federation(clients)
    *_, last = fednl(
        fed, LogisticRidge(2.0), d=7, rounds=12, option=2, compressor=RankR(rank), initial="zero"
    )
    held = [LocalProblem(c, False).support.dense(c.state["hessian"]) for c in clients]
    assert np.allclose(last.hessian, np.mean(held, axis=0), atol=1e-13)
    H = unpack(last.hessian, 7)
    assert np.allclose(np.diag(H)[3:], 2.0)
    assert np.allclose(H[3:, 3:], 2.0 * np.eye(4), atol=1e-12)


@pytest.mark.parametrize("compressor", [RankR(1), RankR(2)], ids=str)
def test_a_low_rank_message_travels_as_its_eigenpairs(compressor: RankR) -> None:
    """The meter's floats up are those that the paper counts: d + 2 and R (d + 1) a round."""
    fed = Federation(mixed_clients())
    rounds = iter(fed.rounds(fednl(fed, LogisticRidge(0.05), d=D, rounds=3, compressor=compressor)))
    before = next(rounds), fed.meter.total("c0").floats_up
    *_, last = rounds
    sent = fed.meter.total("c0").floats_up - before[1]
    assert sent == 3 * (D + 2 + compressor.rank * (D + 1))
    # The paper's count leaves out the loss, which the plots want.
    assert last.bits - before[0].bits == 64 * (sent - 3)


@pytest.mark.parametrize("rank", [1, 2])
def test_power_iterations_travel_as_two_factors_and_decode_alike_everywhere(rank: int) -> None:
    """2 R vectors and numbers: the paper's two factors, symmetric, and 2 R floats more."""
    clients, compressor = mixed_clients(), PowerSGD(rank)
    fed = Federation(clients)
    rounds = iter(fed.rounds(fednl(fed, LogisticRidge(0.05), d=D, rounds=9, compressor=compressor)))
    before = next(rounds), fed.meter.total("c0").floats_up
    *_, last = rounds
    sent = fed.meter.total("c0").floats_up - before[1]
    assert sent == 9 * (D + 2 + 2 * rank * (D + 1))
    assert last.bits - before[0].bits == 9 * 64 * (D + 1 + 2 * rank * D)
    held = [LocalProblem(c, False).support.dense(c.state["hessian"]) for c in clients]
    assert np.allclose(last.hessian, np.mean(held, axis=0), rtol=0, atol=1e-15)
