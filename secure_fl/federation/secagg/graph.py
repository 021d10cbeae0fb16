"""Who masks with whom: everybody with everybody, or a random ring of fixed degree.

Bell, Bonawitz, Gascon, Lepoint, Raykova (2020), "Secure single-server aggregation with
(poly)logarithmic overhead": a Harary graph whose nodes were permuted at random.
"""

from collections.abc import Sequence

from secure_fl.crypto.keys import digest


class Graph:
    """The neighbours of every client.

    Each party derives the graph by itself, from what all of them know.

    Args:
        names: in their fixed order.
        degree: neighbours of each client, even; at least len(names) - 1 gives the complete graph.
        context: of the sum; decides the permutation.
    """

    def __init__(self, names: Sequence[str], degree: int, context: bytes) -> None:
        self._names = tuple(names)
        self._complete = degree >= len(names) - 1
        self._half = degree // 2
        self._ring: list[str] = []
        self._places = {name: i for i, name in enumerate(self._names)}
        if not self._complete:
            self._ring = sorted(names, key=lambda name: digest(context, b"ring", name.encode()))
            self._places = {name: i for i, name in enumerate(self._ring)}
        self._near: dict[str, tuple[str, ...]] = {}

    def neighbours(self, name: str) -> tuple[str, ...]:
        """A client's neighbours, in the fixed order; as many as any other's."""
        if name not in self._near:
            self._near[name] = self._found(name)
        return self._near[name]

    def _found(self, name: str) -> tuple[str, ...]:
        place, n = self._places[name], len(self._ring)
        if self._complete:
            return self._names[:place] + self._names[place + 1 :]
        offsets = (o for k in range(1, self._half + 1) for o in (k, -k))
        near = {self._ring[(place + offset) % n] for offset in offsets}
        return tuple(other for other in self._names if other in near)

    def holders(self, name: str) -> dict[str, int]:
        """It and its neighbours: who holds shares of its secrets, with their numbers from 1."""
        near = {*self.neighbours(name), name}
        members = [other for other in self._names if other in near]
        return {member: number for number, member in enumerate(members, start=1)}
