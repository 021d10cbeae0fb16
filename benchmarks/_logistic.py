"""Logistic regression problems of the FedNL benchmarks: the papers' data sets cut in file order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from scipy.special import expit

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

    Client i has a model w_i and an offset c_i of mean u_i ~ N(0, alpha), and features of mean
    v_i ~ N(B_i, 1), B_i ~ N(0, beta); feature j has variance j^-1.2. A label is -1 with probability
    sigma(w_i a + c_i).
    """
    clients = []
    for i in range(NODES):
        u = rng.normal(0, alpha**0.5)
        model, offset = rng.normal(u, 1.0, FEATURES), rng.normal(u, 1.0)
        centre = rng.normal(rng.normal(0, beta**0.5), 1.0, FEATURES)
        clients.append(_node(i, model, offset, centre, rng))
    return clients, FEATURES


def iid(beta: float, rng: np.random.Generator) -> tuple[list[Client], int]:
    """The IID data of B.14: one model for all, and features of mean B_i ~ N(0, beta)."""
    model, offset = rng.normal(0, 1.0, FEATURES), rng.normal(0, 1.0)
    clients = [
        _node(i, model, offset, np.full(FEATURES, rng.normal(0, beta**0.5)), rng)
        for i in range(NODES)
    ]
    return clients, FEATURES


NODES, ROWS, FEATURES = 30, 200, 100
"""Of the synthetic data (B.14)."""


def _node(
    i: int, model: NDArray[Any], offset: float, centre: NDArray[Any], rng: np.random.Generator
) -> Client:
    deviation = np.arange(1, FEATURES + 1) ** -0.6
    A = centre + rng.standard_normal((ROWS, FEATURES)) * deviation
    p = expit(A @ model + offset)
    return Client(f"client {i}", csr_array(A), np.where(rng.random(ROWS) < p, -1.0, 1.0))
