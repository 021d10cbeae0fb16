"""The sum without masks: what a trusted server computes, in the clients' fixed order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from secure_fl.errors import FederationError
from secure_fl.federation.codes import PackedCodes
from secure_fl.federation.cohort import LowRankRows, Rows, SparseRows, Stack
from secure_fl.federation.trees import Array, Leaf, LowRank, SparseArray, Structure


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
        totals: list[_Total] = []
        weight = 0.0
        names: list[str] = []
        for each in contributions:
            if structure is None:
                structure = each.structure
                totals = [_total_of(leaf, weighted) for leaf in each.leaves]
            else:
                same_structure(structure, each, names[0])
            for total, leaf in zip(totals, each.leaves, strict=True):
                total.add(leaf, each.weight if weighted else None)
            weight += each.weight
            names.append(each.name)
        return PlainTotal(structure, [total.result() for total in totals], weight, tuple(names))

    def sum_stacks(
        self, structure: Structure, stacks: Sequence[Stack], names: tuple[str, ...], weight: float
    ) -> PlainTotal:
        """`sum`, unweighted, of the rows of stacks: to the same bits, without a call a client.

        Args:
            structure: of one client's tree.
            stacks: at least 1, of clients in order.
            names: of these clients.
            weight: of them all.
        """
        first = next(stacks[0].trees())
        totals = [_total_of(leaf, weighted=False) for leaf in first.values()]
        for stack in stacks:
            for total, rows in zip(totals, stack.leaves.values(), strict=True):
                total.add_rows(rows)
        return PlainTotal(structure, [total.result() for total in totals], weight, names)


def same_structure(structure: Structure, found: Contribution, first: str) -> None:
    """Raises FederationError unless a contribution has this structure, that of client `first`."""
    if found.structure is not structure and found.structure != structure:
        raise FederationError(
            f'client "{found.name}": its step returned {found.structure.text()}, client'
            f' "{first}" returned {structure.text()}; a step must return one structure everywhere'
        )


class _DenseTotal:
    def __init__(self, zeros: Array) -> None:
        self._total = zeros

    def add(self, leaf: Leaf, weight: float | None) -> None:
        if isinstance(leaf, PackedCodes):
            leaf = leaf.dense()
        assert isinstance(leaf, np.ndarray)
        if weight is None:
            np.add(self._total, leaf, out=self._total)
        else:
            product = np.multiply(leaf, weight, dtype=np.float64)
            np.add(self._total, product, out=self._total)

    def add_rows(self, rows: Rows) -> None:
        assert isinstance(rows, np.ndarray)
        if self._total.size > 1:
            # Adds along the first axis one row after the other; a single column it would pair.
            self._total = np.add.reduce(np.concatenate([self._total[None], rows]), axis=0)
            return
        for row in rows:
            np.add(self._total, row, out=self._total)

    def result(self) -> Array:
        return self._total


class _SparseTotal:
    def __init__(self, size: int) -> None:
        self._total = np.zeros(size)

    def add(self, leaf: Leaf, weight: float | None) -> None:
        assert isinstance(leaf, SparseArray)
        values = leaf.values.astype(np.float64, copy=False)
        np.add.at(self._total, leaf.indices, values if weight is None else values * weight)

    def add_rows(self, rows: Rows) -> None:
        assert isinstance(rows, SparseRows)
        np.add.at(self._total, rows.indices, rows.values)

    def result(self) -> Array:
        return self._total


@dataclass
class _LowRankTotal:
    """Keeps the factors and multiplies them at the end, all in one product."""

    values: list[Array] = field(default_factory=list)
    vectors: list[Array] = field(default_factory=list)

    def add(self, leaf: Leaf, weight: float | None) -> None:
        assert isinstance(leaf, LowRank)
        self.values.append(leaf.values if weight is None else leaf.values * weight)
        self.vectors.append(leaf.vectors)

    def add_rows(self, rows: Rows) -> None:
        assert isinstance(rows, LowRankRows)
        self.values.append(rows.values.ravel())
        self.vectors.append(rows.vectors.reshape(-1, rows.vectors.shape[2]))

    def result(self) -> Array:
        # Of single rows the result may be in either order, and the product's bits with it.
        vectors = np.ascontiguousarray(np.concatenate(self.vectors))
        return LowRank(np.concatenate(self.values), vectors).dense()


_Total: TypeAlias = _DenseTotal | _SparseTotal | _LowRankTotal


def _total_of(leaf: Leaf, weighted: bool) -> _Total:
    if isinstance(leaf, SparseArray):
        return _SparseTotal(leaf.size)
    if isinstance(leaf, LowRank):
        return _LowRankTotal()
    if isinstance(leaf, PackedCodes):
        return _DenseTotal(np.zeros(leaf.size))
    whole = leaf.dtype.char == "l" and not weighted
    return _DenseTotal(np.zeros(leaf.shape, np.int64 if whole else np.float64))
