"""Trees of arrays: what client steps return, and their sums.

A tree is an array (float64, float32 or int64), a Python or NumPy number (read as an array of shape
()), a `SparseArray`, `LowRank` or `PackedCodes`, a dict with string keys of trees, or a tuple or
list of trees.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import FederationError
from secure_fl.federation.codes import PackedCodes

Array: TypeAlias = NDArray[Any]
Tree: TypeAlias = Any
"""See above; a recursive alias would force casts on every trainer."""

DTYPES = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.int64))
_CODES = frozenset(dtype.char for dtype in DTYPES)


@dataclass(frozen=True, eq=False)
class SparseArray:
    """A vector that is 0 outside its indices; repeated indices add up.

    Attributes:
        indices: shape (k,), int64, in [0, size).
        values: shape (k,), float64 or float32.
        size: length of the vector.

    Raises:
        FederationError: shapes or types differ, or an index is out of range.
    """

    indices: NDArray[np.int64]
    values: Array
    size: int

    def __post_init__(self) -> None:
        if self.indices.dtype.char != "l" or self.values.dtype.char not in "df":
            raise FederationError(
                f"sparse array: found indices {self.indices.dtype} and values"
                f" {self.values.dtype}, expected int64 and float64 or float32"
            )
        if self.indices.ndim != 1 or self.indices.shape != self.values.shape:
            raise FederationError(
                f"sparse array: found indices of shape {self.indices.shape} and values of shape"
                f" {self.values.shape}, expected two vectors of one length"
            )
        if len(self.indices) and not (self.indices.min() >= 0 and self.indices.max() < self.size):
            raise FederationError(f"sparse array: an index lies outside [0, {self.size})")

    def dense(self) -> Array:
        """The vector, shape (size,)."""
        out = np.zeros(self.size, self.values.dtype)
        np.add.at(out, self.indices, self.values)
        return out


@dataclass(frozen=True, eq=False)
class LowRank:
    """A symmetric matrix of low rank: the sum of value times vector vector^T.

    In sums it is its packed lower triangle: entry (i, j), i >= j, stands at i(i+1)/2 + j.

    Attributes:
        values: shape (R,), float64.
        vectors: shape (R, d), float64.

    Raises:
        FederationError: shapes or types differ.
    """

    values: Array
    vectors: Array

    def __post_init__(self) -> None:
        good = self.values.dtype.char == "d" == self.vectors.dtype.char and self.vectors.ndim == 2
        if not good or self.values.shape != self.vectors.shape[:1]:
            raise FederationError(
                f"low rank: found values {self.values.dtype}{self.values.shape} and vectors"
                f" {self.vectors.dtype}{self.vectors.shape}, expected float64 (R,) and (R, d)"
            )

    @property
    def size(self) -> int:
        """Entries of the triangle."""
        d = self.vectors.shape[1]
        return d * (d + 1) // 2

    def dense(self) -> Array:
        """The packed triangle, shape (d(d+1)/2,)."""
        d = self.vectors.shape[1]
        whole = self.vectors.T @ (self.values[:, None] * self.vectors)
        return np.ascontiguousarray(whole[np.tri(d, dtype=bool)])


Leaf: TypeAlias = Array | SparseArray | LowRank | PackedCodes


@dataclass(frozen=True)
class Structure:
    """A tree without its numbers.

    Attributes:
        kind: "array", "sparse", "low rank", "quantised", "dict", "tuple" or "list".
        keys: of a dict, in its order.
        children: of a dict, tuple or list.
        dtype: of a leaf, as NumPy's one-letter code.
        bits: of an entry of a quantised leaf.
        shape: of a leaf; (size,) of a compact one.
    """

    kind: str
    keys: tuple[str, ...] = ()
    children: tuple["Structure", ...] = ()
    dtype: str = ""
    shape: tuple[int, ...] = ()
    bits: int = 0

    def text(self) -> str:
        """Short, for messages, e.g. {'w': float64(3, 2)}."""
        if self.kind == "dict":
            pairs = zip(self.keys, self.children, strict=True)
            return "{" + ", ".join(f"{key!r}: {child.text()}" for key, child in pairs) + "}"
        if self.children or not self.dtype:
            return f"{self.kind}({', '.join(child.text() for child in self.children)})"
        return (
            "" if self.kind == "array" else f"{self.kind} "
        ) + f"{np.dtype(self.dtype)}{self.shape}"


def flatten(tree: Tree) -> tuple[Structure, list[Leaf]]:
    """A tree's structure and its leaves, in order.

    Raises:
        FederationError: something in it is none of the allowed types; names the place.
    """
    leaves: list[Leaf] = []
    return _flatten(tree, leaves, ""), leaves


def _flatten(tree: Tree, leaves: list[Leaf], place: str) -> Structure:
    if isinstance(tree, np.ndarray):
        if tree.dtype.char not in _CODES:
            raise FederationError(
                f"tree{place}: found an array of {tree.dtype}, expected float64, float32 or int64"
            )
        leaves.append(tree)
        return _array(tree.dtype.char, tree.shape)
    if isinstance(tree, SparseArray):
        leaves.append(tree)
        return Structure("sparse", dtype=tree.values.dtype.char, shape=(tree.size,))
    if isinstance(tree, LowRank):
        leaves.append(tree)
        return Structure("low rank", dtype="d", shape=(tree.size,))
    if isinstance(tree, PackedCodes):
        leaves.append(tree)
        return Structure("quantised", dtype="d", shape=(tree.size,), bits=tree.bits)
    if isinstance(tree, dict):
        return _flatten_dict(tree, leaves, place)
    if isinstance(tree, tuple | list):
        children = tuple(_flatten(v, leaves, f"{place}[{i}]") for i, v in enumerate(tree))
        return Structure("tuple" if isinstance(tree, tuple) else "list", children=children)
    if isinstance(tree, float | int | np.floating | np.integer) and not isinstance(tree, bool):
        whole = isinstance(tree, int | np.integer)
        return _flatten(np.asarray(tree, np.int64 if whole else np.float64), leaves, place)
    raise FederationError(
        f"tree{place}: found {type(tree).__name__}, expected an array, a SparseArray, a LowRank,"
        " a PackedCodes, a number, or a dict, tuple or list of them"
    )


def _flatten_dict(tree: dict[Any, Tree], leaves: list[Leaf], place: str) -> Structure:
    for key in tree:
        if not isinstance(key, str):
            raise FederationError(f"tree{place}: found key {key!r}, expected a string")
    children = tuple(_flatten(v, leaves, f"{place}[{k!r}]") for k, v in tree.items())
    return Structure("dict", keys=tuple(tree), children=children)


_ARRAYS: dict[tuple[str, tuple[int, ...]], Structure] = {}


def _array(dtype: str, shape: tuple[int, ...]) -> Structure:
    # The same few shapes come back from every client of every round.
    found = _ARRAYS.get((dtype, shape))
    if found is None:
        if len(_ARRAYS) > 1000:
            _ARRAYS.clear()
        found = _ARRAYS[dtype, shape] = Structure("array", dtype=dtype, shape=shape)
    return found


def unflatten(structure: Structure, leaves: Sequence[Leaf]) -> Tree:
    """The tree of that structure; a sparse leaf may have become dense."""
    rest = iter(leaves)
    return _unflatten(structure, lambda: next(rest))


def _unflatten(structure: Structure, take: Callable[[], Leaf]) -> Tree:
    if structure.kind == "dict":
        values = [_unflatten(child, take) for child in structure.children]
        return dict(zip(structure.keys, values, strict=True))
    if structure.kind in ("tuple", "list"):
        values = [_unflatten(child, take) for child in structure.children]
        return tuple(values) if structure.kind == "tuple" else values
    return take()


def leaf_shapes(structure: Structure) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
    """Type and dense shape of the leaves, in order."""
    if structure.dtype:
        return [(np.dtype(structure.dtype), structure.shape)]
    return [leaf for child in structure.children for leaf in leaf_shapes(child)]


def split_leaves(structure: Structure, values: Array) -> list[Array]:
    """The dense leaves that stand one after the other in a vector."""
    leaves, start = [], 0
    for _, shape in leaf_shapes(structure):
        size = math.prod(shape)
        leaves.append(values[start : start + size].reshape(shape))
        start += size
    return leaves


def is_finite(leaf: Leaf) -> bool:
    """Whether a leaf holds neither NaN nor infinity."""
    if isinstance(leaf, LowRank):
        return is_finite(leaf.values) and is_finite(leaf.vectors)
    if isinstance(leaf, PackedCodes):
        return is_finite(leaf.dense())
    values = leaf.values if isinstance(leaf, SparseArray) else leaf
    if values.dtype.char == "l":
        return True
    # A finite sum has finite terms; only an infinite one needs the second look.
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()
    return bool(np.isfinite(total)) or bool(np.isfinite(values).all())
