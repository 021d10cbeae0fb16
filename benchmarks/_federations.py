"""A federation of heads in one process, for measurements that need no files."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kahm import Bank, split
from secure_fl.federation import Client, ring_degree

Array = NDArray[np.float32]
IntArray = NDArray[np.int64]
LOST, CORRUPT = 0.1, 0.1
"""Shares of contributors that a ring withstands: that drop out, and that collude."""


def ring_of(contributors: int) -> int:
    """Degree of the ring that so many contributors of a masked sum take."""
    return ring_degree(contributors, round(LOST * contributors), round(CORRUPT * contributors))


@dataclass(frozen=True)
class Cells:
    """The batches of every client and class.

    Attributes:
        batches: records, each of shape (N_i, d).
        cells: client * C + class of each batch.
        clients: Q.
        classes: C.
    """

    batches: list[Array]
    cells: list[int]
    clients: int
    classes: int

    def fit(self) -> Bank:
        """One bank of all clients' machines."""
        return Bank.fit(self.batches, self.cells, self.clients * self.classes)

    def measures(self, bank: Bank, queries: Array, measure: Any = "folding") -> NDArray[Any]:
        """Shape (queries, clients, classes)."""
        return bank.measures(queries, measure).reshape(-1, self.clients, self.classes)


def cells_of(
    X: Array, y: IntArray, parts: tuple[IntArray, ...], classes: int, batch_size: int
) -> Cells:
    """Batches in storage order of a partition.

    Args:
        X: records, shape (n, d).
        y: class codes, shape (n,).
        parts: the record indices of each client.
        classes: C.
        batch_size: N_b of eq. (119).
    """
    batches, cells = [], []
    rng = np.random.default_rng(0)  # storage order draws nothing from it
    for client, part in enumerate(parts):
        for c in np.unique(y[part]).tolist():
            own = X[part[y[part] == c]]
            for batch in split(own, batch_size, "order", rng):
                batches.append(batch)
                cells.append(client * classes + c)
    return Cells(batches, cells, len(parts), classes)


def clients_of(X: NDArray[Any], y: IntArray, parts: tuple[IntArray, ...]) -> list[Client]:
    """The clients of a partition, named in order.

    Args:
        X: records, shape (n, d).
        y: class codes, shape (n,).
        parts: the record indices of each client.
    """
    return [Client(f"client-{i:03d}", X[part], y[part]) for i, part in enumerate(parts)]
