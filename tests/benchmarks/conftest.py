"""What tests of benchmarks share."""

import numpy as np
import pytest

from benchmarks import _regularised as shared
from secure_fl.federation import Client


@pytest.fixture(scope="session")
def small():
    """Three clients of 20 records: what is trained on them costs nothing."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 3, 60)
    clients = [Client(f"c{k}", X[k::3], y[k::3]) for k in range(3)]
    return shared.problem(clients, 3, (X, y), 0, 1, rng)
