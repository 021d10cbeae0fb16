"""Random Fourier features and the constant feature."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from secure_fl.errors import FeatureError
from secure_fl.objectives import RandomFourierFeatures, with_constant


@given(variance=st.floats(1e-3, 10.0), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_inner_products_approach_the_gaussian_kernel(variance, seed):
    """Each product is a mean of M independent terms in [-2, 2]: six of its deviations bound it."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((6, 3))
    features = RandomFourierFeatures.draw(3, 20_000, variance, rng)
    mapped = features.apply(X)
    distances = np.square(X[:, None] - X[None]).sum(axis=2)
    kernel = np.exp(-0.5 * variance * distances)
    assert np.abs(mapped @ mapped.T - kernel).max() < 6 * np.sqrt(2.0 / features.count)


def test_sparse_records_map_to_what_dense_ones_map_to():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((9, 4)) < 0.4, rng.standard_normal((9, 4)), 0.0)
    features = RandomFourierFeatures.draw(4, 50, 0.5, rng)
    np.testing.assert_allclose(features.apply(csr_array(X)), features.apply(X), atol=1e-15)


def test_the_same_generator_gives_the_same_features():
    first, second = (
        RandomFourierFeatures.draw(3, 7, 1.0, np.random.default_rng(5)) for _ in range(2)
    )
    np.testing.assert_array_equal(first.frequencies, second.frequencies)
    np.testing.assert_array_equal(first.phases, second.phases)


def test_another_number_of_features_is_refused():
    features = RandomFourierFeatures.draw(3, 7, 1.0, np.random.default_rng(0))
    with pytest.raises(FeatureError, match="4 features"):
        features.apply(np.zeros((2, 4)))


@pytest.mark.parametrize("arguments", [(0, 5, 1.0), (3, 0, 1.0), (3, 5, 0.0), (3, 5, np.nan)])
def test_sizes_and_variance_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match="variance"):
        RandomFourierFeatures.draw(*arguments, np.random.default_rng(0))


def test_the_constant_is_the_last_feature_of_dense_and_sparse_records():
    X = np.arange(6.0).reshape(2, 3)
    wide = with_constant(X)
    np.testing.assert_array_equal(wide, np.c_[X, [1.0, 1.0]])
    sparse = with_constant(csr_array(X))
    assert sparse.format == "csr"
    np.testing.assert_array_equal(sparse.toarray(), wide)
    assert with_constant(X.astype(np.float32)).dtype == np.float32
