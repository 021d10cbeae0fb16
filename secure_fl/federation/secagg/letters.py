"""What clients write to each neighbour, kept by the server until it is passed on."""

from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation.secagg.graph import Graph


class Letters:
    """Rows of bytes, one from each client to each neighbour; the server looks at none.

    A batch of queries passes on thousands: they stay in one array, and are picked by number.

    Args:
        addresses: of the clients.
        size: bytes of a row.
    """

    def __init__(self, addresses: "Addresses", size: int) -> None:
        self._addresses = addresses
        self._rows = np.zeros((*addresses.near.shape, size), np.uint8)

    @property
    def each(self) -> int:
        """Rows that a client writes, in the order of its neighbours."""
        return self._rows.shape[1]

    def put(self, name: str, rows: NDArray[np.uint8]) -> None:
        """Keeps what a client wrote, shape (each, size)."""
        self._rows[self._addresses.numbers[name]] = rows

    def to(self, name: str, senders: Set[str]) -> tuple[list[str], NDArray[np.uint8]]:
        """Which of those senders are its neighbours, and what they wrote to it."""
        book = self._addresses
        number = book.numbers[name]
        near = [i for i in book.near[number].tolist() if book.names[i] in senders]
        return [book.names[i] for i in near], self._rows[near, book.place[near, number]]


class Addresses:
    """Where clients find each other's rows.

    Args:
        names: of the clients, in their fixed order.
        graph: of them.

    Attributes:
        names: as given.
        numbers: of them, by name.
        near: numbers of each client's neighbours, in their order, shape (n, degree).
        place: of a client's row for another one, where they are neighbours, shape (n, n).
    """

    def __init__(self, names: Sequence[str], graph: Graph) -> None:
        self.names = tuple(names)
        self.numbers = {name: i for i, name in enumerate(names)}
        near = [[self.numbers[other] for other in graph.neighbours(name)] for name in names]
        self.near = np.array(near, np.intp)
        self.place = np.zeros((len(names), len(names)), np.intp)
        np.put_along_axis(self.place, self.near, np.arange(self.near.shape[1])[None], axis=1)
