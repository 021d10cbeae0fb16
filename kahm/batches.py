"""Splitting the records of one class of one client into batches (kahm.txt, remarks 10 and 11)."""

import math
from typing import Literal, get_args

import numpy as np
from scipy.cluster.vq import kmeans2

from kahm._typing import Array, IntArray
from kahm.errors import InputError
from kahm.machine import centred

Batching = Literal["order", "clusters"]
BATCHINGS: tuple[Batching, ...] = get_args(Batching)


def batch_count(n_records: int, batch_size: int) -> int:
    """S of eq. (119): records over batch size, to the nearest integer (half up), at least 1."""
    if batch_size < 1:
        raise InputError(f"batch size: found {batch_size}, expected at least 1")
    return max(1, math.floor(n_records / batch_size + 0.5))


def split_by_order(X: Array, batch_size: int) -> list[Array]:
    """Batches of nearly equal size in storage order (eq. 120); data-independent."""
    return np.array_split(X, batch_count(len(X), batch_size))


def split_by_clusters(X: Array, batch_size: int, rng: np.random.Generator) -> list[Array]:
    """Batches by k-means (remark 11); a batch's size then varies, none is empty.

    Which batch a record is in depends on the other records, so an element-level privacy statement
    made for batches in storage order does not hold for these.
    """
    return [X[rows] for rows in _cluster_rows(X, batch_size, rng)]


def _cluster_rows(X: Array, batch_size: int, rng: np.random.Generator) -> list[IntArray]:
    k = batch_count(len(X), batch_size)
    if k == 1:
        return [np.arange(len(X))]
    # It takes distances from products, which lose the digits that an offset takes.
    _, about = centred(X.astype(np.float64))
    _, labels = kmeans2(about, k, minit="++", seed=rng)
    return [np.flatnonzero(labels == i) for i in range(k) if np.any(labels == i)]


def split(X: Array, batch_size: int, how: Batching, rng: np.random.Generator) -> list[Array]:
    """Batches by `how`; `rng` draws the first centres of the clusters.

    Raises:
        InputError: no record, a batch size below 1, or an unknown way.
    """
    _check_split(len(X), how)
    if how == "order":
        return split_by_order(X, batch_size)
    return split_by_clusters(X, batch_size, rng)


def split_rows(
    X: Array, batch_size: int, how: Batching, rng: np.random.Generator
) -> list[IntArray]:
    """As `split`, but the rows of each batch, ascending.

    Raises:
        InputError: as `split`.
    """
    _check_split(len(X), how)
    if how == "order":
        return list(np.array_split(np.arange(len(X)), batch_count(len(X), batch_size)))
    return _cluster_rows(X, batch_size, rng)


def _check_split(n_records: int, how: str) -> None:
    if n_records == 0:
        raise InputError("records: 0 rows, a batch needs at least 1")
    if how not in BATCHINGS:
        raise InputError(f"batching: {how!r} is unknown, expected one of {', '.join(BATCHINGS)}")
