"""Second moments with targets that are numbers: how much one record can move them."""

import numpy as np
import pytest

from secure_fl.errors import InputError
from secure_fl.federation import Client
from secure_fl.trainers.linear._noisy_moments import (
    SENSITIVITIES,
    MomentNoise,
    local_noisy_moments,
    moments_with,
)


def unit_ball(rng, n, d):
    """Points of norm at most 1, half of them on the sphere."""
    points = rng.normal(size=(n, d))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points * np.where(rng.random((n, 1)) < 0.5, 1.0, rng.random((n, 1)))


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_no_pair_of_records_moves_the_moments_further_than_is_booked(adjacency):
    """Searched at random, and at the worst case: opposite targets, cosine 1/2."""
    rng = np.random.default_rng(0)
    largest = 0.0
    for d, outputs in ((2, 1), (2, 2), (3, 1)):
        X, Y = unit_ball(rng, 4000, d), unit_ball(rng, 4000, outputs)
        for x, z, y, v in zip(X[::2], X[1::2], Y[::2], Y[1::2], strict=True):
            if adjacency == "add-remove":
                z, v = 0 * z, 0 * v
            moved = moments_with(x[None], y[None]) - moments_with(z[None], v[None])
            largest = max(largest, float(np.linalg.norm(moved)))
    bound = SENSITIVITIES[adjacency]
    assert 0.9 * bound < largest <= bound * (1 + 1e-12)


def test_the_worst_pair_moves_them_just_as_far():
    x, z, y = np.array([[1.0, 0.0]]), np.array([[0.5, np.sqrt(0.75)]]), np.array([[1.0]])
    moved = moments_with(x, y) - moments_with(z, -y)
    np.testing.assert_allclose(np.linalg.norm(moved), SENSITIVITIES["replace"], rtol=1e-12)


def test_targets_are_clipped_to_their_norm():
    """A record of a huge target moves the sum no further than one at the norm."""
    X = np.array([[0.6, 0.0]])
    noise = MomentNoise(1.0, 1, 1.0, target_norm=2.0)
    step = [local_noisy_moments(Client("a", X, np.array([[value]])), noise) for value in (2.0, 1e9)]
    # The noise has a deviation of one grid step, 2^-20.
    np.testing.assert_allclose(step[0], step[1], atol=1e-4)


def test_targets_of_another_shape_are_refused():
    noise = MomentNoise(1.0, 2, 1.0, target_norm=2.0)
    with pytest.raises(InputError, match="targets of shape"):
        local_noisy_moments(Client("a", np.ones((3, 2)), np.ones((3, 1))), noise)
