"""Clients' data sets in, a network out: what `securefl train --model` runs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from secure_fl.data import Dataset
from secure_fl.errors import InputError
from secure_fl.federated_training import Trained, federation_of, traffic_of
from secure_fl.federation import Client, ClientPrivacy, Federation
from secure_fl.networks.artifact import TrainedNetwork
from secure_fl.networks.local import LocalTraining
from secure_fl.networks.models import ConvNet, FourierModel, Model, Perceptron, accuracy
from secure_fl.networks.record_privacy import DPSGD, Books, make_plan, privacy_spent
from secure_fl.networks.regularizers import Regularization
from secure_fl.networks.trainers.fedavg import NetworkState, fedavg
from secure_fl.networks.trainers.fedavgr import fedavgr
from secure_fl.private_training import open_ledger
from secure_fl.trainers.server import Adam, Momentum, ServerOptimizer

Method = Literal["fedavg", "fedavgm", "fedadam", "fedprox", "fedavgr"]
Architecture = Literal["mlp", "cnn", "fourier"]


@dataclass(frozen=True)
class NetworkRecipe:
    """How to train a network; public, and kept in the model.

    Attributes:
        method: the trainer.
        network: the architecture.
        rounds: at least 1.
        hidden: units of the hidden layers of an mlp.
        image: (channels, height, width) of a cnn's records; None for one channel and a square.
        random_features: of fourier; 0 takes 100.
        kernel_deviation: of fourier, standard deviation of the initial frequencies, above 0.
        learning_rate, local_epochs, local_batch, local_momentum: of local steps; with record-level
            privacy the batch is what a Poisson sample has on average.
        server_rate: of fedavgm and fedadam; None takes 1, for fedadam 0.01.
        proximal: mu of fedprox, >= 0.
        trace, feature_penalty, mmd: alpha, beta and gamma of fedavgr, >= 0.
        participants: clients of a round; None takes all.
        secure: whether sums are masked.
        seed: of the experiment's randomness.

    Raises:
        InputError: a setting out of its range.
    """

    method: Method
    network: Architecture
    rounds: int = 10
    hidden: tuple[int, ...] = (64,)
    image: tuple[int, int, int] | None = None
    random_features: int = 0
    kernel_deviation: float = 1.0
    learning_rate: float = 0.1
    local_epochs: int = 1
    local_batch: int = 64
    local_momentum: float = 0.9
    server_rate: float | None = None
    proximal: float = 0.01
    trace: float = 1e-6
    feature_penalty: float = 1e-4
    mmd: float = 1e-2
    participants: int | None = None
    secure: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds: found {self.rounds}, expected at least 1")
        if not self.hidden or min(self.hidden) < 1:
            raise InputError(f"hidden: found {self.hidden}, expected layers of at least 1 unit")
        if not self.kernel_deviation > 0:
            raise InputError(f"kernel deviation: found {self.kernel_deviation}, expected above 0")

    def sums(self, classes: int) -> int:
        """Sums that a run asks for, whatever the number of classes."""
        return self.rounds * (2 if self.method == "fedavgr" and self.mmd else 1)


def train_network(
    clients: Sequence[Dataset],
    recipe: NetworkRecipe,
    *,
    scale: float = 1.0,
    test: Dataset | None = None,
    client_level: ClientPrivacy | None = None,
    record_level: DPSGD | None = None,
    ledgers: Path | None = None,
    budget: float | None = None,
    checkpoint: Path | None = None,
    metrics: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Trained:
    """Runs a recipe over the clients.

    Args:
        clients: with the same classes and features.
        recipe: what to run.
        scale: constant factor on all features.
        test: records that the accuracy is measured on after every round, if any.
        client_level: noise planned for `recipe.sums` sums.
        record_level: promise of every client, with `ledgers`; not beside `client_level`.
        ledgers: folder with one ledger a client; made where there are none.
        budget: epsilon, at the promise's delta, that a new ledger may spend; None sets no limit.
        checkpoint: replaced after every round; where it exists the run goes on from it.
        metrics: a file of JSON lines, one a round.
        progress: receives one line a round.

    Raises:
        InputError: settings that do not fit the clients.
        dp.BudgetError: a client's budget has no room for the whole run; nothing was spent.
        QuorumError: fewer clients survived a round than the threshold.
    """
    model = specification(recipe, len(clients[0].classes), clients[0].n_features)
    training = _training(recipe, record_level)
    members = [Client(each.name, _scaled(each.X, scale), each.y) for each in clients]
    if record_level is not None:
        if ledgers is None:
            raise InputError("record-level privacy: needs a folder for the clients' ledgers")
        _open_books(members, model, training, recipe, ledgers, budget)
    probe = None if test is None else (_scaled(test.X, scale), test.y)
    figures: dict[str, float] = {}

    def measure(state: NetworkState) -> Mapping[str, float]:
        if probe is not None:
            figures["accuracy"] = accuracy(model, state.parameters, *probe)
        return figures

    with federation_of(
        members,
        participants=recipe.participants,
        secure=recipe.secure,
        privacy=client_level,
        seed=recipe.seed,
    ) as fed:
        resumed = None if checkpoint is None else fed.resume(checkpoint)
        rng = np.random.default_rng([recipe.seed, 1])
        state = resumed or NetworkState(model.initial(rng))
        driven = fed.rounds(
            _states(fed, model, recipe, training, state),
            checkpoint=checkpoint,
            metrics=metrics,
            progress=progress,
            measure=measure,
        )
        for each in driven:
            state = each
        measure(state)
        traffic = traffic_of(fed)
        spent = None if client_level is None else fed.privacy_statement()
    if record_level is not None:
        books = [each.ledger for each in members if each.ledger is not None]
        spent = privacy_spent(books, record_level.delta)
    origin = asdict(recipe) | {"clients": len(clients), "privacy": spent}
    origin |= {"record_level": record_level is not None}
    first = clients[0]
    network = TrainedNetwork(
        model, state.parameters, first.classes, first.features, float(scale), origin
    )
    return Trained(network, state.round, dict(figures), traffic, spent)


def specification(recipe: NetworkRecipe, classes: int, features: int) -> Model:
    """The network of a recipe for records of that many features.

    Raises:
        InputError: records that are no images of the recipe's shape.
    """
    if recipe.network == "mlp":
        return Perceptron(classes, features, recipe.hidden)
    if recipe.network == "fourier":
        width = recipe.random_features or 100
        return FourierModel(classes, features, width, recipe.kernel_deviation)
    side = math.isqrt(features)
    shape = recipe.image or (1, side, side)
    if math.prod(shape) != features:
        raise InputError(
            f"cnn: records have {features} features, images of"
            f" {' x '.join(map(str, shape))} have {math.prod(shape)}; give --image"
        )
    try:
        return ConvNet(classes, shape)
    except ValueError as error:
        raise InputError(str(error)) from None


def _training(recipe: NetworkRecipe, promise: DPSGD | None) -> LocalTraining:
    try:
        return LocalTraining(
            recipe.learning_rate,
            epochs=recipe.local_epochs,
            batch_size=recipe.local_batch,
            momentum=recipe.local_momentum,
            proximal=recipe.proximal if recipe.method == "fedprox" else 0.0,
            privacy=promise,
        )
    except ValueError as error:
        raise InputError(str(error)) from None


def _open_books(
    members: Sequence[Client],
    model: Model,
    training: LocalTraining,
    recipe: NetworkRecipe,
    folder: Path,
    budget: float | None,
) -> None:
    """Gives every client its ledger, and asks all before any of them spends."""
    from dp import Budget
    from secure_fl.networks.record_privacy import UNIT

    assert training.privacy is not None
    limit = None if budget is None else Budget(budget, training.privacy.delta, UNIT)
    features = recipe.method == "fedavgr" and recipe.mmd > 0
    for member in members:
        member.ledger = open_ledger(folder, member.name, limit)
    for member in members:
        member.begin(recipe.seed, 0, 0)
        plan = make_plan(len(member), training, features=features)
        Books(member, model, training).check(plan)


def _states(
    fed: Federation,
    model: Model,
    recipe: NetworkRecipe,
    training: LocalTraining,
    start: NetworkState,
) -> Iterator[NetworkState]:
    if recipe.method == "fedavgr":
        terms = Regularization(recipe.trace, recipe.feature_penalty, recipe.mmd)
        return fedavgr(
            fed, model, start=start, rounds=recipe.rounds, training=training, regularization=terms
        )
    servers: dict[str, ServerOptimizer] = {"fedavgm": Momentum(), "fedadam": Adam()}
    server = servers.get(recipe.method)
    if server is not None and recipe.server_rate is not None:
        server = replace(server, learning_rate=recipe.server_rate)
    return fedavg(fed, model, start=start, rounds=recipe.rounds, training=training, server=server)


def _scaled(X: Any, scale: float) -> Any:
    return X.astype(np.float32) * np.float32(scale)
