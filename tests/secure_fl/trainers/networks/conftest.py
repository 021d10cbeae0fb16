"""Four clients with two of three classes each, and one thread for torch."""

import numpy as np
import pytest
import torch

from secure_fl.federation import Client


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def clients() -> list[Client]:
    rng = np.random.default_rng(3)
    centres = 2.0 * rng.normal(size=(3, 5))
    found = []
    for k in range(4):
        y = rng.choice([k % 3, (k + 1) % 3], size=24 + 4 * k)
        found.append(Client(f"c{k}", centres[y] + rng.normal(size=(len(y), 5)), y))
    return found
