"""A client's part of a round: mini-batch descent on its own records."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from secure_fl.federation import Client, PrivacyError, broadcastable
from secure_fl.trainers.networks.closed_form import ClosedForm, has_closed_form
from secure_fl.trainers.networks.models import (
    Array,
    FourierModel,
    Model,
    Network,
    load,
    to_tensor,
)
from secure_fl.trainers.networks.promise import DPSGD
from secure_fl.trainers.networks.regularizers import Regularization


@broadcastable
@dataclass(frozen=True)
class LocalTraining:
    """Mini-batch descent with momentum.

    Attributes:
        learning_rate: above 0.
        epochs: passes over the records, used when `steps` is 0.
        steps: mini-batches a round; FedRCO's "local epoch" is one.
        batch_size: at least 1.
        momentum: in [0, 1); its buffer starts anew every round.
        proximal: mu of FedProx, weight of |w - w_global|^2 / 2, >= 0.
        device: where clients compute; see `choose_device`.
        privacy: of single records, by FedAvg, FedProx and FedAvgR; others refuse it.

    Raises:
        ValueError: an attribute out of its range.
    """

    learning_rate: float = 0.01
    epochs: int = 1
    steps: int = 0
    batch_size: int = 10
    momentum: float = 0.0
    proximal: float = 0.0
    device: str = "cpu"
    privacy: DPSGD | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning rate is {self.learning_rate}; give a number above 0")
        if self.batch_size < 1 or self.steps < 0 or self.epochs < 0:
            raise ValueError(f"local training: found {self}, expected counts of at least 0")
        if not 0 <= self.momentum < 1 or not self.proximal >= 0:
            raise ValueError(f"momentum {self.momentum} or proximal {self.proximal} out of range")


def network_of(client: Client, model: Model, device: str) -> Network:
    """The client's module, built once and kept in its cache."""
    key = f"network {model} {device}"
    if key not in client.cache:
        client.cache[key] = model.build().to(device)
    network: Network = client.cache[key]
    return network


def records_of(client: Client, device: str) -> tuple[Tensor, Tensor]:
    """The client's records as tensors, kept in its cache.

    Row by row, whatever the client's arrays are: compiled loops are compiled for a layout, which
    takes seconds.
    """
    key = f"records {device}"
    if key not in client.cache:
        y = torch.from_numpy(np.ascontiguousarray(client.targets, dtype=np.int64)).to(device)
        client.cache[key] = (to_tensor(client.features, device), y)
    found: tuple[Tensor, Tensor] = client.cache[key]
    return found


def batches(
    X: Tensor, y: Tensor, training: LocalTraining, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """A round's mini-batches: random passes over all records, cut off at `steps`.

    Args:
        X: features, shape (n, d).
        y: class codes, shape (n,).
        training: its `batch_size`, and `steps` or `epochs`.
        rng: one permutation a pass.

    Raises:
        PrivacyError: record-level privacy was asked for, which such batches do not give.
    """
    size = training.batch_size
    for order in passes(len(y), training, rng):
        # One gathering a pass: its slices cost less than as many gatherings of a few rows.
        taken = torch.from_numpy(order).to(X.device)
        yield from zip(torch.split(X[taken], size), torch.split(y[taken], size), strict=True)


def passes(
    records: int, training: LocalTraining, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """The orders of a round's passes over that many records; errors as `batches`."""
    if training.privacy is not None:
        raise PrivacyError(
            "local training: this method's steps give no record-level privacy; take FedAvg, FedProx"
            " or FedAvgR, or client-level privacy (Federation.privacy)"
        )
    per_epoch = -(-records // training.batch_size)
    left = training.steps or training.epochs * per_epoch
    while left:
        yield rng.permutation(records)[: min(left, per_epoch) * training.batch_size]
        left -= min(left, per_epoch)


def as_vectors(network: Network, parameters: Array) -> tuple[Tensor, Tensor]:
    """Loads parameters so that the module's own are parts of one vector, its gradients of another.

    A step is then one operation on vectors instead of one a parameter.

    Returns:
        Values and gradients, both flat float32 on the network's device; writing to the first
        changes the network.

    Raises:
        ValueError: the vector's length is not the model's.
    """
    load(network, parameters)
    own = list(network.parameters())
    values = torch.cat([p.detach().reshape(-1) for p in own])
    gradients = torch.zeros_like(values)
    sizes = [p.numel() for p in own]
    for p, v, g in zip(own, torch.split(values, sizes), torch.split(gradients, sizes), strict=True):
        p.data, p.grad = v.view(p.shape), g.view(p.shape)
    return values, gradients


@dataclass(frozen=True)
class Autograd:
    """The gradient of a client's objective on a batch, by torch.

    Attributes:
        network: its parameters and their gradients are parts of vectors; see `as_vectors`.
        gradients: the vector of the latter, shape (P,).
        regularization: FedAvgR's terms, or None.
        centres: see `Regularization.penalty`.
    """

    network: Network
    gradients: Tensor
    regularization: Regularization | None
    centres: Tensor | None

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """Writes the gradient of a batch: features, shape (n, d), and class codes, shape (n,)."""
        phi = self.network.features(x)
        loss = cross_entropy(self.network.head(phi), y)
        if self.regularization is not None:
            head = self.network.head.weight
            loss = loss + self.regularization.penalty(head, phi, y, self.centres)
        self.gradients.zero_()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped


def train(
    client: Client,
    model: Model,
    parameters: Array,
    training: LocalTraining,
    regularization: Regularization | None = None,
    drawn: Array | None = None,
) -> Array:
    """What a round of local training adds to the parameters (float32 vector).

    Args:
        client: whose records and generator are used.
        model: the network's specification.
        parameters: of the global model, flat.
        training: learning rate, batches, momentum, proximal weight.
        regularization: FedAvgR's terms; None for FedAvg and FedProx.
        drawn: samples of the global feature distribution, shape (m, D), or of each class's, shape
            (C, m, D).
    """
    centres = None
    if drawn is not None:
        # The MMD sees the samples' means alone; they are the same for all batches.
        means = to_tensor(drawn, training.device).mean(-2)
        centres = means.reshape(-1, means.shape[-1])
    if is_compiled(model, training):
        return _by_compiled_loops(client, model, parameters, training, regularization, centres)
    network = network_of(client, model, training.device)
    values, gradients = as_vectors(network, parameters)
    start, velocity = values.clone(), torch.zeros_like(values)
    make = ClosedForm if has_closed_form(network, training.device) else Autograd
    differentiate = make(network, gradients, regularization, centres)
    for x, y in batches(*records_of(client, training.device), training, client.rng):
        differentiate(x, y)
        if training.proximal:
            gradients.add_(values - start, alpha=training.proximal)
        velocity.mul_(training.momentum).add_(gradients)
        values.sub_(velocity, alpha=training.learning_rate)
    change: Array = (values - start).cpu().numpy()
    return change


LARGEST_BATCH, MOST_PARAMETERS = 64, 2**17
"""Above either, a library's blocked products win over plain loops, or weights leave the cache."""


def is_compiled(model: Model, training: LocalTraining) -> TypeGuard[FourierModel]:
    """Whether local training of a model takes the loops of `compiled`."""
    return (
        isinstance(model, FourierModel)
        and training.device == "cpu"
        and training.batch_size <= LARGEST_BATCH
        and model.classes <= model.width
        and (model.features + model.classes) * model.width <= MOST_PARAMETERS
    )


def _by_compiled_loops(
    client: Client,
    model: FourierModel,
    parameters: Array,
    training: LocalTraining,
    regularization: Regularization | None,
    centres: Tensor | None,
) -> Array:
    from secure_fl.trainers.networks.compiled import Descent

    X, y = (each.numpy() for each in records_of(client, "cpu"))
    rates = training.learning_rate, training.momentum, training.proximal
    middles = None if centres is None else centres.numpy()
    descent = Descent(model, parameters, rates, regularization, middles)
    for order in passes(len(y), training, client.rng):
        descent.run(X, y, order, training.batch_size)
    return descent.change()
