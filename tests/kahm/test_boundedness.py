"""Theorems 8 and 9 hold at every point that hypothesis finds, near and far."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kahm import KAHM
from kahm.boundedness import folding_ratio_bound, image_bound


@settings(max_examples=120)
@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.floats(-3.0, 3.0),
    st.floats(-3.0, 4.0),
    st.floats(0.0, 3.0),
    st.integers(0, 10**6),
)
def test_no_image_is_longer_and_no_point_farther_from_it_than_the_theorems_say(
    count, width, scale, distance, offset, seed
):
    rng = np.random.default_rng(seed)
    X = 10.0**scale * (rng.normal(size=(count, width)) + offset)
    points = 10.0**distance * rng.normal(size=(5, width))
    images = KAHM.fit(X).fold(points)
    length, ratio = image_bound(X), folding_ratio_bound(X)
    for x, image in zip(points, images, strict=True):
        assert np.linalg.norm(image) <= length * (1 + 1e-9)
        spread = np.linalg.svd(x - X, compute_uv=False)[0]
        assert np.linalg.norm(x - image) <= ratio * spread * (1 + 1e-9) + 1e-12


def test_the_bounds_by_hand():
    """N = 2, n = 1, X = (3, 4): |X|_F^2 = 25 = |X|_2^2, so 1 + 4 / 50."""
    X = np.array([[3.0], [4.0]])
    assert folding_ratio_bound(X) == pytest.approx(1.08)
    assert image_bound(X) == pytest.approx(5.4)
    assert image_bound(np.zeros((2, 3))) == folding_ratio_bound(np.zeros((2, 3))) == float("inf")
