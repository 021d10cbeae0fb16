"""Logistic regression problems of the FedNL benchmarks: the papers' data sets cut in file order."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from benchmarks._harness import shared_data
from secure_fl.data.libsvm import read_libsvm
from secure_fl.federation import Client

SETTINGS = {
    "a1a": (16, 100, 123),
    "a9a": (80, 407, 123),
    "phishing": (100, 110, 68),
    "w8a": (142, 350, 300),
}
"""Clients, rows a client and features of each data set (FedNL, table 6)."""


def clients_of(name: str, *, intercept: bool) -> tuple[list[Client], int]:
    """The clients of a data set, and the number of features.

    Args:
        name: of `SETTINGS`.
        intercept: append a feature that is always 1.

    Raises:
        DataMissingError: the file is absent.
    """
    n, m, d = SETTINGS[name]
    records = read_libsvm(shared_data("libsvm", f"{name}.bz2"), d, sparse=True)
    targets = np.where(np.array(records.labels) == "1", 1.0, -1.0)
    rows = csr_array(records.X)
    if intercept:
        rows, d = csr_array(hstack([rows, np.ones((len(targets), 1))])), d + 1
    return cut(rows, targets, n, m), d


def cut(rows: Any, targets: Any, n: int, m: int) -> list[Client]:
    """n clients of m rows each, in order."""
    parts = [slice(i * m, (i + 1) * m) for i in range(n)]
    return [Client(f"client {i}", rows[part], targets[part]) for i, part in enumerate(parts)]


def synthetic(alpha: float, beta: float, rng: np.random.Generator) -> tuple[list[Client], int]:
    """Synthetic(alpha, beta) of B.14: 30 clients of 200 rows, 100 features.

    Client i has a model with mean u_i ~ N(0, alpha), features with mean v_i ~ N(B_i, 1),
    B_i ~ N(0, beta), and variances j^-1.2 in feature j.
    """
    n, m, d = 30, 200, 100
    clients = []
    for i in range(n):
        model = rng.normal(rng.normal(0, alpha**0.5), 1.0, d)
        offset = rng.normal(rng.normal(0, beta**0.5), 1.0, d)
        A = offset + rng.standard_normal((m, d)) * np.arange(1, d + 1) ** -0.6
        p = 1 / (1 + np.exp(-np.clip(A @ model + rng.normal(0, alpha**0.5), -700, 700)))
        clients.append(Client(f"client {i}", csr_array(A), np.where(rng.random(m) < p, 1.0, -1.0)))
    return clients, d
