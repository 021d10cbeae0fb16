"""Synthetic(u, v) of Li et al. 2020, "On the convergence of FedAvg on non-IID data" (ICLR).

FedAvgR's synthetic set (fedavgr.txt, 5.1) is made by that paper's method.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import Client

Array = NDArray[np.float32]
CLIENTS, CLASSES, FEATURES = 10, 10, 60
LEAST = 100
"""Records of a client that fedavgr.txt has at least (5.2); the generator's is 50."""
POWER = (4.0, 2.0)
"""Mean and deviation of the logarithm of what a client has above that."""
TESTED = 10_000


@dataclass(frozen=True)
class Synthetic:
    """One draw of a federation.

    Attributes:
        clients: with their training records.
        test: features and class codes of records of the clients' mixture, by their shares.
    """

    clients: list[Client]
    test: tuple[Array, NDArray[np.int64]]


def drawn(u: float, v: float, rng: np.random.Generator) -> Synthetic:
    """Clients with classifiers and features of their own, a power law of records.

    Client k has the class argmax(W_k x + b_k), every number of W_k and b_k from N(u_k, 1) with u_k
    from N(0, u), of features from N(v_k, diag(j^-1.2)), every number of v_k from N(B_k, 1) with B_k
    from N(0, v). u and v are deviations, as in the published generator.

    Args:
        u: how much the clients' classifiers differ, at least 0.
        v: how much their features do, at least 0.
        rng: of all draws.
    """
    sizes = rng.lognormal(*POWER, CLIENTS).astype(int) + LEAST
    tested = rng.multinomial(TESTED, sizes / sizes.sum())
    deviations = np.arange(1, FEATURES + 1) ** -0.6
    clients: list[Client] = []
    test: list[tuple[Any, Any]] = []
    for k in range(CLIENTS):
        of_weights = rng.normal(0, u)
        W, b = rng.normal(of_weights, 1, (FEATURES, CLASSES)), rng.normal(of_weights, 1, CLASSES)
        centre = rng.normal(rng.normal(0, v), 1, FEATURES)
        x = centre + deviations * rng.standard_normal((sizes[k] + tested[k], FEATURES))
        y = np.argmax(x @ W + b, axis=1)
        own = slice(sizes[k])
        clients.append(Client(f"client-{k:03d}", x[own].astype(np.float32), y[own]))
        test.append((x[sizes[k] :].astype(np.float32), y[sizes[k] :]))
    features, classes = zip(*test, strict=True)
    return Synthetic(clients, (np.concatenate(features), np.concatenate(classes)))
