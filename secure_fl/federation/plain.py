"""The sum without masks: what a trusted server computes, in the clients' fixed order."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from secure_fl.federation.errors import FederationError
from secure_fl.federation.trees import Array, Leaf, SparseArray, Structure


@dataclass(frozen=True)
class Contribution:
    """What one client adds to a sum.

    Attributes:
        name: the client.
        structure: of its tree.
        leaves: of its tree.
        weight: factor on every leaf where a mean is asked for; 1 otherwise.
    """

    name: str
    structure: Structure
    leaves: list[Leaf]
    weight: float = 1.0


@dataclass(frozen=True)
class PlainTotal:
    """A sum of trees.

    Attributes:
        structure: of every contribution; None where there was none.
        leaves: dense sums, float64 or int64.
        weight: sum of the weights.
        names: whose contributions are in it.
    """

    structure: Structure | None
    leaves: list[Array]
    weight: float
    names: tuple[str, ...]


class PlainSum:
    """Adds contributions as they come; float32 leaves are added in float64."""

    def sum(self, contributions: Iterable[Contribution], *, weighted: bool) -> PlainTotal:
        """The sum of the contributions, each times its weight if `weighted`.

        Raises:
            FederationError: two clients returned trees of different structure.
        """
        structure: Structure | None = None
        totals: list[Array] = []
        weight = 0.0
        names: list[str] = []
        for each in contributions:
            if structure is None:
                structure = each.structure
                totals = [_zeros(leaf, weighted) for leaf in each.leaves]
            else:
                same_structure(structure, each, names[0])
            for total, leaf in zip(totals, each.leaves, strict=True):
                _add(total, leaf, each.weight if weighted else None)
            weight += each.weight
            names.append(each.name)
        return PlainTotal(structure, totals, weight, tuple(names))


def same_structure(structure: Structure, found: Contribution, first: str) -> None:
    """Raises FederationError unless a contribution has this structure, that of client `first`."""
    if found.structure is not structure and found.structure != structure:
        raise FederationError(
            f'client "{found.name}": its step returned {found.structure.text()}, client'
            f' "{first}" returned {structure.text()}; a step must return one structure everywhere'
        )


def _zeros(leaf: Leaf, weighted: bool) -> Array:
    if isinstance(leaf, SparseArray):
        return np.zeros(leaf.size)
    whole = leaf.dtype.char == "l" and not weighted
    return np.zeros(leaf.shape, np.int64 if whole else np.float64)


def _add(total: Array, leaf: Leaf, weight: float | None) -> None:
    if isinstance(leaf, SparseArray):
        values = leaf.values.astype(np.float64, copy=False)
        np.add.at(total, leaf.indices, values if weight is None else values * weight)
    elif weight is None:
        np.add(total, leaf, out=total)
    else:
        np.add(total, np.multiply(leaf, weight, dtype=np.float64), out=total)
