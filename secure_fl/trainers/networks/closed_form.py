"""Gradients in closed form, for linear models on fixed or random Fourier features on the processor.

With batches of ten records autograd's bookkeeping costs more than the arithmetic: the closed form
takes less than half the time. It is the gradient of the loss in `local.Autograd`.
"""

from typing import Any

import numpy as np
from torch import Tensor, nn

from secure_fl.trainers.networks.models import Array, FourierFeatures, Network
from secure_fl.trainers.networks.regularizers import Regularization, trace_subgradient


def has_closed_form(network: Network, device: str) -> bool:
    """Whether `ClosedForm` can take the network there."""
    return device == "cpu" and isinstance(network.features, nn.Identity | FourierFeatures)


class ClosedForm:
    """The gradient of cross-entropy and FedAvgR's penalties.

    Args:
        network: of which `has_closed_form`, its parameters parts of one vector.
        gradients: what they are the parts of; calls write to it, shape (P,).
        regularization: FedAvgR's terms, or None.
        centres: see `Regularization.penalty`.
    """

    def __init__(
        self,
        network: Network,
        gradients: Tensor,
        regularization: Regularization | None,
        centres: Tensor | None,
    ) -> None:
        own = list(network.parameters())
        self._values = [p.detach().numpy() for p in own]
        splits = np.cumsum([p.numel() for p in own])[:-1]
        parts = np.split(gradients.numpy(), splits)
        self._gradients = [g.reshape(v.shape) for g, v in zip(parts, self._values, strict=True)]
        features = network.features
        self._factor = features.factor if isinstance(features, FourierFeatures) else None
        self._terms = regularization or Regularization()
        self._centres = None if centres is None else centres.numpy()

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """Writes the gradient of a batch: features, shape (n, d), and class codes, shape (n,)."""
        # Numbers may overflow; the handle refuses what is not finite.
        with np.errstate(all="ignore"):
            self._differentiate(x.numpy(), y.numpy())

    def _differentiate(self, records: Array, labels: Array) -> None:
        W, c = self._values[-2:]
        if self._factor is None:
            phi = records
        else:
            omega, b = self._values[:2]
            angle = records @ omega.T + b
            phi = self._factor * np.cos(angle)
        residual = _residual(phi @ W.T + c, labels)
        np.matmul(residual.T, phi, out=self._gradients[-2])
        np.sum(residual, axis=0, out=self._gradients[-1])
        if self._terms.trace:
            self._gradients[-2] += self._terms.trace * trace_subgradient(W)[1]
        if self._factor is not None:
            upstream = self._upstream(residual @ W, phi, labels)
            upstream *= -self._factor * np.sin(angle)
            np.matmul(upstream.T, records, out=self._gradients[0])
            np.sum(upstream, axis=0, out=self._gradients[1])

    def _upstream(self, upstream: Array, phi: Array, labels: Array) -> Array:
        """The gradient with respect to the features, of the loss and of the terms that see them."""
        if self._terms.features:
            norm = float(np.sqrt(np.vdot(phi, phi)))
            if norm > 0:
                upstream += (self._terms.features / norm) * phi
        if self._terms.mmd and self._centres is not None:
            pull = _gaps_by_class if self._terms.per_class else _gaps
            upstream += (2 * self._terms.mmd / len(phi)) * pull(phi, labels, self._centres)
        return upstream


def _gaps(phi: Array, _: Array, centres: Array) -> Array:
    found: Array = phi.mean(axis=0) - centres
    return found


def _gaps_by_class(phi: Array, labels: Array, centres: Array) -> Array:
    """From the centre of each record's class to the batch's mean of it; 0 where none is told."""
    own = np.equal.outer(np.arange(len(centres)), labels).astype(phi.dtype)  # (C, records)
    means = (own @ phi) / np.maximum(own.sum(axis=1, keepdims=True), 1)
    return np.where(np.isnan(centres), 0, means - centres)[labels]


def _residual(scores: Array, labels: Any) -> Array:
    """(softmax - one-hot) / n."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    scores[np.arange(len(labels)), labels] -= 1
    scores /= len(labels)
    return scores
