"""FedAvgR (fedavgr.txt, Algorithm 1): averaging with trace, feature and MMD regularisers.

The features' distribution is estimated by a Gaussian with diagonal covariance a client. The global
one is their mixture where the server may gather the estimates, and the Gaussian of the pooled
moments, which are sums, where it may not. With the inner product as kernel the MMD sees means
alone, and both have the same mean: they differ by the sampling of `samples` points only.

By class (not in the paper) all of this is done with each class's features by themselves: counts,
sums and squares have a row a class, and are sums still.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from secure_fl.federation import (
    Client,
    Federation,
    PrivacyError,
    Tree,
    broadcastable,
    client_step,
)
from secure_fl.trainers.networks.dpsgd import check_handle, private_feature_sums, train_privately
from secure_fl.trainers.networks.fedavg import NetworkState, check_averaging
from secure_fl.trainers.networks.local import LocalTraining, network_of, records_of, train
from secure_fl.trainers.networks.models import Array, Model, load
from secure_fl.trainers.networks.regularizers import Regularization


@broadcastable
@dataclass(frozen=True, eq=False)
class FeatureMixture:
    """A mixture of K Gaussians with diagonal covariance.

    Attributes:
        weights: shape (K,), sum 1.
        means: shape (K, D).
        deviations: shape (K, D), >= 0.
    """

    weights: Array
    means: Array
    deviations: Array

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Samples, shape (count, D), float32."""
        component = rng.choice(len(self.weights), size=count, p=self.weights)
        noise = rng.normal(size=(count, self.means.shape[1]))
        drawn = self.means[component] + self.deviations[component] * noise
        return drawn.astype(np.float32)


@broadcastable
@dataclass(frozen=True, eq=False)
class ClassMixtures:
    """A `FeatureMixture` of each class's features.

    Attributes:
        weights: shape (C, K), each row's sum 1, or 0 of a class that nobody told of.
        means: shape (C, K, D); of no account where the weight is 0.
        deviations: shape (C, K, D), >= 0.
    """

    weights: Array
    means: Array
    deviations: Array

    def draw(self, count: int, rng: np.random.Generator, held: Array) -> Array:
        """Samples of the classes in `held`, shape (C, count, D), float32.

        Of other classes, and of those that nobody told of, not a number.
        """
        classes, _, width = self.means.shape
        drawn = np.full((classes, count, width), np.nan, np.float32)
        for c in held:
            if self.weights[c].any():
                own = FeatureMixture(self.weights[c], self.means[c], self.deviations[c])
                drawn[c] = own.draw(count, rng)
        return drawn


def _features(
    client: Client, model: Model, parameters: Array, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the client's records, in float64, and their class codes."""
    network = network_of(client, model, device)
    load(network, parameters)
    X, y = records_of(client, device)
    with torch.no_grad():
        return network.features(X).double(), y


@client_step
def feature_moments(client: Client, model: Model, parameters: Array, device: str) -> Tree:
    """Number of records, sum and sum of squares of their features, in float64."""
    phi = _features(client, model, parameters, device)[0].cpu().numpy()
    return {"count": float(len(phi)), "sum": phi.sum(axis=0), "square": np.square(phi).sum(axis=0)}


@client_step
def class_moments(client: Client, model: Model, parameters: Array, device: str) -> Tree:
    """The same by class: counts, shape (C,), sums and sums of squares, shape (C, D), in float64."""
    phi, y = _features(client, model, parameters, device)
    own = torch.nn.functional.one_hot(y, model.classes).double().T
    found = own.sum(dim=1), own @ phi, own @ phi.square()
    count, total, square = (each.cpu().numpy() for each in found)
    return {"count": count, "sum": total, "square": square}


@client_step
def feature_mean(
    client: Client, model: Model, parameters: Array, device: str, scale: float
) -> Tree:
    """Mean of the client's features times `scale`, for sums that clip."""
    moments = feature_moments(client, model, parameters, device)
    return scale * moments["sum"] / moments["count"]


@client_step
def regularized_change(
    client: Client,
    model: Model,
    parameters: Array,
    training: LocalTraining,
    regularization: Regularization,
    distribution: FeatureMixture | ClassMixtures | None,
) -> Tree:
    """What regularised local training adds to the parameters (Client-Update)."""
    _check_record_privacy(training, regularization)
    drawn = None
    if isinstance(distribution, ClassMixtures):
        held = np.unique(client.targets).astype(np.int64)
        drawn = distribution.draw(regularization.samples, client.rng, held)
    elif distribution is not None:
        drawn = distribution.draw(regularization.samples, client.rng)
    run = train if training.privacy is None else train_privately
    return run(client, model, parameters, training, regularization, drawn)


def fedavgr(
    fed: Federation,
    model: Model,
    *,
    start: NetworkState,
    rounds: int,
    training: LocalTraining,
    regularization: Regularization,
    distribution: Literal["moments", "mixture"] = "moments",
    averaging: float | None = None,
) -> Iterator[NetworkState]:
    """Runs FedAvgR and yields the state after every round.

    Args:
        fed: the participating clients.
        model: the network; its head is the W of the trace norm.
        start: initial parameters or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        training: the client's part of a round; with `privacy` the terms that see records are in
            every record's clipped gradient, and features' means are released with noise.
        regularization: alpha, beta, gamma.
        distribution: "moments" takes sums only; "mixture" gathers every client's estimate.
        averaging: see `fedavg`.

    Raises:
        PrivacyError, StepError: the promise of `training.privacy` cannot be kept to the last round.
        PrivacyError: "mixture" under secure aggregation or client-level privacy; MMD by class under
            client-level or record-level privacy.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if distribution not in ("moments", "mixture"):
        raise ValueError(f'distribution: found {distribution!r}, expected "moments" or "mixture"')
    check_averaging(averaging)
    _check_record_privacy(training, regularization)
    if _by_class(regularization) and fed.clip is not None:
        raise PrivacyError(_NOT_BY_CLASS.format("client-level"))
    state = start
    if training.privacy is not None and state.round == 0:
        check_handle(fed, model, training, rounds, features=bool(regularization.mmd))
    while state.round < rounds:
        found = None
        if regularization.mmd:
            options = (training, distribution, regularization.per_class)
            found = _estimate(fed, model, state.parameters, *options)
        change = fed.mean(
            regularized_change, model, state.parameters, training, regularization, found
        )
        state = state.following(state.parameters + change, averaging=averaging)
        yield state


_NOT_BY_CLASS = (
    "per_class: features' means by class are not released under {} privacy, whose noise is made"
    " for one mean; take the plain MMD, or weight 0"
)


def _by_class(regularization: Regularization) -> bool:
    return regularization.per_class and regularization.mmd > 0


def _check_record_privacy(training: LocalTraining, regularization: Regularization) -> None:
    if _by_class(regularization) and training.privacy is not None:
        raise PrivacyError(_NOT_BY_CLASS.format("record-level"))


def _estimate(
    fed: Federation,
    model: Model,
    parameters: Array,
    training: LocalTraining,
    distribution: str,
    per_class: bool,
) -> FeatureMixture | ClassMixtures:
    step: Callable[..., Tree] = feature_moments
    arguments: tuple[Any, ...] = (model, parameters, training.device)
    if training.privacy is not None:
        step, arguments = private_feature_sums, (model, parameters, training)
    if fed.clip is not None and distribution == "moments":
        # Sums of all moments would not fit a clip made for updates; means of unit weight do.
        scale = fed.clip / model.feature_norm
        mean = fed.mean(feature_mean, model, parameters, training.device, scale) / scale
        return FeatureMixture(np.ones(1), mean[None], np.zeros_like(mean[None]))
    if per_class:
        step = class_moments
    if distribution == "mixture":
        told = fed.gather(step, *arguments)
    else:
        told = [fed.sum(step, *arguments)]
    return _class_gaussians(told) if per_class else _gaussians(told)


def _gaussians(moments: list[Tree]) -> FeatureMixture:
    counts = np.array([float(each["count"]) for each in moments])
    means = np.stack([each["sum"] / each["count"] for each in moments])
    if "square" not in moments[0]:
        # Squares would cost privacy too, and the MMD sees means alone.
        return FeatureMixture(counts / counts.sum(), means, np.zeros_like(means))
    squares = np.stack([each["square"] / each["count"] for each in moments])
    deviations = np.sqrt(np.maximum(squares - means**2, 0.0))
    return FeatureMixture(counts / counts.sum(), means, deviations)


def _class_gaussians(moments: list[Tree]) -> ClassMixtures:
    counts, totals, squares = (
        np.stack([each[key] for each in moments], axis=1) for key in ("count", "sum", "square")
    )
    # Who holds no record of a class has weight 0 in it; 1 instead of a division by 0.
    of = np.maximum(counts, 1)[:, :, None]
    deviations = np.sqrt(np.maximum(squares / of - (totals / of) ** 2, 0.0))
    told = counts.sum(axis=1, keepdims=True)
    return ClassMixtures(counts / np.where(told > 0, told, 1), totals / of, deviations)
