"""Clients' data sets in, a network out: what `securefl train --model` runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dp import Event, JointLedger
from secure_fl.data import Dataset, Scale, scaled_features
from secure_fl.errors import DivergedError, InputError
from secure_fl.federation import Client, ClientPrivacy, Federation
from secure_fl.federation.divergence import Excess
from secure_fl.privacy.ledgers import Shelf, prove_room
from secure_fl.trainers.network_settings import NetworkRun, NetworkSettings
from secure_fl.trainers.networks.fedavg import NetworkState, local_loss
from secure_fl.trainers.networks.fedrco import (
    events,
    personal_accuracy,
    personal_model,
)
from secure_fl.trainers.networks.local import LocalTraining
from secure_fl.trainers.networks.models import Array, Model, accuracy
from secure_fl.trainers.networks.promise import DPSGD
from secure_fl.trainers.networks.record_privacy import Books, make_plan, privacy_spent
from secure_fl.trainers.networks.selection import lost
from secure_fl.training.fitted import FittedModel
from secure_fl.training.loop import (
    LARGEST_RATIO,
    federation_of,
    files_room,
    last_state,
    remedy_of,
    traffic_of,
)
from secure_fl.training.model_files import schema_of_clients
from secure_fl.training.network_model import TrainedNetwork
from secure_fl.training.settling import settled


def train_network(
    clients: Sequence[Dataset],
    settings: NetworkSettings,
    *,
    secure: bool = False,
    seed: int = 0,
    scale: Scale = 1.0,
    test: Dataset | None = None,
    client_level: ClientPrivacy | None = None,
    record_level: DPSGD | None = None,
    ledgers: Path | Shelf | None = None,
    budget: float | None = None,
    checkpoint: Path | None = None,
    metrics: Path | None = None,
    progress: Callable[[str], None] | None = None,
    settle: bool = False,
) -> FittedModel:
    """Runs a method over the clients.

    Args:
        clients: with the same classes and features.
        settings: the method.
        secure: whether sums are masked.
        seed: of the experiment's randomness.
        scale: constant factor on all features, or a scaling.
        test: records that the accuracy is measured on after every round, if any.
        client_level: noise planned for `settings.sums` sums.
        record_level: promise of every client, with `ledgers`; not beside `client_level`.
        ledgers: the clients' ledgers, or the folder with them; made where there are none.
        budget: epsilon, at the promise's delta, that a new ledger may spend; None sets no limit.
        checkpoint: replaced after every round; where it exists the run goes on from it.
        metrics: a file of JSON lines, one a round.
        progress: receives one line a round.
        settle: whether to end before the last round, when the objective stops falling.

    Raises:
        InputError: settings that do not fit the clients.
        dp.BudgetError: a client's budget has no room for the whole run; nothing was spent.
        QuorumError: fewer clients survived a round than the threshold.
        DivergedError: the parameters, or every client's update, are not finite or far too large;
            or without noise the model is much worse on the training records than chance.
    """
    model = settings.specification(len(clients[0].classes), clients[0].n_features)
    settings.refuse_privacy(record=record_level is not None, client=client_level is not None)
    training = settings.training(record_level)
    members = [Client(each.name, _scaled(each, scale), each.y) for each in clients]
    with federation_of(
        members,
        participants=settings.drawn,
        secure=secure,
        privacy=client_level,
        seed=seed,
    ) as fed:
        # Before the books: a setting out of its range is refused before anything is spent.
        states = settings.states(NetworkRun(fed, model, training))
        if record_level is not None:
            if ledgers is None:
                raise InputError("record-level privacy: needs a folder for the clients' ledgers")
            _open_books(members, model, training, settings, seed, ledgers, budget)
        probe = None if test is None else (_scaled(test, scale), test.y)
        figures: dict[str, float] = {}

        def measure(state: NetworkState) -> Mapping[str, float]:
            if probe is not None:
                figures["accuracy"] = accuracy(model, state.delivered, *probe)
            if client_level is None:
                figures.update(_of_clients(members, model, settings, state, probe))
            return figures

        start = NetworkState(model.initial(np.random.default_rng([seed, 1])))

        def driven(resumed: NetworkState | None) -> Iterator[NetworkState]:
            found = states(resumed or start)
            if not settle:
                return found
            told: Any = {"weights": lambda at: at.delivered, "drawn": settings.drawn}
            return settled(found, fed, local_loss, model, **told)

        state = last_state(
            fed,
            driven,
            measure,
            settings=settings,
            excess=parameter_excess(start.parameters),
            checkpoint=checkpoint,
            metrics=metrics,
            progress=progress,
        )
        if client_level is None and record_level is None and not settings.personal:
            _require_learned(members, model, settings, state)
        traffic = traffic_of(fed)
        spent = None if client_level is None else fed.privacy_statement()
    if record_level is not None:
        books = [each.ledger for each in members if each.ledger is not None]
        spent = privacy_spent(books, record_level.delta)
    origin = settings.to_json() | {
        "network": settings.model,
        "secure": secure,
        "seed": seed,
        "clients": len(clients),
        "privacy": spent,
        "record_level": record_level is not None,
    }
    origin |= schema_of_clients(clients)
    network = TrainedNetwork(
        model, state.delivered, clients[0].classes, clients[0].features, scale, origin
    )
    personal = {}
    for member in members:
        own = personal_model(member)
        if own is not None:
            # No promise covers it: it is made of the client's records without noise.
            told = origin | {"client": member.name, "privacy": None}
            personal[member.name] = replace(network, parameters=own, origin=told)
    return FittedModel(network, state.round, dict(figures), traffic, personal)


def network_room(settings: NetworkSettings, clients: Sequence[Dataset]) -> list[int]:
    """Bytes that the files of a run have at most; see `files_room`."""
    model = settings.specification(len(clients[0].classes), clients[0].n_features)
    numbers = len(model.initial(np.random.default_rng(0)))
    return files_room(numbers, rounds=settings.rounds, clients=len(clients), personal=True)


def prove_books(
    clients: Sequence[Dataset],
    settings: NetworkSettings,
    promise: DPSGD,
    before: Event,
    *,
    seed: int,
    ledgers: Path | Shelf,
    budget: float | None,
) -> JointLedger:
    """The clients' ledgers as one, if each has room for an event and the whole run after it.

    Args:
        clients, settings, seed, ledgers, budget: as `train_network`.
        promise: that the event is in.
        before: the event, which is not booked here.

    Raises:
        dp.BudgetError: one has not; nothing was spent.
    """
    model = settings.specification(len(clients[0].classes), clients[0].n_features)
    members = [Client(each.name, each.X, each.y) for each in clients]
    training = settings.training(promise)
    _open_books(members, model, training, settings, seed, ledgers, budget, before)
    return JointLedger.of([each.ledger for each in members if each.ledger is not None])


def _open_books(
    members: Sequence[Client],
    model: Model,
    training: LocalTraining,
    settings: NetworkSettings,
    seed: int,
    ledgers: Path | Shelf,
    budget: float | None,
    *before: Event,
) -> None:
    """Gives every client its ledger, and asks all before any of them spends."""
    from dp import Budget
    from secure_fl.trainers.networks.record_privacy import UNIT

    assert training.privacy is not None
    limit = None if budget is None else Budget(budget, training.privacy.delta, UNIT)
    shelf = Shelf(ledgers) if isinstance(ledgers, Path) else ledgers
    for member in members:
        member.ledger = shelf.open(member.name, limit)
    for member in members:
        member.begin(seed, 0, 0)
        plan = make_plan(len(member), training, features=settings.releases_features)
        Books(member, model, training).check(plan, *before)
    events = settings.sums(len(members))
    prove_room((member.ledger for member in members if member.ledger is not None), events)


def _of_clients(
    members: Sequence[Client],
    model: Model,
    settings: NetworkSettings,
    state: NetworkState,
    probe: tuple[Any, Array] | None,
) -> dict[str, float]:
    """Events of the monitor so far, and the mean accuracy of personal models, of all clients.

    Sums over clients, as every update is; the caller leaves them out where sums carry noise, which
    these would need too.
    """
    found: dict[str, float] = {}
    if not settings.monitored:
        return found
    # Of its own: whoever measures is no part of the run's traffic.
    with Federation(members) as everyone:
        counted = everyone.sum(events)
        found |= {name: float(counted[name]) for name in ("rollbacks", "resets", "inversions")}
        if settings.personal and probe is not None:
            right = everyone.sum(personal_accuracy, model, state.parameters, *probe)
            found["personal_accuracy"] = float(right["personal_mix"]) / len(members)
    return found


def _require_learned(
    members: Sequence[Client], model: Model, settings: NetworkSettings, state: NetworkState
) -> None:
    """Refuses a model that is much worse on the training records than answers by chance.

    Steps that are too long leave units that answer every record alike, with parameters that are
    not large. One sum over clients more, as every update is; not where sums carry noise, and not
    where the clients' own models are what is trained.

    Raises:
        DivergedError: so.
    """
    with Federation(members) as everyone:
        found = everyone.sum(lost, model, state.delivered)
    mean, chance = float(found["loss"]) / float(found["records"]), float(np.log(model.classes))
    if mean > LARGEST_RATIO * chance:
        raise DivergedError(
            f"{settings.method}: training diverged, after round {state.round} the mean loss of the"
            f" training records is {mean:.3g}, that of answers by chance {chance:.3g};"
            f" {remedy_of(settings)}. The model was not kept"
        )


LARGEST_GROWTH = 1e3
"""Divergence is stated where a parameter is so many times the largest initial one, or 1."""


def parameter_excess(initial: Array) -> Excess:
    """The bound on a network's parameters: far above what any step of a trained one needs."""
    limit = LARGEST_GROWTH * max(1.0, float(np.abs(initial).max()))

    def excess(parameters: Array) -> str | None:
        largest = float(np.abs(parameters).max())
        return f"a parameter is {largest:.3g}, above {limit:.3g}" if largest > limit else None

    return excess


def _scaled(data: Dataset, scale: Scale) -> Any:
    return scaled_features(data.X, scale, np.float32, where=data.where)
