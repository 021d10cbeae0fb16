"""What the server of a secure sum passes on between neighbours."""

import numpy as np
import pytest

from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.letters import Addresses, Letters

NAMES = tuple(f"c{i}" for i in range(9))


@pytest.mark.parametrize("degree", [4, 8])
def test_each_client_gets_what_its_neighbours_wrote_to_it_and_nothing_else(degree):
    """On a ring and on the complete graph; two clients have gone."""
    graph = Graph(NAMES, degree, b"c" * 32)
    letters = Letters(Addresses(NAMES, graph), 2)
    for i, name in enumerate(NAMES):
        rows = [[i, NAMES.index(other)] for other in graph.neighbours(name)]
        letters.put(name, np.array(rows, np.uint8))
    left = set(NAMES[:7])
    for name in left:
        senders, rows = letters.to(name, left)
        expected = [other for other in graph.neighbours(name) if other in left]
        assert senders == expected
        assert rows.tolist() == [[NAMES.index(other), NAMES.index(name)] for other in expected]
