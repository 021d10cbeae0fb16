"""Settings of private networks, chosen on the half of the records that no table is made of.

A try is one descent on the half's pooled records, as a federation whose clients take one step a
round makes it: the mean of the clipped gradients of a few of them, with the noise that the
federation's mean gradient would have. Fewer records a step than the federation takes suffice,
since noise outweighs what sampling adds, and a try takes seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._data import Split
from benchmarks._private_networks import (
    CLIENTS,
    ETA,
    IMAGE,
    Recipe,
    halves,
    model_of,
    percent,
    promised,
    scaled,
)

SAMPLE = 160
"""Records of a try's step."""
ROUNDS, MORE_ROUNDS = 100, 200
FREE_ROUNDS = 500
"""Without a promise, where a step costs nothing."""
CLIPS = (1.0, 0.1)
MOMENTUM = 0.7
COPIES, COPIED = 4, 1.0
"""Of a record, and the epsilon at which they are tried: a step takes as many times as long."""
NETWORKS = ("fourier", "cnn")
LENGTHS = {"fourier": (4.0, 8.0, 16.0, 32.0), "cnn": (0.5, 1.0, 2.0, 4.0)}
"""Of a step of which every record's gradient is clipped: rate times clip."""
FREE_LENGTHS = {"fourier": (4.0, 8.0, 16.0), "cnn": (0.05, 0.2)}
"""Rates without privacy."""


@dataclass(frozen=True)
class Try:
    """One descent.

    Attributes:
        recipe: what was tried.
        last: accuracy on held-out records of the half after the last step, in percent.
        averaged: of the steps' average.
    """

    recipe: Recipe
    last: float
    averaged: float


def search(network: str, epsilon: float | None) -> Iterator[Try]:
    """All tries of a network at an epsilon, one coordinate after the other.

    Args:
        network: "fourier" or "cnn".
        epsilon: None without privacy, where nothing is clipped.
    """
    data = scaled(halves()[0], network)
    found: list[Try] = []

    def tried(recipe: Recipe) -> Try:
        found.append(_descent(recipe, epsilon, data))
        return found[-1]

    def best() -> Recipe:
        return max(found, key=lambda each: each.averaged).recipe

    lengths = (FREE_LENGTHS if epsilon is None else LENGTHS)[network]
    for length in lengths:
        yield tried(Recipe(network, ROUNDS, 1, length, CLIPS[0]))
    for factor in (0.5, 0.3):
        yield tried(replace(best(), beta=MOMENTUM, rate=factor * best().rate))
    if epsilon is None:
        yield tried(replace(best(), rounds=FREE_ROUNDS))
    else:
        yield tried(replace(best(), clip=CLIPS[1], rate=best().rate * CLIPS[0] / CLIPS[1]))
        yield tried(replace(best(), rounds=MORE_ROUNDS))
    if network == "cnn" and epsilon == COPIED:
        yield tried(replace(best(), copies=COPIES))


def _descent(recipe: Recipe, epsilon: float | None, data: Split) -> Try:
    import torch
    from torch.nn.functional import cross_entropy

    from secure_fl.federation import Client
    from secure_fl.federation.privacy import GRID_BITS, Grid
    from secure_fl.trainers.networks import LocalTraining, NetworkState, Shifts, make_plan
    from secure_fl.trainers.networks.augmentation import Copies
    from secure_fl.trainers.networks.dpsgd import clipped_sum
    from secure_fl.trainers.networks.local import as_vectors, records_of
    from secure_fl.trainers.networks.record_gradients import group_size, private_network_of

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    everybody, model = Client("half", data.X_train, data.y_train), model_of(recipe.network)
    network = private_network_of(everybody, model, "cpu")
    size = group_size(everybody, model, "cpu")
    X, y = records_of(everybody, "cpu")
    # Noise as of clients of the table's size, though a tenth of the half is held out.
    records = (len(data.y_train) + len(data.y_test)) // CLIENTS
    promise, batch = promised(recipe, epsilon, records)
    noise, clip = 0.0, 1e3
    if promise is not None:
        training = LocalTraining(steps=1, batch_size=batch, privacy=promise)
        steps, clip = make_plan(records, training, features=False).steps, recipe.clip
        noise = steps.noise_multiplier * clip / (steps.sample_rate * records * CLIENTS**0.5)
    grid, shifts = Grid(clip, 1 << GRID_BITS), Shifts(IMAGE, recipe.copies)
    state = NetworkState(model.initial(rng))
    values, _ = as_vectors(network, state.parameters)
    velocity = torch.zeros_like(values)

    def loss(phi: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(network.head(phi), y, reduction="sum")

    for _ in range(recipe.rounds):
        chosen = rng.choice(len(y), SAMPLE, replace=False)
        copies = Copies(shifts, shifts.moves(len(y), rng.bytes)) if recipe.copies > 1 else None
        codes = clipped_sum(network, X, y, chosen, loss, grid, at_once=size, copies=copies)
        mean = grid.values(codes) / SAMPLE + noise * rng.standard_normal(len(codes))
        velocity.mul_(recipe.beta).add_(torch.from_numpy(mean))
        values.sub_(velocity, alpha=recipe.rate)
        state = state.following(values.numpy().copy(), averaging=ETA)
    return Try(
        recipe, percent(model, state.parameters, data), percent(model, state.delivered, data)
    )
