"""What the parties of a network run are told: the run's plan, and each node's own configuration."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from secure_fl.errors import InputError
from secure_fl.federation import Client, ClientPrivacy, FixedNumber, SecureAggregation
from secure_fl.recipe import Recipe
from secure_fl.runtime.line import Exchange
from secure_fl.runtime.network import NetworkFederation
from secure_fl.runtime.node import Node, Terms

_NODE = {"name", "data", "state", "identity", "directory", "label-column"} | {
    *("secure", "noise", "clip", "sums", "colluding")
}
_OWN = {"clients", "classes", "out", "checkpoint", "scale", "wait", "time-out", "max-weight"} | {
    *("threshold", "features", "client-epsilon", "client-delta", "clip", "ledger")
}


@frozen
class Plan:
    """A network run, public to all parties.

    Attributes:
        clients: names, in the fixed order of every sum.
        classes: class names.
        recipe: what to run.
        out: run folder that the server writes; must not exist.
        checkpoint: file at the server that a killed run goes on from.
        scale: constant factor on all features.
        wait: seconds that the start waits for clients.
        time_out: seconds that a node has for one message.
        max_weight: bound on the records of one client; needed where sums are masked.
        threshold: clients that must be left in a sum.
        features: columns of the client files; needed with random features.
        client_epsilon, client_delta, clip, ledger: client-level noise; see `ClientPrivacy`.
    """

    clients: tuple[str, ...]
    classes: tuple[str, ...]
    recipe: Recipe
    out: Path
    checkpoint: Path | None = None
    scale: float = 1.0
    wait: float = 60.0
    time_out: float = 600.0
    max_weight: float | None = None
    threshold: int | None = None
    features: int | None = None
    client_epsilon: float | None = None
    client_delta: float = 1e-5
    clip: float | None = None
    ledger: Path | None = None


def read_plan(config: Mapping[str, Any]) -> Plan:
    """The plan in a Flower run's configuration; names are `Plan`'s and `Recipe`'s with hyphens.

    Raises:
        InputError: a setting is unknown, absent or out of range.
    """
    known = {field.name.replace("_", "-") for field in fields(Recipe)}
    unknown = sorted(set(config) - known - _OWN)
    if unknown:
        raise InputError(f"{unknown[0]}: no setting of a run; see docs/deploy.md")
    recipe = Recipe(**{k.replace("-", "_"): v for k, v in config.items() if k in known})
    if recipe.method == "private-ridge":
        raise InputError("private-ridge: runs in one process only; choose another method")
    own = {k.replace("-", "_"): v for k, v in config.items() if k in _OWN}
    for name in ("clients", "classes"):
        own[name] = tuple(part for part in str(own.get(name, "")).split(",") if part)
        if len(own[name]) < 2:
            raise InputError(f"{name}: found {len(own[name])}, give at least 2, with commas")
    for name in ("out", "checkpoint", "ledger"):
        if name in own:
            own[name] = Path(own[name])
    if "out" not in own:
        raise InputError("out: missing; name the folder that the server writes the model to")
    for name in ("scale", "wait", "time_out", "max_weight", "client_epsilon", "clip"):
        if name in own:
            own[name] = float(own[name])
    plan = Plan(recipe=recipe, **own)
    if recipe.secure and plan.max_weight is None:
        raise InputError("max-weight: missing; a public bound on the records of one client")
    if recipe.random_features and plan.features is None:
        raise InputError("features: missing; columns of the client files, for random features")
    if plan.client_epsilon is not None:
        if plan.clip is None or plan.ledger is None:
            raise InputError("client-epsilon: needs clip and ledger")
        if recipe.sums is None:
            raise InputError(
                f"client-epsilon: the line search of {recipe.method} takes as many sums as it"
                " needs, and each costs privacy; set safeguard = false"
            )
    return plan


def make_node(own: Mapping[str, Any], run: Mapping[str, Any]) -> Node:
    """The node of a machine.

    Args:
        own: its `--node-config`: data (a client file), state (a folder), name (default: the
            file's), label-column; identity and directory for masked sums; and its `Terms`.
        run: the run's configuration.

    Raises:
        InputError: a setting is unknown, absent or wrong, or a file cannot be used.
    """
    unknown = sorted(set(own) - _NODE - {"partition-id", "num-partitions"})
    if unknown:
        raise InputError(f"--node-config {unknown[0]}: no setting of a node; see docs/deploy.md")
    for needed in ("data", "state"):
        if needed not in own:
            raise InputError(f"--node-config {needed}: missing; see docs/deploy.md")
    plan = read_plan(run)
    data = Path(str(own["data"]))
    name = str(own.get("name", data.name.partition(".")[0]))
    column = str(own.get("label-column", "label"))
    # What a server may ask for is what is imported here: a name from a network imports nothing.
    import secure_fl.fednl  # registers its steps
    import secure_fl.trainers  # noqa: F401  # as above: registers steps
    from secure_fl.runtime.identities import read_directory, read_identity

    identity, directory = own.get("identity"), own.get("directory")
    return Node(
        name,
        lambda: _client(name, data, column, plan),
        Path(str(own["state"])),
        identity=None if identity is None else read_identity(Path(str(identity))),
        directory=None if directory is None else read_directory(Path(str(directory))),
        terms=Terms(
            secure=bool(own.get("secure", False)),
            noise=float(own.get("noise", 0.0)),
            clip=float(own.get("clip", "inf")),
            sums=int(own.get("sums", 2**31)),
            colluding=int(own.get("colluding", 0)),
        ),
    )


def _client(name: str, data: Path, label_column: str, plan: Plan) -> Client:
    from secure_fl.data import ClassList, Columns, ReadOptions, assemble, read_client
    from secure_fl.federated_training import random_features
    from secure_fl.linear_model import mapped

    records = read_client(data, ReadOptions(columns=Columns(label_column)))
    (found,) = assemble([records], classes=ClassList(plan.classes), manifest="the run's classes")
    random = random_features(plan.recipe, found.n_features)
    scaled = found.X.astype(np.float64) * plan.scale
    return Client(name, mapped(scaled, random), found.y)


def train(exchange: Exchange, plan: Plan, progress: Callable[[str], None]) -> None:
    """Runs the plan and writes its run folder, as `securefl train --method` does in one process.

    Args:
        exchange: to the nodes.
        plan: what to run.
        progress: receives one line a round.

    Raises:
        QuorumError: fewer clients are left than the threshold.
        InputError: settings that do not fit the clients, or a file that cannot be used.
    """
    import shutil

    from secure_fl._files import new_folder, refuse_existing
    from secure_fl.federated_training import objective_of, random_features, trainer_states
    from secure_fl.linear_model import FILE, LinearModel

    refuse_existing(plan.out)
    recipe = plan.recipe
    count = recipe.participants
    fed = NetworkFederation(
        exchange,
        plan.clients,
        seed=recipe.seed,
        participation=None if count is None else FixedNumber(count),
        threshold=plan.threshold,
        aggregation=SecureAggregation(max_weight=plan.max_weight) if recipe.secure else None,
        privacy=_privacy(plan),
        time_out=plan.time_out,
    )
    objective = objective_of(recipe, len(plan.classes))
    start: Any = None if plan.checkpoint is None else fed.resume(plan.checkpoint)
    width = fed.features()
    state: Any = start
    with new_folder(plan.out) as aside:
        metrics = aside / "metrics.jsonl"
        lines = metrics if plan.checkpoint is None else Path(f"{plan.checkpoint}.jsonl")
        states = trainer_states(fed, objective, width, recipe, start)
        for each in fed.rounds(
            states, checkpoint=plan.checkpoint, metrics=lines, progress=progress
        ):
            state = each
        if plan.checkpoint is not None:
            shutil.copyfile(lines, metrics)
        spent = None if plan.client_epsilon is None else fed.privacy_statement()
        origin = asdict(recipe) | {"clients": len(plan.clients), "privacy": spent}
        inputs = width - 1 if plan.features is None else plan.features
        random = random_features(recipe, inputs)
        model = LinearModel(state.weights, plan.classes, inputs, None, plan.scale, random, origin)
        model.save(aside / FILE)
    progress(f"{plan.out}: {recipe.method}, {state.round} rounds, {len(plan.clients)} clients")


def _privacy(plan: Plan) -> ClientPrivacy | None:
    if plan.client_epsilon is None or plan.clip is None or plan.ledger is None:
        return None
    from dp import Budget, Ledger
    from secure_fl.federation import calibrate
    from secure_fl.federation.privacy import UNIT

    assert plan.recipe.sums is not None
    noise = calibrate(plan.client_epsilon, plan.client_delta, plan.recipe.sums)
    if plan.ledger.exists():
        books = Ledger.open(plan.ledger)
    else:
        budget = Budget(plan.client_epsilon, plan.client_delta, UNIT)
        books = Ledger.create(plan.ledger, plan.ledger.stem, budget)
    return ClientPrivacy(plan.clip, noise, plan.recipe.sums, books, plan.client_delta)
