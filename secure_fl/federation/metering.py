"""What crosses between each client and the server, in both directions.

Bytes are those of the messages as `wire` (or the secure aggregation protocol) encodes them, whether
or not the runtime really encodes: in one process nothing is copied, and the figures are the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Traffic:
    """What one client exchanged.

    Attributes:
        bytes_down: server to client.
        bytes_up: client to server.
        floats_down: floating-point numbers in what the server sent.
        floats_up: floating-point numbers in what the client sent; under secure aggregation the
            masked integers that stand for them.
    """

    bytes_down: int = 0
    bytes_up: int = 0
    floats_down: int = 0
    floats_up: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.bytes_down + other.bytes_down,
            self.bytes_up + other.bytes_up,
            self.floats_down + other.floats_down,
            self.floats_up + other.floats_up,
        )


BYTES_DOWN, BYTES_UP, FLOATS_DOWN, FLOATS_UP = range(4)


@dataclass(eq=False)
class Meter:
    """Counts per client, of the current round and in all.

    Attributes:
        names: the clients.
    """

    names: Sequence[str]
    _round: NDArray[np.int64] = field(init=False)
    _total: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self._round = np.zeros((4, len(self.names)), np.int64)
        self._total = np.zeros((4, len(self.names)), np.int64)

    def down(self, places: Sequence[int], n_bytes: int, n_floats: int) -> None:
        """The server sent the same message to each of these clients."""
        self._round[BYTES_DOWN, places] += n_bytes
        self._round[FLOATS_DOWN, places] += n_floats

    def up(self, places: Sequence[int], n_bytes: Iterable[int], n_floats: Iterable[int]) -> None:
        """Each of these clients sent one message; one number each."""
        self._round[BYTES_UP, places] += np.fromiter(n_bytes, np.int64, len(places))
        self._round[FLOATS_UP, places] += np.fromiter(n_floats, np.int64, len(places))

    def add(self, place: int, traffic: Traffic) -> None:
        """One client exchanged this."""
        self._round[:, place] += (
            traffic.bytes_down,
            traffic.bytes_up,
            traffic.floats_down,
            traffic.floats_up,
        )

    def close_round(self) -> None:
        """Adds the round to the totals."""
        self._total += self._round
        self._round[:] = 0

    def of_round(self, name: str | None = None) -> Traffic:
        """Of the current round: one client's, or the sum over clients."""
        return _traffic(self._round, self._place(name))

    def total(self, name: str | None = None) -> Traffic:
        """Since the start, the current round included: one client's, or the sum over clients."""
        return _traffic(self._total + self._round, self._place(name))

    def rows(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Of the current round, by client: bytes down and up, floats down and up."""
        wanted = set(names)
        columns = self._round.T.tolist()
        return {n: row for n, row in zip(self.names, columns, strict=True) if n in wanted}

    def snapshot(self) -> NDArray[np.int64]:
        """Totals of finished rounds, shape (4, clients), for a checkpoint."""
        return self._total.copy()

    def restore(self, totals: NDArray[np.int64]) -> None:
        """Continues from a checkpoint's totals."""
        self._total[:] = totals
        self._round[:] = 0

    def _place(self, name: str | None) -> int | None:
        return None if name is None else list(self.names).index(name)


def _traffic(counts: NDArray[np.int64], place: int | None) -> Traffic:
    column = counts.sum(axis=1) if place is None else counts[:, place]
    return Traffic(*(int(each) for each in column))
