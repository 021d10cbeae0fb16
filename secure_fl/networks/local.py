"""A client's part of a round: mini-batch descent on its own records."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from secure_fl.federation import Client, broadcastable
from secure_fl.networks.models import Array, Model, Network, flatten, load, to_tensor
from secure_fl.networks.regularizers import Regularization


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
        device: where clients compute; "cpu" or a CUDA device.

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
    """The client's records as tensors, kept in its cache."""
    key = f"records {device}"
    if key not in client.cache:
        y = torch.from_numpy(np.asarray(client.targets, dtype=np.int64)).to(device)
        client.cache[key] = (to_tensor(client.features, device), y)
    found: tuple[Tensor, Tensor] = client.cache[key]
    return found


def batches(records: int, training: LocalTraining, rng: np.random.Generator) -> Iterator[Array]:
    """Indices of a round's mini-batches: random passes over all records, cut off at `steps`."""
    per_epoch = -(-records // training.batch_size)
    left = training.steps or training.epochs * per_epoch
    while left:
        order = rng.permutation(records)
        for start in range(0, min(left, per_epoch) * training.batch_size, training.batch_size):
            yield order[start : start + training.batch_size]
        left -= min(left, per_epoch)


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
        drawn: samples of the global feature distribution, shape (m, D).
    """
    network = network_of(client, model, training.device)
    load(network, parameters)
    X, y = records_of(client, training.device)
    start = [p.detach().clone() for p in network.parameters()]
    optimizer = torch.optim.SGD(
        network.parameters(), lr=training.learning_rate, momentum=training.momentum
    )
    samples = None if drawn is None else to_tensor(drawn, training.device)
    for index in batches(len(client), training, client.rng):
        rows = torch.from_numpy(index).to(training.device)
        phi = network.features(X[rows])
        loss = cross_entropy(network.head(phi), y[rows])
        if regularization is not None:
            loss = loss + regularization.penalty(network.head.weight, phi, samples)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
        if training.proximal:
            add_proximal(network, start, training.proximal)
        optimizer.step()
    return flatten(network) - np.asarray(parameters, dtype=np.float32)


def add_proximal(network: Network, start: list[Tensor], mu: float) -> None:
    """Adds mu (w - w_global) to the gradients (FedProx)."""
    with torch.no_grad():
        for p, p0 in zip(network.parameters(), start, strict=True):
            if p.grad is not None:
                p.grad.add_(p - p0, alpha=mu)
