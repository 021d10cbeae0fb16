import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.trainers.fednl import (
    Compressor,
    Dithering,
    Identity,
    Natural,
    PowerSGD,
    RandK,
    RankR,
    Scaled,
    SharedRandK,
    TopK,
    learning_rate,
)

DETERMINISTIC: list[Compressor] = [TopK(1), TopK(7), TopK(500), RankR(1), RankR(3), PowerSGD(2)]
UNBIASED: list[Compressor] = [RandK(6), SharedRandK(6), Natural(), Dithering(2), RandK(500)]


def symmetric(seed: int, d: int) -> np.ndarray:
    """Random, with scales and zeros that differ much between entries."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((d, d)) * np.exp(3 * rng.standard_normal((d, d)))
    M *= rng.random((d, d)) < 0.7
    return M + M.T


@settings(max_examples=60)
@given(st.sampled_from([*DETERMINISTIC, Identity()]), st.integers(0, 10**6), st.integers(1, 9))
def test_contractive_compressors_keep_their_delta_on_every_matrix(
    compressor: Compressor, seed: int, d: int
) -> None:
    """Definition 3.3, both inequalities."""
    M = symmetric(seed, d)
    C = compressor.matrix(M, np.random.default_rng(seed))
    delta = compressor.on_matrices(d).delta
    assert delta is not None
    size = np.sum(M**2)
    assert np.array_equal(C, C.T) or np.allclose(C, C.T, rtol=1e-12)
    assert np.sum(C**2) <= size * (1 + 1e-10)
    assert np.sum((C - M) ** 2) <= (1 - delta) * size * (1 + 1e-10) + 1e-20 * size


@pytest.mark.parametrize("compressor", UNBIASED, ids=str)
@pytest.mark.parametrize("d", [1, 5])
def test_unbiased_compressors_have_the_mean_and_at_most_the_variance_of_their_class(
    compressor: Compressor, d: int
) -> None:
    """Definition 3.2; means over 4,000 draws, the bounds with six standard errors."""
    # No entry so small that its chance of being kept is beyond what the draws can show.
    M, rng = (
        np.sign(symmetric(3, d)) * (1 + np.abs(np.sin(symmetric(4, d)))),
        (np.random.default_rng(1)),
    )
    draws = np.array([compressor.matrix(M, rng, draw) for draw in range(4000)])
    errors = np.sum((draws - M) ** 2, axis=(1, 2))
    omega = compressor.on_matrices(d).omega
    assert omega is not None
    slack = 6 * errors.std() / len(draws) ** 0.5
    assert errors.mean() <= omega * np.sum(M**2) + slack + 1e-12
    spread = draws.std(axis=0) / len(draws) ** 0.5
    assert np.all(np.abs(draws.mean(axis=0) - M) <= 6 * spread + 1e-10 * np.abs(M).max())


@pytest.mark.parametrize("compressor", [*UNBIASED, TopK(2), Identity()], ids=str)
def test_vector_compressors_keep_their_class(compressor: Compressor) -> None:
    v, rng = np.array([1.0, -2.0, 0.0, 1.5, -0.7, 0.3, 2.2, 0.5]), np.random.default_rng(2)
    draws = np.array([compressor.vector(v, rng, draw) for draw in range(3000)])
    errors = np.sum((draws - v) ** 2, axis=1)
    found = compressor.on_vectors(len(v))
    bound = 1 - found.delta if found.delta is not None else found.omega
    assert bound is not None
    assert errors.mean() <= bound * np.sum(v**2) + 6 * errors.std() / 54 + 1e-12
    if found.omega is not None:
        spread = draws.std(axis=0) / 54
        assert np.all(np.abs(draws.mean(axis=0) - v) <= 6 * spread + 1e-10)


@pytest.mark.parametrize("inner", [RandK(4), Natural(), Dithering(1)], ids=str)
def test_scaled_compressors_contract_in_the_mean(inner: Compressor) -> None:
    M, rng = symmetric(9, 5), np.random.default_rng(1)
    compressor = Scaled(inner)
    errors = [np.sum((compressor.matrix(M, rng) - M) ** 2) for _ in range(4000)]
    delta = compressor.on_matrices(5).delta
    assert delta is not None
    assert np.mean(errors) <= (1 - delta) * np.sum(M**2) + 6 * np.std(errors) / 63


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 90), st.booleans())
def test_top_k_keeps_exactly_the_k_largest(seed: int, d: int, k: int, ties: bool) -> None:
    """Against a full sort; a published heap is known to lose entries."""
    M = symmetric(seed, d)
    if ties:
        M = np.sign(M)
    low = np.tril_indices(d)
    C = TopK(k).matrix(M, np.random.default_rng(0))
    kept, sizes = np.abs(C[low]), np.sort(np.abs(M[low]))[::-1]
    wanted = min(k, len(sizes))
    assert np.array_equal(np.sort(kept)[::-1][:wanted], sizes[:wanted])
    assert np.count_nonzero(kept) <= wanted


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_lanczos_gives_the_truncated_decomposition(seed: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((120, 120))
    M = M + M.T
    u, s, vt = np.linalg.svd(M)
    C = RankR(rank).matrix(M, rng)
    assert np.allclose(C, (u[:, :rank] * s[:rank]) @ vt[:rank], atol=1e-8)


def test_all_clients_and_the_server_derive_the_same_places_from_the_shared_seed() -> None:
    compressor = SharedRandK(9, seed=4)
    one = compressor.matrix(np.ones((6, 6)), np.random.default_rng(0), 3)
    other = compressor.matrix(np.ones((6, 6)), np.random.default_rng(99), 3)
    next_round = compressor.matrix(np.ones((6, 6)), np.random.default_rng(0), 4)
    assert np.array_equal(one, other)
    assert not np.array_equal(one, next_round)


def test_learning_rates_by_name() -> None:
    assert learning_rate("one", TopK(5), 10) == 1.0
    assert learning_rate("contractive", TopK(19), 10) == pytest.approx(0.1)
    assert learning_rate("unbiased", RandK(11), 10) == pytest.approx(11 / 55)
    assert learning_rate("auto", RankR(1), 10) == 1.0
    for rate, compressor in [("contractive", RandK(3)), ("unbiased", TopK(3)), ("half", TopK(3))]:
        with pytest.raises(ValueError, match="learning rate"):
            learning_rate(rate, compressor, 10)
