"""One run of a federated network under record-level privacy on half of MNIST."""

import functools
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._data import Split, mnist
from benchmarks._federations import clients_of
from dp import Ledger
from secure_fl.data import shards
from secure_fl.federation import Federation

if TYPE_CHECKING:
    from secure_fl.trainers.networks import Model

DELTA = 1e-5
CLIENTS, SHARDS = 10, 2
WIDTH = 32
FOURIER_SCALE = 1 / 7
"""Of pixels in [0, 1], before Fourier features: images then have about unit length."""
IMAGE = (1, 28, 28)
GROUPS = 4
FREE_BATCH = 64
"""Without privacy, where no noise wants a larger one."""
ETA = 3.0
"""Of the rounds' average."""
WEIGHTS = {"mmd": 1e-2 * WIDTH, "features": 1e-4 * WIDTH**0.5, "trace": 1e-6 * WIDTH**-0.5}
"""Of the paper's grids (fedavgr.txt, 5.3), for features that are shorter by sqrt(WIDTH)."""


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes:
        network: "fourier" or "cnn".
        rounds: of the federation.
        steps: of a client in a round.
        rate: of local steps.
        clip: of a record's gradient; unused without privacy.
        batch: expected under a promise; None for the economical one.
        momentum: of local steps.
        beta: momentum of the server, between rounds.
        copies: of a record in a step, moved by up to 2 pixels; 1 for the record itself.
        regularised: whether FedAvgR's terms are added.
    """

    network: str
    rounds: int
    steps: int
    rate: float
    clip: float
    batch: int | None = None
    momentum: float = 0.0
    beta: float = 0.0
    copies: int = 1
    regularised: bool = False


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        last: accuracy on the test records, in percent, after the last round.
        averaged: of the rounds' average.
        spent: largest epsilon in a client's books; 0 without privacy.
        multiplier: largest noise multiplier of a client; 0 without privacy.
        batch: expected of a client.
        seconds: of processor time.
    """

    last: float
    averaged: float
    spent: float
    multiplier: float
    batch: int
    seconds: float


@functools.cache
def halves() -> tuple[Split, Split]:
    """MNIST twice with halves of the training records: to choose settings on, and for the table.

    Nobody who chooses sees the test records: in their place the first half has the last tenth of
    itself.
    """
    data = mnist()
    order = np.random.default_rng(0).permutation(len(data.y_train))
    first, second = np.split(order, 2)
    kept, held = np.split(first, [len(first) * 9 // 10])
    chosen_on = (data.X_train[kept], data.y_train[kept], data.X_train[held], data.y_train[held])
    return (
        Split(*chosen_on, data.classes, data.source),
        replace(data, X_train=data.X_train[second], y_train=data.y_train[second]),
    )


def scaled(data: Split, network: str) -> Split:
    """Records as that network takes them."""
    factor = np.float32(FOURIER_SCALE if network == "fourier" else 1.0)
    return replace(data, X_train=data.X_train * factor, X_test=data.X_test * factor)


def model_of(network: str) -> "Model":
    """The network of that name, for MNIST."""
    from secure_fl.trainers.networks import ConvNet, FourierModel

    if network == "fourier":
        return FourierModel(10, IMAGE[1] * IMAGE[2], WIDTH)
    return ConvNet(10, IMAGE, GROUPS)


def trial(recipe: Recipe, epsilon: float | None, seed: int) -> Trial:
    """Trains on the second half and tests.

    Args:
        recipe: the settings.
        epsilon: per record, for each client; None without privacy.
        seed: of the partition and the initial weights; the noise has none.
    """
    import torch

    from secure_fl.trainers.linear.server import Momentum
    from secure_fl.trainers.networks import LocalTraining, NetworkState, fedavg, fedavgr
    from secure_fl.trainers.networks.regularizers import Regularization

    torch.set_num_threads(1)
    started = time.process_time()
    data, rng = scaled(halves()[1], recipe.network), np.random.default_rng(seed)
    clients = clients_of(data.X_train, data.y_train, shards(data.y_train, CLIENTS, SHARDS, rng))
    model = model_of(recipe.network)
    promise, batch = promised(recipe, epsilon, min(map(len, clients)))
    training = LocalTraining(
        recipe.rate,
        steps=recipe.steps,
        batch_size=batch,
        momentum=recipe.momentum,
        privacy=promise,
    )
    options: dict[str, Any] = {
        "start": NetworkState(model.initial(rng)),
        "rounds": recipe.rounds,
        "training": training,
        "averaging": ETA,
    }
    if recipe.beta:
        options["server"] = Momentum(beta=recipe.beta)
    if recipe.regularised:
        options["regularization"] = Regularization(**WEIGHTS)
    with tempfile.TemporaryDirectory() as folder:
        ledgers = [Ledger.create(Path(folder) / f"{c.name}.jsonl", c.name) for c in clients]
        for client, ledger in zip(clients, ledgers, strict=True):
            client.ledger = ledger
        fed = Federation(clients, seed=seed)
        trainer: Any = fedavgr if recipe.regularised else fedavg
        for state in fed.rounds(trainer(fed, model, **options)):
            last = state
        spent = max(ledger.get_epsilon(DELTA).epsilon for ledger in ledgers)
        noises = [event.gaussian for ledger in ledgers for event in ledger.events]
    return Trial(
        percent(model, last.parameters, data),
        percent(model, last.delivered, data),
        spent,
        max((n.noise_multiplier for n in noises if n and n.sample_rate < 1), default=0.0),
        batch,
        time.process_time() - started,
    )


def promised(recipe: Recipe, epsilon: float | None, records: int) -> tuple[Any, int]:
    """The promise (None without privacy) and the expected batch of clients of that size."""
    from secure_fl.trainers.networks import DPSGD, Shifts, economical_batch

    if epsilon is None:
        return None, FREE_BATCH
    shifts = Shifts(IMAGE, recipe.copies) if recipe.copies > 1 else None
    promise = DPSGD(epsilon, DELTA, recipe.rounds, clip=recipe.clip, shifts=shifts)
    return promise, recipe.batch or economical_batch(records, promise, recipe.steps)


def percent(model: "Model", parameters: Any, data: Split) -> float:
    """Accuracy on the test records."""
    from secure_fl.trainers.networks import accuracy

    return 100.0 * accuracy(model, parameters, data.X_test, data.y_test)
