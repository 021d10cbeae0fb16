"""Networks by name and size: linear, random Fourier features, perceptron, and FedRCO's CNN.

A specification crosses the wire; the torch module is built from it on either side.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secure_fl.federation import broadcastable

Array = NDArray[Any]

FILTERS = (16, 32)
"""Of the two convolutions of `ConvNet`."""


class Network(nn.Module):
    """A feature map and a linear classifier on it: f(x) = W phi(x) + b.

    Attributes:
        features: phi, (records, d) to (records, D).
        head: W and b, D to C.
    """

    def __init__(self, features: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.features = features
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """Scores, shape (records, C)."""
        scores: Tensor = self.head(self.features(x))
        return scores


class FourierFeatures(nn.Module):
    """Maps x to factor cos(omega x + b), with omega and b trainable (fedavgr.txt, 4.2 and 5.1)."""

    def __init__(self, inputs: int, width: int, scale: float, factor: float) -> None:
        super().__init__()
        self.phase = nn.Linear(inputs, width)
        nn.init.normal_(self.phase.weight, std=scale)
        nn.init.uniform_(self.phase.bias, 0.0, 2 * np.pi)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Features, shape (records, D)."""
        return self.factor * torch.cos(self.phase(x))


class Images(nn.Module):
    """Records as images whose channels lie together in memory.

    Convolutions keep that order. On the processor they, and pooling, take less than half the time
    that they take with channels apart.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Images, shape (records, channels, height, width), of records, shape (records, d)."""
        channels, height, width = self.shape
        pixels = x.reshape(len(x), channels, height * width).transpose(1, 2).contiguous()
        # Of one channel both orders are the same numbers; convolutions go by the strides.
        strides = (channels * height * width, 1, width * channels, channels)
        return pixels.as_strided((len(x), channels, height, width), strides)


@dataclass(frozen=True)
class Model(ABC):
    """What a network is made of.

    Attributes:
        classes: C, at least 2.
    """

    classes: int

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"model: found {self.classes} classes, expected at least 2")

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Features of a record, d."""

    @property
    def feature_norm(self) -> float:
        """What clients clip the mean of their features to under client-level privacy.

        Of random Fourier features it is what their length never exceeds.
        """
        return math.sqrt(2.0)

    @abstractmethod
    def _parts(self) -> tuple[nn.Module, int]:
        """The feature map and its width D."""

    def build(self, rng: np.random.Generator | None = None) -> Network:
        """The module in float32; its initial weights follow from `rng` alone (or are arbitrary).

        The process's own torch generator is left as it was.
        """
        seed = 0 if rng is None else int(rng.integers(2**62))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.module()

    def module(self) -> Network:
        """The module with weights from the process's own torch generator."""
        features, width = self._parts()
        return Network(features, nn.Linear(width, self.classes))

    def initial(self, rng: np.random.Generator) -> Array:
        """Initial parameters as a flat float32 vector."""
        return flatten(self.build(rng))


@broadcastable
@dataclass(frozen=True)
class LinearModel(Model):
    """Multinomial logistic regression.

    Attributes:
        features: d, at least 1.
    """

    features: int

    @property
    def inputs(self) -> int:
        """See `Model.inputs`."""
        return self.features

    def _parts(self) -> tuple[nn.Module, int]:
        return nn.Identity(), self.features


@broadcastable
@dataclass(frozen=True)
class FourierModel(Model):
    """A linear classifier on random Fourier features whose frequencies and phases learn.

    Attributes:
        features: d.
        width: D, features of the map (fedavgr.txt 5.2 takes 100).
        scale: standard deviation of the initial frequencies, 1 over the kernel's width.
        normalised: features sqrt(2/D) cos(.), whose kernel has a limit at any width; False takes
            the paper's sqrt(2) cos(.). The models are the same, their training is not: under one
            learning rate normalised features move frequencies D times faster beside the head.
    """

    features: int
    width: int = 100
    scale: float = 1.0
    normalised: bool = True

    @property
    def inputs(self) -> int:
        """See `Model.inputs`."""
        return self.features

    def _parts(self) -> tuple[nn.Module, int]:
        map_ = FourierFeatures(self.features, self.width, self.scale, self.factor)
        return map_, self.width

    @property
    def factor(self) -> float:
        """In front of the cosines."""
        return math.sqrt(2.0 / self.width) if self.normalised else math.sqrt(2.0)

    @property
    def feature_norm(self) -> float:
        """See `Model.feature_norm`."""
        return self.factor * math.sqrt(self.width)


@broadcastable
@dataclass(frozen=True)
class Perceptron(Model):
    """Fully connected layers with ReLU.

    Attributes:
        features: d.
        hidden: units of the hidden layers, at least one layer.
    """

    features: int
    hidden: tuple[int, ...] = (64,)

    @property
    def inputs(self) -> int:
        """See `Model.inputs`."""
        return self.features

    def _parts(self) -> tuple[nn.Module, int]:
        return nn.Sequential(*_dense((self.features, *self.hidden))), self.hidden[-1]


@broadcastable
@dataclass(frozen=True)
class ConvNet(Model):
    """FedRCO's network (fedrco.txt, E.1): 16 and 32 filters 3 x 3, pooling, 32 and 256 units.

    No batch normalisation; ReLU everywhere.

    Attributes:
        shape: (channels, height, width) of an image; records are its pixels in that order. Height
            and width are at least 10.
        groups: of channels that are normalised together after each convolution (Wu and He 2018), a
            divisor of 16; 0 is the paper's network. A record is normalised by itself, which
            steps under record-level privacy need and gain by (De et al. 2022, 3.1).
    """

    shape: tuple[int, int, int]
    groups: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.shape[1:]) < 10:
            raise ValueError(
                f"ConvNet: found images of {self.shape[1]} x {self.shape[2]}, expected at least"
                " 10 x 10; use a Perceptron for smaller ones"
            )
        if self.groups < 0 or (self.groups and FILTERS[0] % self.groups):
            raise ValueError(
                f"ConvNet: found {self.groups} groups, expected 0 or a divisor of {FILTERS[0]}"
            )

    @property
    def inputs(self) -> int:
        """See `Model.inputs`."""
        return int(np.prod(self.shape))

    def _parts(self) -> tuple[nn.Module, int]:
        channels, height, width = self.shape
        flat = FILTERS[1] * _pooled(_pooled(height)) * _pooled(_pooled(width))
        layers: list[nn.Module] = [Images(self.shape)]
        for before, after in pairwise((channels, *FILTERS)):
            layers.append(nn.Conv2d(before, after, 3))
            if self.groups:
                layers.append(nn.GroupNorm(self.groups, after))
            # Before ReLU, which commutes with it: a quarter of the numbers then go through ReLU.
            layers += [nn.MaxPool2d(2), nn.ReLU()]
        return nn.Sequential(*layers, nn.Flatten(), *_dense((flat, 32, 256))), 256


def flatten(network: nn.Module) -> Array:
    """All parameters as one float32 vector, in the module's own order."""
    with torch.no_grad():
        parts = [p.detach().reshape(-1).cpu() for p in network.parameters()]
        return torch.cat(parts).numpy().astype(np.float32, copy=True)


def load(network: nn.Module, parameters: Array) -> None:
    """Copies a flat vector into the module.

    Raises:
        ValueError: the vector's length is another one.
    """
    check_size(parameters, sum(p.numel() for p in network.parameters()))
    flat = torch.from_numpy(np.array(parameters, dtype=np.float32))
    start = 0
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(flat[start : start + p.numel()].reshape(p.shape))
            start += p.numel()


def check_size(parameters: Array, size: int) -> None:
    """Refuses a vector of another length with a ValueError."""
    if parameters.shape != (size,):
        raise ValueError(f"parameters: found shape {parameters.shape}, the model has ({size},)")


def accuracy(model: Model, parameters: Array, X: Array, y: Array) -> float:
    """Share of records whose highest score is their class, in [0, 1]."""
    network = model.build()
    load(network, parameters)
    return correct(network, X, y) / max(len(y), 1)


def correct(network: Network, X: Array, y: Array) -> int:
    """Number of records that the network classifies right."""
    return int((predictions(network, X) == y).sum())


def predictions(network: Network, X: Array, *, batch: int = 256) -> Array:
    """Class code of each record's highest score, shape (records,), int64."""
    found: Array = scores(network, X, batch=batch).argmax(axis=1)
    return found


def scores(network: Network, X: Array, *, batch: int = 256) -> Array:
    """The logarithms of probabilities up to a constant, shape (records, C), float32."""
    device = next(network.parameters()).device
    found = []
    with torch.no_grad():
        for start in range(0, max(X.shape[0], 1), batch):
            x = to_tensor(X[start : start + batch], device)
            found.append(network(x).cpu().numpy())
    return np.concatenate(found)


def to_tensor(X: Any, device: torch.device | str = "cpu") -> Tensor:
    """Features, dense or CSR, as a float32 tensor, row by row."""
    dense = X.toarray() if hasattr(X, "toarray") else X
    return torch.from_numpy(np.array(dense, dtype=np.float32, order="C")).to(device)


def _dense(widths: tuple[int, ...]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers


def _pooled(size: int) -> int:
    # A 3 x 3 convolution without padding, then 2 x 2 pooling.
    return (size - 2) // 2
