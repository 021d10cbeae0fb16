"""What one would take instead of the project's heads: other private linear heads, pooled.

A trusted party holds all records and adds continuous noise; every head is calibrated by the same
exact curve as the project's. Records have norm at most 1.
"""

import math
import warnings
from typing import Any

import numpy as np

from benchmarks._data import Split
from dp.calibration import noise_multiplier
from dp.loss_distribution import gaussian_epsilon
from secure_fl.objectives.base import Array
from secure_fl.privacy.promises import Neighbours
from secure_fl.trainers.linear._record_noise import RECORDS_CHANGED

CONFIDENCE = 0.05
"""Of AdaSSP's bounds on its own noise."""


def multiplier(epsilon: float, delta: float) -> float:
    """Noise multiplier of one Gaussian that keeps the promise, from above."""
    low, high = 1e-3, 1e3
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (
            (middle, high) if gaussian_epsilon(1 / middle, delta) > epsilon else (low, middle)
        )
    return high


def class_means(
    data: Split, whole: float, neighbours: Neighbours, rng: np.random.Generator
) -> Array:
    """Noisy sums of each class's records, as directions (as DPPL's mean prototypes), (d, C)."""
    sums = _cross(data)
    sums += whole * RECORDS_CHANGED[neighbours] * rng.standard_normal(sums.shape)
    return sums / np.linalg.norm(sums, axis=0)


def adassp(data: Split, whole: float, neighbours: Neighbours, rng: np.random.Generator) -> Array:
    """Adaptive sufficient statistics perturbation (Wang 2018, algorithm 2), (d, C).

    A third of the budget each for the least eigenvalue, the second moments and X'Y.
    """
    d = data.X_train.shape[1]
    X = data.X_train.astype(float)
    part = whole * math.sqrt(3.0)
    of_gram = part * (math.sqrt(2.0) if neighbours == "replace" else 1.0)
    of_cross = part * RECORDS_CHANGED[neighbours]
    gram, cross = X.T @ X, _cross(data)
    least = float(np.linalg.eigvalsh(gram)[0]) + part * rng.standard_normal()
    least = max(0.0, least - part * math.sqrt(2 * math.log(6 / CONFIDENCE)))
    upper = np.triu(of_gram * rng.standard_normal((d, d)))
    noisy = gram + upper + np.triu(upper, 1).T
    cross = cross + of_cross * rng.standard_normal(cross.shape)
    ridge = max(0.0, of_gram * math.sqrt(d * math.log(2 * d * d / CONFIDENCE)) - least)
    return np.linalg.solve(noisy + ridge * np.eye(d), cross)


def opacus_probe(
    data: Split, epsilon: float, delta: float, rate: float, clip: float, seed: int
) -> Array:
    """A linear probe by opacus's DP-SGD, 20 epochs of batches of 1,024; record added or removed.

    The noise is calibrated by this project's accountant, which is the tighter one.

    Returns:
        Weights with a last row of constants, shape (d + 1, C).
    """
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    records = TensorDataset(torch.from_numpy(data.X_train), torch.from_numpy(data.y_train))
    loader = DataLoader(records, batch_size=1024)
    epochs, share = 20, 1 / len(loader)
    model: Any = torch.nn.Linear(data.X_train.shape[1], len(data.classes))
    torch.nn.init.zeros_(model.weight)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    noise = noise_multiplier(epsilon, delta, sample_rate=share, steps=epochs * len(loader))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine: Any = PrivacyEngine()
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            noise_multiplier=noise,
            max_grad_norm=clip,
        )
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                optimizer.step()
    layer = model._module
    parts = [layer.weight.detach().numpy().T, layer.bias.detach().numpy()[None]]
    return np.concatenate(parts).astype(float)


def _cross(data: Split) -> Array:
    found: Array = data.X_train.astype(float).T @ np.eye(len(data.classes))[data.y_train]
    return found
