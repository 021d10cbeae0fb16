"""Dividing one data set over simulated clients."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secure_fl.data import (
    Dataset,
    by_group,
    dirichlet,
    group_names,
    iid,
    long_tailed,
    pathological,
    shards,
    within,
)
from secure_fl.errors import PartitionError

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Division:
    """How records are divided.

    Attributes:
        how: "iid", "dirichlet", "pathological", "shards" or "group".
        clients: number of clients; not used by "group".
        alpha: of "dirichlet", above 0.
        labels_per_client: of "pathological".
        shards_per_client: of "shards".
        rho: long-tailed ratio to which the classes are thinned first; None keeps all records.
    """

    how: str
    clients: int | None
    alpha: float = 0.5
    labels_per_client: int = 2
    shards_per_client: int = 2
    rho: float | None = None


def divide(whole: Dataset, division: Division, seed: int) -> tuple[Dataset, ...]:
    """One data set a client, named client-00, client-01, ... or after its group.

    Raises:
        PartitionError: the division cannot be made of these records.
    """
    rng = np.random.default_rng(seed)
    kept = np.arange(len(whole))
    if division.rho is not None:
        kept = long_tailed(whole.y, division.rho, rng)
    if division.how == "group":
        if whole.groups is None:
            raise PartitionError(
                f"{whole.source}: holds no groups; name the column (--group-column)"
            )
        groups = [whole.groups[i] for i in kept]
        names, parts = group_names(groups), by_group(groups)
    else:
        parts = _parts(whole.y[kept], division, rng)
        width = max(2, len(str(len(parts) - 1)))
        names = tuple(f"client-{i:0{width}d}" for i in range(len(parts)))
    return tuple(
        whole.select(rows, name) for name, rows in zip(names, within(kept, parts), strict=True)
    )


def _parts(y: Codes, division: Division, rng: np.random.Generator) -> tuple[Codes, ...]:
    if division.clients is None:
        raise PartitionError(f"{division.how}: number of clients missing; give --clients")
    if division.how == "iid":
        return iid(len(y), division.clients, rng)
    if division.how == "dirichlet":
        return dirichlet(y, division.clients, division.alpha, rng)
    if division.how == "pathological":
        return pathological(y, division.clients, division.labels_per_client, rng)
    if division.how == "shards":
        return shards(y, division.clients, division.shards_per_client, rng)
    raise PartitionError(f"division {division.how!r} is unknown")
