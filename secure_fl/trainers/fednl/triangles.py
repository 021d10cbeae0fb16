"""Symmetric matrices as packed lower triangles: entry (i, j), i >= j, stands at i(i+1)/2 + j."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def packed_size(d: int) -> int:
    """Entries of the lower triangle of a (d, d) matrix, diagonal included."""
    return d * (d + 1) // 2


@functools.lru_cache(maxsize=8)
def diagonal_places(d: int) -> NDArray[np.int64]:
    """Where the diagonal stands in a packed triangle, shape (d,)."""
    rows = np.arange(d, dtype=np.int64)
    places = rows * (rows + 1) // 2 + rows
    places.setflags(write=False)
    return places


def pack(matrix: Array) -> Array:
    """The lower triangle of a symmetric (d, d) matrix, shape (d(d+1)/2,)."""
    return np.ascontiguousarray(matrix[np.tri(len(matrix), dtype=bool)])


@functools.lru_cache(maxsize=8)
def _triangles(d: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Flat places of a (d, d) matrix's lower triangle, and of its mirror image, in packed order."""
    rows, columns = np.tril_indices(d)
    return rows * d + columns, columns * d + rows


def unpack(packed: Array, d: int) -> Array:
    """The symmetric (d, d) matrix of a packed triangle."""
    out = np.empty(d * d)
    lower, upper = _triangles(d)
    out[lower] = packed
    out[upper] = packed
    return out.reshape(d, d)


def places_of(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Packed places of entries with rows >= columns."""
    return rows * (rows + 1) // 2 + columns


def entries_of(places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of packed places, rows >= columns."""
    rows = ((np.sqrt(8.0 * places + 1.0) - 1.0) / 2.0).astype(np.int64)
    # The square root may round across a whole number.
    rows -= rows * (rows + 1) // 2 > places
    rows += (rows + 1) * (rows + 2) // 2 <= places
    return rows, places - rows * (rows + 1) // 2
