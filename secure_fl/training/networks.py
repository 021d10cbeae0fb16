"""Clients' data sets in, a network out: what `securefl train --model` runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from secure_fl.books import Shelf, prove_room
from secure_fl.data import Dataset
from secure_fl.errors import InputError
from secure_fl.training.linear import Trained
from secure_fl.federation import Client, ClientPrivacy, Federation
from secure_fl.training.network_model import TrainedNetwork
from secure_fl.trainers.networks.local import LocalTraining
from secure_fl.trainers.networks.models import Array, Model, accuracy
from secure_fl.trainers.networks.recipe import (
    MONITORED,
    SECOND_ORDER,
    NetworkRecipe,
    local_training,
    second_order,
    specification,
)
from secure_fl.trainers.networks.record_privacy import DPSGD, Books, make_plan, privacy_spent
from secure_fl.trainers.networks.regularizers import Regularization
from secure_fl.trainers.networks.fedavg import NetworkState, fedavg
from secure_fl.trainers.networks.fedavgr import fedavgr
from secure_fl.trainers.networks.fedpm import fedpm
from secure_fl.trainers.networks.fedrco import (
    events,
    fedrco,
    personal_accuracy,
    personal_model,
)
from secure_fl.trainers.linear.server import Adam, Momentum, ServerOptimizer
from secure_fl.training.loop import federation_of, files_room, last_state, traffic_of


def train_network(
    clients: Sequence[Dataset],
    recipe: NetworkRecipe,
    *,
    scale: float = 1.0,
    test: Dataset | None = None,
    client_level: ClientPrivacy | None = None,
    record_level: DPSGD | None = None,
    ledgers: Path | Shelf | None = None,
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
        ledgers: the clients' ledgers, or the folder with them; made where there are none.
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
    recipe.refuse_privacy(record=record_level is not None, client=client_level is not None)
    training = local_training(recipe, record_level)
    members = [Client(each.name, _scaled(each.X, scale), each.y) for each in clients]
    with federation_of(
        members,
        participants=recipe.participants,
        secure=recipe.secure,
        privacy=client_level,
        seed=recipe.seed,
    ) as fed:
        # Before the books: a setting out of its range is refused before anything is spent.
        states = _trainer(fed, model, recipe, training)
        if record_level is not None:
            if ledgers is None:
                raise InputError("record-level privacy: needs a folder for the clients' ledgers")
            _open_books(members, model, training, recipe, ledgers, budget)
        probe = None if test is None else (_scaled(test.X, scale), test.y)
        figures: dict[str, float] = {}

        def measure(state: NetworkState) -> Mapping[str, float]:
            if probe is not None:
                figures["accuracy"] = accuracy(model, state.parameters, *probe)
            if client_level is None:
                figures.update(_of_clients(members, model, recipe, state, probe))
            return figures

        start = NetworkState(model.initial(np.random.default_rng([recipe.seed, 1])))
        state = last_state(
            fed,
            lambda resumed: states(resumed or start),
            measure,
            checkpoint=checkpoint,
            metrics=metrics,
            progress=progress,
        )
        traffic = traffic_of(fed)
        spent = None if client_level is None else fed.privacy_statement()
    if record_level is not None:
        books = [each.ledger for each in members if each.ledger is not None]
        spent = privacy_spent(books, record_level.delta)
    origin = asdict(recipe) | {"clients": len(clients), "privacy": spent}
    origin |= {"record_level": record_level is not None}
    network = TrainedNetwork(
        model, state.parameters, clients[0].classes, clients[0].features, float(scale), origin
    )
    personal = {}
    for member in members:
        own = personal_model(member)
        if own is not None:
            # No promise covers it: it is made of the client's records without noise.
            told = origin | {"client": member.name, "privacy": None}
            personal[member.name] = replace(network, parameters=own, origin=told)
    return Trained(network, state.round, dict(figures), traffic, spent, personal)


def network_room(recipe: NetworkRecipe, clients: Sequence[Dataset]) -> list[int]:
    """Bytes that the files of a run have at most; see `files_room`."""
    model = specification(recipe, len(clients[0].classes), clients[0].n_features)
    numbers = len(model.initial(np.random.default_rng(0)))
    return files_room(numbers, rounds=recipe.rounds, clients=len(clients), personal=True)


def _open_books(
    members: Sequence[Client],
    model: Model,
    training: LocalTraining,
    recipe: NetworkRecipe,
    ledgers: Path | Shelf,
    budget: float | None,
) -> None:
    """Gives every client its ledger, and asks all before any of them spends."""
    from dp import Budget
    from secure_fl.trainers.networks.record_privacy import UNIT

    assert training.privacy is not None
    limit = None if budget is None else Budget(budget, training.privacy.delta, UNIT)
    features = recipe.method == "fedavgr" and recipe.mmd > 0
    shelf = Shelf(ledgers) if isinstance(ledgers, Path) else ledgers
    for member in members:
        member.ledger = shelf.open(member.name, limit)
    for member in members:
        member.begin(recipe.seed, 0, 0)
        plan = make_plan(len(member), training, features=features)
        Books(member, model, training).check(plan)
    events = recipe.rounds * (2 if features else 1)
    prove_room((member.ledger for member in members if member.ledger is not None), events)


def _trainer(
    fed: Federation, model: Model, recipe: NetworkRecipe, training: LocalTraining
) -> Callable[[NetworkState], Iterator[NetworkState]]:
    """The trainer of a recipe, given where to start.

    Raises:
        InputError: a setting out of its range.
    """
    common: dict[str, Any] = {"rounds": recipe.rounds, "training": training}
    if recipe.method == "fedavgr":
        terms = Regularization(recipe.trace, recipe.feature_penalty, recipe.mmd)
        return lambda start: fedavgr(fed, model, start=start, regularization=terms, **common)
    if recipe.method in SECOND_ORDER:
        options = second_order(recipe, training)
        if recipe.method == "fedpm":
            return lambda start: fedpm(fed, model, start=start, damping=recipe.damping, **common)
        return lambda start: fedrco(fed, model, start=start, rounds=recipe.rounds, options=options)
    servers: dict[str, ServerOptimizer] = {"fedavgm": Momentum(), "fedadam": Adam()}
    server = servers.get(recipe.method)
    if server is not None and recipe.server_rate is not None:
        server = replace(server, learning_rate=recipe.server_rate)
    return lambda start: fedavg(fed, model, start=start, server=server, **common)


def _of_clients(
    members: Sequence[Client],
    model: Model,
    recipe: NetworkRecipe,
    state: NetworkState,
    probe: tuple[Any, Array] | None,
) -> dict[str, float]:
    """Events of the monitor so far, and the mean accuracy of personal models, of all clients.

    Sums over clients, as every update is; the caller leaves them out where sums carry noise, which
    these would need too.
    """
    found: dict[str, float] = {}
    if recipe.method not in MONITORED:
        return found
    # Of its own: whoever measures is no part of the run's traffic.
    with Federation(members) as everyone:
        counted = everyone.sum(events)
        found |= {name: float(counted[name]) for name in ("rollbacks", "resets", "inversions")}
        if recipe.method == "fedrco" and probe is not None:
            right = everyone.sum(personal_accuracy, model, state.parameters, *probe)
            found["personal_accuracy"] = float(right["personal_mix"]) / len(members)
    return found


def _scaled(X: Any, scale: float) -> Any:
    return X.astype(np.float32) * np.float32(scale)
