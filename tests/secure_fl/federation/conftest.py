"""Three small clients of different sizes."""

from collections.abc import Callable

import numpy as np
import pytest

from secure_fl.federation import Client


def make_clients(n: int = 3, features: int = 4) -> list[Client]:
    """Clients "a", "b", ... of 5, 6, ... records."""
    rng = np.random.default_rng(7)
    return [
        Client(
            chr(97 + i) if i < 26 else f"client{i}",
            rng.normal(size=(5 + i, features)),
            rng.normal(size=5 + i),
        )
        for i in range(n)
    ]


@pytest.fixture
def clients() -> list[Client]:
    return make_clients()


@pytest.fixture
def many() -> Callable[[int], list[Client]]:
    return make_clients
