"""The reference machine against the authors' own code, and the properties the paper promises."""

from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kahm import KAHM, MEASURES, InputError, smoother
from kahm.machine import encode, fixed_point, kernel_exponents, smoothed, strength

CASES = ("digits1_N6", "digits3_N40", "digits8_N100", "gauss2d_N30")

matrices = st.tuples(st.integers(1, 30), st.integers(1, 8)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(-50, 50, width=32))
)


@pytest.fixture(scope="session")
def golden(shared: Path) -> np.lib.npyio.NpzFile:
    return np.load(shared / "golden" / "kahm.npz", allow_pickle=False)


@pytest.mark.parametrize("case", CASES)
def test_images_are_those_of_the_authors_code(golden, case):
    machine = KAHM.fit(golden[f"{case}/train"])
    images = machine.fold(golden[f"{case}/query"])
    np.testing.assert_allclose(images, golden[f"{case}/image"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("measure", ["folding", "product", "minimum", "maximum", "cosine"])
def test_measures_are_those_of_the_authors_code(golden, case, measure):
    """Their option 1 divides by 1.4142 instead of the root of 2, hence the wider tolerance."""
    machine = KAHM.fit(golden[f"{case}/train"])
    found = machine.measure(golden[f"{case}/query"], measure)
    tolerance = 1e-5 if measure == "folding" else 1e-9
    np.testing.assert_allclose(found, golden[f"{case}/measure_{measure}"], rtol=0, atol=tolerance)


@given(X=matrices, seed=st.integers(0, 2**32 - 1), measure=st.sampled_from(MEASURES))
def test_a_measure_lies_in_the_unit_interval(X, seed, measure):
    rng = np.random.default_rng(seed)
    points = np.concatenate([X, X * 1e6, np.zeros_like(X[:1]), rng.normal(0, 30, (5, X.shape[1]))])
    values = KAHM.fit(X).measure(points, measure)
    assert np.all((values >= 0) & (values <= 1))


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 40), d=st.integers(1, 30))
def test_the_order_of_records_does_not_matter(seed, n, d):
    rng = np.random.default_rng(seed)
    X, points = rng.normal(0, 3, (n, d)), rng.normal(0, 3, (4, d))
    shuffled = KAHM.fit(rng.permutation(X))
    np.testing.assert_allclose(shuffled.measure(points), KAHM.fit(X).measure(points), atol=1e-8)


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1.0, 100.0))
def test_images_scale_with_the_data_when_the_regularisation_is_negligible(seed, scale):
    """The kernel is scale-free and lambda* grows with the square of the scale: only weights move.

    With one direction and two records the weights are known in closed form for every lambda.
    """
    rng = np.random.default_rng(seed)
    X = scale * rng.normal(0, 1, (2, 1))
    machine = KAHM.fit(X)
    K = np.exp(kernel_exponents(X / np.std(X, ddof=1), X / np.std(X, ddof=1)))
    lam = strength(K, X)
    k = K[0]
    memberships = np.linalg.solve(K + lam * np.eye(2), k)
    expected = memberships @ X / memberships.sum()
    np.testing.assert_allclose(machine.fold(X[:1])[0], expected, rtol=1e-9)


def test_every_measure_but_the_angle_grows_along_a_ray_away_from_the_data():
    X = np.random.default_rng(0).normal(3, 1, (30, 4))
    ray = X.mean(axis=0) * np.array([[1.0], [3.0], [10.0], [100.0]])
    values = KAHM.fit(X).measure(ray, "euclidean")
    assert np.all(np.diff(values) >= 0)
    assert values[-1] == pytest.approx(1.0)


@given(d=st.integers(1, 5), seed=st.integers(0, 2**32 - 1), n=st.integers(1, 4))
def test_one_or_identical_records_fold_every_point_onto_them(d, seed, n):
    record = np.random.default_rng(seed).normal(0, 5, (1, d))
    machine = KAHM.fit(np.repeat(record, n, axis=0))
    points = np.array([[1e6] * d, [0.0] * d])
    np.testing.assert_allclose(machine.fold(points), np.repeat(record, 2, axis=0), atol=1e-9)
    assert machine.measure(record)[0] == pytest.approx(0, abs=1e-7)


def test_far_from_the_data_the_weights_are_those_of_the_nearest_record_direction():
    """Every kernel value underflows at 1e6; subtracting the largest exponent keeps the weights."""
    X = np.random.default_rng(1).normal(0, 1, (10, 3))
    weights = KAHM.fit(X).weights(np.full((1, 3), 1e6))
    assert np.isfinite(weights).all()
    assert weights.sum() == pytest.approx(1)


def test_constant_features_are_not_directions():
    X = np.random.default_rng(2).normal(0, 1, (30, 5))
    X[:, [1, 3]] = 7.0
    assert len(encode(X).directions) == 3


def test_directions_are_at_most_twenty_and_fewer_than_the_records():
    rng = np.random.default_rng(3)
    assert len(encode(rng.normal(size=(100, 50))).directions) == 20
    assert len(encode(rng.normal(size=(15, 50))).directions) == 14
    assert len(encode(rng.normal(size=(100, 2))).directions) == 2


def test_a_narrow_direction_ends_the_encoding():
    """Algorithm 1, line 3: a range below 1e-3 drops the direction."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(50, 3)) * [1.0, 1.0, 1e-5]
    assert len(encode(X).directions) == 2


def test_the_fixed_point_holds_to_twelve_digits():
    """Eq. (150) in 40 digits by mpmath, from the definition (151) with an explicit solve."""
    rng = np.random.default_rng(5)
    X = rng.normal(0, 2, (6, 3))
    encoding = encode(X)
    Z = X @ encoding.directions.T / np.sqrt(encoding.variances)
    K = np.exp(kernel_exponents(Z, Z))
    lam = strength(K, X)
    with mpmath.workdps(40):
        exact_K, exact_X = mpmath.matrix(K.tolist()), mpmath.matrix(X.tolist())
        tau = 2 * mpmath.norm(exact_X) ** 2 / X.size
        e = mpmath.mpf(lam) - tau
        residual = exact_X - exact_K * (exact_K + (e + tau) * mpmath.eye(6)) ** -1 * exact_X
        r = mpmath.norm(residual) ** 2 / X.size
        assert abs(r - e) / (e + tau) < mpmath.mpf("1e-12")


def test_a_kernel_that_explains_nothing_has_the_largest_fixed_point():
    assert fixed_point(np.zeros(3), np.ones(3), 6.0) == pytest.approx(3.0)


def test_the_smoother_shrinks_the_norm():
    """Proposition 3: the norm of H is below 1, so smoothing shrinks any matrix."""
    X = np.random.default_rng(6).normal(0, 2, (40, 10))
    H = smoother(X)
    assert np.linalg.norm(H, 2) < 1
    assert np.linalg.norm(H.T @ X, 2) < np.linalg.norm(X, 2)
    np.testing.assert_allclose(H, H.T)


def test_images_stay_within_the_bound_of_theorem_8():
    X = np.random.default_rng(7).normal(0, 1, (25, 6))
    bound = np.linalg.norm(X, 2) * (1 + 6 * 25**2 / (2 * np.linalg.norm(X) ** 2))
    points = np.random.default_rng(8).normal(0, 100, (200, 6))
    assert np.all(np.linalg.norm(KAHM.fit(X).fold(points), axis=1) < bound)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_record_that_is_not_finite_is_named(bad):
    X = np.ones((4, 2))
    X[2, 1] = bad
    with pytest.raises(InputError, match="records: row 2 holds NaN or infinity"):
        KAHM.fit(X)


def test_a_query_of_another_dimension_is_refused():
    machine = KAHM.fit(np.ones((3, 2)))
    with pytest.raises(InputError, match="points: 5 features, expected 2"):
        machine.fold(np.ones((1, 5)))


def test_no_record_is_refused():
    with pytest.raises(InputError, match="0 rows"):
        KAHM.fit(np.empty((0, 3)))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    d=st.integers(1, 30),
    scale=st.sampled_from([1e-4, 1e-2, 1.0, 1e3]),
    offset=st.sampled_from([0.0, 3.0]),
)
def test_smoothing_by_factorisations_is_the_product_with_the_smoother(seed, n, d, scale, offset):
    """The smoother has K's eigenvectors, and takes eq. (150) by another root finder."""
    rng = np.random.default_rng(seed)
    X = scale * (rng.normal(size=(n, d)) + offset)
    expected = smoother(X) @ X
    np.testing.assert_allclose(smoothed(X), expected, rtol=0, atol=1e-11 * np.abs(X).max())
