"""Choosing settings by cross-validation on the clients' training records, as a federation can.

Every client divides its own records into folds. A setting is trained on all folds but one, and the
left-out records are scored at the clients: the server sees models and sums of counts. No other
records enter, so test records cannot.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from scipy.special import log_softmax

from secure_fl.federation import Client, Federation, FederationError, Tree, client_step
from secure_fl.trainers.networks.local import network_of
from secure_fl.trainers.networks.models import Array, Model, correct, load, scores

Federate: TypeAlias = Callable[[Sequence[Client]], Federation]
Settings: TypeAlias = dict[str, float]


@client_step
def scored(client: Client, model: Model, parameters: Array) -> Tree:
    """How many of the client's records the model classifies right, and how many there are."""
    network = network_of(client, model, "cpu")
    load(network, parameters)
    right = correct(network, client.features, client.targets)
    return {"right": float(right), "records": float(len(client))}


@client_step
def lost(client: Client, model: Model, parameters: Array) -> Tree:
    """The sum of the cross entropies of the client's records, and how many records there are."""
    network = network_of(client, model, "cpu")
    load(network, parameters)
    found = log_softmax(scores(network, client.features).astype(np.float64), axis=1)
    total = -found[np.arange(len(client)), client.targets].sum()
    # A sum takes finite numbers alone, and whoever asks wants to know how bad it is.
    return {"loss": float(min(total, _MOST)) if total == total else _MOST, "records": len(client)}


_MOST = 1e300


def folds(
    clients: Sequence[Client], count: int, rng: np.random.Generator
) -> list[tuple[list[Client], list[Client]]]:
    """Training and left-out clients of each fold: every client's records, divided at random.

    Args:
        clients: each with at least `count` records.
        count: folds, at least 2.
        rng: one permutation a client.

    Returns:
        `count` pairs; the left-out records of all pairs are each client's records, once each.

    Raises:
        ValueError: count below 2.
        FederationError: a client has fewer records than folds.
    """
    if count < 2:
        raise ValueError(f"{count} folds; give at least 2")
    pairs: list[tuple[list[Client], list[Client]]] = [([], []) for _ in range(count)]
    for client in clients:
        if len(client) < count:
            raise FederationError(
                f'client "{client.name}": found {len(client)} records, expected at least {count},'
                " one a fold; give fewer folds"
            )
        order = rng.permutation(len(client))
        for number, (kept, left_out) in enumerate(pairs):
            mine = np.zeros(len(client), dtype=bool)
            mine[order[number::count]] = True
            for group, rows in ((kept, ~mine), (left_out, mine)):
                group.append(Client(client.name, client.features[rows], client.targets[rows]))
    return pairs


def cross_validated(
    pairs: Sequence[tuple[list[Client], list[Client]]],
    model: Model,
    fit: Callable[[Federation], Array],
    federate: Federate = Federation,
) -> float:
    """Accuracy on left-out records, pooled over folds and clients, in [0, 1].

    Args:
        pairs: of `folds`.
        model: the network that `fit` trains.
        fit: trains on a federation and returns the parameters.
        federate: makes the handle of some clients, e.g. with secure aggregation.
    """
    right = records = 0.0
    for kept, left_out in pairs:
        with federate(kept) as fed:
            parameters = fit(fed)
        with federate(left_out) as fed:
            found = fed.sum(scored, model, parameters)
        right, records = right + float(found["right"]), records + float(found["records"])
    return right / records


def coordinate_search(
    grids: Mapping[str, Sequence[float]], score: Callable[[Settings], float]
) -> tuple[Settings, float]:
    """One pass over the settings: each takes its best value while the others stay.

    A grid of a x b x c points costs a + b + c scores or fewer. Settings start at their first value;
    on a tie the value that comes first in its grid wins.

    Args:
        grids: candidate values by name, searched in this order; at least one of each.
        score: larger is better; called once for every point visited.

    Returns:
        The settings found, and their score.
    """
    best: Settings = {name: float(values[0]) for name, values in grids.items()}
    highest = score(best)
    for name, values in grids.items():
        for value in values[1:]:
            candidate = {**best, name: float(value)}
            found = score(candidate)
            if found > highest:
                best, highest = candidate, found
    return best, highest
