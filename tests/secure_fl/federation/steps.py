"""Client steps of the tests: module-level, so that worker processes find them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import Client, SparseArray, Tree, broadcastable, client_step

Array = NDArray[np.float64]


@broadcastable
@dataclass(frozen=True)
class Ridge:
    """An objective as trainers broadcast it."""

    damping: float
    name: str = "ridge"


@client_step
def gradient(client: Client, objective: Ridge, weights: Array) -> Array:
    residual = client.features @ weights - client.targets
    return client.features.T @ residual + objective.damping * weights


@client_step
def statistics(client: Client) -> Tree:
    """One leaf of every kind that a sum keeps."""
    X = np.asarray(client.features)
    return {
        "moment": X.T @ X,
        "count": np.array([len(client)]),
        "pair": (X.sum(axis=0).astype(np.float32), [float(client.targets.sum())]),
    }


@client_step
def constant(client: Client, value: Tree) -> Tree:
    return value


@client_step
def poisoned(client: Client, bad: tuple[str, ...], value: float) -> Array:
    return np.array([1.0, value if client.name in bad else 2.0])


@client_step
def drawn(client: Client) -> Array:
    return client.rng.normal(size=3)


@client_step
def counted(client: Client) -> Array:
    """Its own calls so far: state kept between rounds."""
    count = client.state.get("count", np.zeros(1))
    client.state["count"] = count + 1
    return client.state["count"]


@client_step
def sparse(client: Client, size: int) -> SparseArray:
    rng = np.random.default_rng(len(client))
    indices = np.sort(rng.choice(size, 3, replace=False))
    return SparseArray(indices, rng.normal(size=3), size)


@client_step
def failing(client: Client) -> Array:
    raise ZeroDivisionError("no such luck")


@client_step
def uneven(client: Client) -> Array:
    return np.zeros(3 if client.name == "b" else 2)
