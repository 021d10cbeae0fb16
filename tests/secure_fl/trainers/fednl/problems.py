"""Federations of the tests: the papers' data sets, and small random ones."""

import functools

import numpy as np
from scipy.sparse import csr_array

from secure_fl.data.libsvm import Records, read_libsvm
from secure_fl.federation import Client
from tests.secure_fl.shared import shared_file


@functools.cache
def _records(name: str, d: int) -> Records:
    """A whole file, read once for all tests; no step changes its clients' records."""
    return read_libsvm(shared_file("libsvm", f"{name}.bz2"), d, sparse=True)


def real_clients(name: str, n: int, m: int, d: int) -> list[Client]:
    """The first n*m rows in file order, m a client."""
    records = _records(name, d)
    targets = np.where(np.array(records.labels) == "1", 1.0, -1.0)
    rows = [slice(i * m, (i + 1) * m) for i in range(n)]
    return [Client(f"c{i}", records.X[r], targets[r]) for i, r in enumerate(rows)]


def random_clients(n: int, m: int, d: int, seed: int = 0, density: float = 0.4) -> list[Client]:
    """Sparse rows with random targets."""
    rng = np.random.default_rng(seed)
    clients = []
    for i in range(n):
        rows = rng.standard_normal((m, d)) * (rng.random((m, d)) < density)
        targets = rng.choice([-1.0, 1.0], m)
        clients.append(Client(f"c{i}", csr_array(rows), targets))
    return clients
