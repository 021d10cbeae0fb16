"""FL+HC (Briggs, Fan and Andras 2020, algorithm 1): averaging within clusters of clients.

"Federated learning with hierarchical clustering of local updates to improve training on non-IID
data". After some rounds of averaging every client trains once more; the server clusters what they
would add to the global model, and from then on each cluster averages by itself. The server must
see single clients' updates once, so the trainer runs neither under secure aggregation nor under
client-level privacy.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from secure_fl.federation import Federation, FederationError, PrivacyError, broadcastable
from secure_fl.trainers.networks.fedavg import NetworkState, local_change
from secure_fl.trainers.networks.local import LocalTraining
from secure_fl.trainers.networks.models import Array, Model, accuracy

Linkage: TypeAlias = Literal["ward", "single", "complete", "average"]


@broadcastable
@dataclass(frozen=True, eq=False)
class ClusteredState:
    """What the server carries from round to round.

    Attributes:
        parameters: one model a cluster, shape (K, P), float32; K is 1 before the clustering.
        assignment: the cluster of each client, in the handle's order, shape (clients,), int64.
        round: rounds finished.
    """

    parameters: Array
    assignment: NDArray[np.int64]
    round: int = 0


def fl_hc(
    fed: Federation,
    model: Model,
    *,
    start: NetworkState | ClusteredState,
    rounds: int,
    training: LocalTraining,
    warm_up: int,
    clusters: int,
    method: Linkage = "ward",
) -> Iterator[ClusteredState]:
    """Runs FL+HC and yields the state after every round; with one cluster it is FedAvg.

    Args:
        fed: the participating clients; all of them must take part in round `warm_up`.
        model: the network.
        start: initial parameters, or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        training: the client's part of a round.
        warm_up: rounds of averaging over all clients before the clustering, >= 0.
        clusters: at most that many, at least 1.
        method: linkage of the agglomerative clustering, on Euclidean distances.

    Raises:
        ValueError: warm_up or clusters out of range.
        FederationError: a client was absent when the clusters were to be formed.
        PrivacyError: secure aggregation or client-level privacy is on, or `training` asks for
            record-level privacy.
        QuorumError: fewer clients of a cluster survived a round than the threshold.
    """
    if warm_up < 0 or clusters < 1:
        raise ValueError(f"FL+HC: found {warm_up} rounds of warm-up and {clusters} clusters")
    if training.privacy is not None:
        raise PrivacyError(
            "FL+HC: no record-level privacy; the updates that are clustered are one training more"
            " than the rounds that a calibration counts. Take FedAvg, FedProx or FedAvgR"
        )
    if isinstance(start, ClusteredState):
        state = start
    else:
        everyone = np.zeros(len(fed), dtype=np.int64)
        state = ClusteredState(start.parameters[None], everyone, start.round)
    while state.round < rounds:
        if state.round == warm_up:
            assignment = _clustered(fed, model, state.parameters[0], training, clusters, method)
            copies = np.repeat(state.parameters[:1], assignment.max() + 1, axis=0)
            state = replace(state, parameters=copies, assignment=assignment)
        models = [
            _averaged(fed, model, parameters, training, state.assignment == cluster)
            for cluster, parameters in enumerate(state.parameters)
        ]
        state = ClusteredState(np.stack(models), state.assignment, state.round + 1)
        yield state


def clustered_accuracy(
    model: Model, state: ClusteredState, X: Array, y: Array, weights: Array
) -> float:
    """Accuracy of a client's cluster model on the same test records, averaged over the clients.

    Args:
        model: the network.
        state: cluster models.
        X: features, shape (n, d).
        y: class codes, shape (n,).
        weights: of each client, e.g. its records, shape (clients,).
    """
    each = [accuracy(model, parameters, X, y) for parameters in state.parameters]
    return float(np.average(np.array(each)[state.assignment], weights=weights))


def _clustered(
    fed: Federation,
    model: Model,
    parameters: Array,
    training: LocalTraining,
    clusters: int,
    method: Linkage,
) -> NDArray[np.int64]:
    """Clusters of the clients' updates, numbered from 0 in the order of their first client."""
    updates = fed.gather(local_change, model, parameters, training)
    if fed.survivors != fed.names:
        absent = sorted(set(fed.names) - set(fed.survivors))
        raise FederationError(
            f"FL+HC: {', '.join(absent)} absent from round {fed.round}, in which the clusters are"
            " formed; every client must take part in it"
        )
    if len(updates) == 1:
        return np.zeros(1, dtype=np.int64)
    found = fcluster(linkage(np.stack(updates), method), clusters, criterion="maxclust")
    labels, first = np.unique(found, return_index=True)
    return np.argsort(labels[np.argsort(first)])[np.searchsorted(labels, found)].astype(np.int64)


def _averaged(
    fed: Federation,
    model: Model,
    parameters: Array,
    training: LocalTraining,
    members: NDArray[np.bool_],
) -> Array:
    """One round of a cluster; a cluster none of whose clients takes part stays as it is."""
    chosen = {name for name, member in zip(fed.names, members, strict=True) if member}
    over = [name for name in fed.participants if name in chosen]
    if not over:
        return parameters
    change: Array = fed.mean(local_change, model, parameters, training, over=over)
    return parameters + change
