"""K-FAC (Martens and Grosse 2015; convolutions: Grosse and Martens 2016; fedrco.txt, section 4.1).

The Fisher block of a layer with weights (out, in + 1), bias in the last column, is read as
Omega (x) Gamma: Omega is the second moment of the layer's inputs with a 1 appended, Gamma that of
the gradients of a record's loss with respect to the layer's outputs (labels as observed: the
empirical Fisher). A convolution sums Omega over the positions and averages Gamma over them.
"""

import math
import time
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from secure_fl.federation import broadcastable

Array = NDArray[Any]
Layer: TypeAlias = nn.Linear | nn.Conv2d
Pair: TypeAlias = tuple[Tensor, Tensor]


@broadcastable
@dataclass(frozen=True)
class Curvature:
    """How curvature is estimated and inverted (fedrco.txt, E.3).

    Attributes:
        damping: epsilon of (6), above 0.
        average: weight of the older statistics in (7), in [0, 1).
        interval: T_inv, steps between inversions, at least 1.
        persistent: whether a client keeps its factors from round to round.
        warm_up: steps, counted from 1 and from every reset, at which the factors are inverted too.
            Until the second inversion the preconditioner is that of the first batch at random
            weights; (1, 10, 50) ends that early.
    """

    damping: float = 0.03
    average: float = 0.95
    interval: int = 200
    persistent: bool = True
    warm_up: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(step < 1 for step in self.warm_up):
            raise ValueError(f"curvature: found warm-up steps {self.warm_up}, expected at least 1")
        if not (math.isfinite(self.damping) and self.damping > 0):
            raise ValueError(f"damping is {self.damping}; give a number above 0")
        if not 0 <= self.average < 1 or self.interval < 1:
            raise ValueError(f"curvature: average {self.average}, interval {self.interval}")


class Recorder:
    """Hooks that keep each layer's inputs and output gradients of the last backward pass."""

    def __init__(self, network: nn.Module) -> None:
        self.layers: list[Layer] = [
            m for m in network.modules() if isinstance(m, nn.Linear | nn.Conv2d)
        ]
        covered = sum(p.numel() for layer in self.layers for p in layer.parameters())
        if covered != sum(p.numel() for p in network.parameters()) or not all(
            layer.bias is not None for layer in self.layers
        ):
            raise ValueError("K-FAC: every parameter must belong to a Linear or Conv2d with a bias")
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d) and (
                layer.groups != 1 or layer.dilation != (1, 1) or isinstance(layer.padding, str)
            ):
                raise ValueError(
                    f"K-FAC: found {layer}, expected no groups, no dilation, padding by numbers"
                )
        self._inputs: dict[int, Tensor] = {}
        self._gradients: dict[int, Tensor] = {}
        self._hooks = [
            layer.register_forward_hook(self._keep(i)) for i, layer in enumerate(self.layers)
        ]

    def _keep(self, place: int) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if output.requires_grad:
                self._inputs[place] = inputs[0].detach()
                output.register_hook(  # type: ignore[no-untyped-call]  # torch leaves it untyped
                    lambda g: self._gradients.__setitem__(place, g.detach())
                )

        return hook

    def input_moments(self) -> list[Tensor]:
        """Omega of every layer for the last batch; needs no backward pass."""
        return [_input_moment(layer, self._inputs[i]) for i, layer in enumerate(self.layers)]

    def statistics(self) -> list[Pair]:
        """(Omega, Gamma) of every layer for the last batch, whose loss was the batch's mean."""
        return [
            (omega, _output_moment(layer, self._gradients[i]))
            for i, (layer, omega) in enumerate(zip(self.layers, self.input_moments(), strict=True))
        ]

    def close(self) -> None:
        """Takes the hooks off the network."""
        for hook in self._hooks:
            hook.remove()


def _input_moment(layer: Layer, inputs: Tensor) -> Tensor:
    a = _patches(layer, inputs) if isinstance(layer, nn.Conv2d) else inputs.T
    # Appending the 1 to the moment rather than to the inputs saves a copy of these.
    size = len(a)
    moment = a.new_empty(size + 1, size + 1)
    moment[:size, :size] = a @ a.T
    moment[size, :size] = moment[:size, size] = a.sum(dim=1)
    moment[size, size] = a.shape[1]
    return moment / len(inputs)


def _patches(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """What the kernel sees at every position: shape (channels * kernel, records * positions)."""
    padding: Any = layer.padding  # a pair of numbers, or Recorder would have refused it
    down, across = padding
    padded = pad(inputs, (across, across, down, down)) if down or across else inputs
    views = padded.unfold(2, layer.kernel_size[0], layer.stride[0])
    views = views.unfold(3, layer.kernel_size[1], layer.stride[1])
    # One copy; torch's own `unfold` makes a second one for records to lie last.
    return views.permute(1, 4, 5, 0, 2, 3).reshape(math.prod(layer.weight.shape[1:]), -1)


def _output_moment(layer: Layer, gradients: Tensor) -> Tensor:
    g = gradients
    if isinstance(layer, nn.Conv2d):
        g = gradients.permute(0, 2, 3, 1).reshape(-1, gradients.shape[1])
    # A record's own gradient: the loss was the batch's mean.
    return g.T @ g * (len(gradients) ** 2 / len(g))


class Preconditioner:
    """Moving averages of the factors, their lazy inverses, and the natural gradient.

    Attributes:
        factors: (Omega, Gamma) of every layer, float32; empty before the first batch. They are
            inverted in float64.
        inversions: times the factors were inverted.
        inverting: seconds that took.
    """

    def __init__(self, curvature: Curvature) -> None:
        self.curvature = curvature
        self.factors: list[Pair] = []
        self.inversions = 0
        self.inverting = 0.0
        self._inverses: list[Pair] = []
        self._age = 0

    def reset(self) -> None:
        """Drops the factors and their inverses."""
        self.factors, self._inverses, self._age = [], [], 0

    def update(self, statistics: list[Pair]) -> None:
        """Takes in a batch (7) and inverts anew when the interval is over."""
        old = self.curvature.average
        if not self.factors:
            self.factors = statistics
        else:
            self.factors = [
                (torch.lerp(A, a, 1 - old), torch.lerp(G, g, 1 - old))
                for (A, G), (a, g) in zip(self.factors, statistics, strict=True)
            ]
        if self._due():
            began = time.perf_counter()
            self._inverses = [_damped_inverses(*f, self.curvature.damping) for f in self.factors]
            self.inverting += time.perf_counter() - began
            self.inversions += 1
        self._age += 1

    def _due(self) -> bool:
        """Whether the factors are to be inverted at this step."""
        lazy = self._age % self.curvature.interval == 0
        return lazy or self._age + 1 in self.curvature.warm_up or not self._inverses

    def natural_gradient(self, layers: list[Layer]) -> list[Tensor]:
        """Gamma^-1 grad Omega^-1 (8) of every layer, shape (out, in + 1)."""
        return [
            G @ gradient_of(layer) @ A for layer, (A, G) in zip(layers, self._inverses, strict=True)
        ]

    def save(self) -> dict[str, Array]:
        """Everything that carries over to the next round, as arrays."""
        arrays: dict[str, Array] = {"kfac.age": np.array(self._age)}
        for what, pairs in (("factor", self.factors), ("inverse", self._inverses)):
            for i, pair in enumerate(pairs):
                for side, matrix in zip(("omega", "gamma"), pair, strict=True):
                    arrays[f"kfac.{what}.{i}.{side}"] = matrix.cpu().numpy()
        return arrays

    def load(self, arrays: dict[str, Array], layers: int, device: str) -> None:
        """What `save` returned; arrays without factors leave it empty."""
        self.reset()
        if "kfac.factor.0.omega" not in arrays:
            return
        self._age = int(arrays["kfac.age"])

        def pairs(what: str) -> list[Pair]:
            return [
                tuple(  # type: ignore[misc]  # always two
                    torch.from_numpy(arrays[f"kfac.{what}.{i}.{side}"]).to(device)
                    for side in ("omega", "gamma")
                )
                for i in range(layers)
            ]

        self.factors = pairs("factor")
        if "kfac.inverse.0.omega" in arrays:
            self._inverses = pairs("inverse")


def matrix_of(layer: Layer) -> Tensor:
    """A copy of the layer's parameters, shape (out, in + 1), bias in the last column."""
    if layer.bias is None:
        raise ValueError("K-FAC: a layer without a bias; see Recorder")
    with torch.no_grad():
        return torch.cat([layer.weight.reshape(len(layer.bias), -1), layer.bias[:, None]], dim=1)


def gradient_of(layer: Layer) -> Tensor:
    """The layer's gradient as a matrix, shape (out, in + 1), bias in the last column."""
    weight, bias = layer.weight.grad, layer.bias.grad if layer.bias is not None else None
    if weight is None or bias is None:
        raise ValueError("K-FAC: a layer without a gradient; call backward first")
    return torch.cat([weight.reshape(len(bias), -1), bias[:, None]], dim=1)


def apply(layers: list[Layer], steps: list[Tensor], learning_rate: float) -> None:
    """Subtracts learning_rate times the steps, shape (out, in + 1), from the layers."""
    with torch.no_grad():
        for layer, step in zip(layers, steps, strict=True):
            layer.weight.sub_((learning_rate * step[:, :-1]).reshape(layer.weight.shape))
            if layer.bias is not None:
                layer.bias.sub_(learning_rate * step[:, -1])


def _damped_inverses(omega: Tensor, gamma: Tensor, damping: float) -> Pair:
    """Inverses of Omega + pi sqrt(eps) I and Gamma + sqrt(eps)/pi I, by Cholesky (6).

    pi is the root of the ratio of the mean eigenvalues (Martens and Grosse, 6.3). The paper prints
    the ratio of traces, which lacks the dimensions; 1 where a trace is 0.
    """
    mean_omega, mean_gamma = (float(m.trace()) / len(m) for m in (omega, gamma))
    pi = math.sqrt(mean_omega / mean_gamma) if mean_omega > 0 and mean_gamma > 0 else 1.0
    root = math.sqrt(damping)
    return inverse(omega, pi * root), inverse(gamma, root / pi)


def inverse(matrix: Tensor, damping: float) -> Tensor:
    """(matrix + damping I)^-1 by Cholesky in float64, as float32.

    Not a number throughout where the damped matrix is not positive definite, or not finite:
    whoever applies it sees a step that is not finite, and so does the handle.
    """
    damped = matrix.to(torch.float64, copy=True)
    damped.diagonal().add_(damping)
    factor, failed = torch.linalg.cholesky_ex(damped)
    if int(failed):
        return torch.full_like(matrix, math.nan, dtype=torch.float32)
    return torch.cholesky_inverse(factor).float()
