"""What a node is told by its owner: the SuperNode's own configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dp
from secure_fl.data.naming import stem
from secure_fl.errors import InputError
from secure_fl.federation import Client
from secure_fl.flower.heads import HeadKeeper, HeadRecipe
from secure_fl.flower.node import Node
from secure_fl.flower.plan import Plan, read_plan
from secure_fl.flower.policy import NodePolicy

_NODE = {"name", "data", "state", "identity", "directory", "label-column", "heads"} | {
    *("secure", "noise", "clip", "sums", "colluding"),
    *("threshold", "min-clients", "cohorts", "unfinished"),
    *("ledger", "epsilon", "delta", "norm", "distance"),
}
_FLOWERS = {"partition-id", "num-partitions"}
"""What Flower itself may put into a node's configuration."""


def make_node(own: Mapping[str, Any], run: Mapping[str, Any]) -> Node:
    """The node of a machine.

    Args:
        own: its `--node-config`: data (a client file), state (a folder), name (default: the
            file's), label-column; identity and directory for masked sums; heads (a folder) for
            the method kahm; its `NodePolicy`, of which ledger is a file, made where it is absent
            with the budget of epsilon and delta per norm (a record) or distance (an element).
        run: the run's configuration.

    Raises:
        InputError: a setting is unknown, absent or wrong, or a file cannot be used.
        dp.LedgerError: the ledger was edited.
    """
    unknown = sorted(set(own) - _NODE - _FLOWERS)
    if unknown:
        raise InputError(f"--node-config {unknown[0]}: no setting of a node; see docs/deploy.md")
    for needed in ("data", "state"):
        if needed not in own:
            raise InputError(f"--node-config {needed}: missing; see docs/deploy.md")
    plan = read_plan(run)
    data = Path(str(own["data"]))
    name = str(own.get("name", stem(data)))
    column = str(own.get("label-column", "label"))
    # What a server may ask for is what is imported here: a name from a network imports nothing.
    import secure_fl.trainers.fednl  # registers its steps
    import secure_fl.trainers.linear  # noqa: F401  # as above: registers steps
    from secure_fl.crypto.identities import read_directory, read_identity

    identity, directory = own.get("identity"), own.get("directory")
    terms = NodePolicy(
        secure=bool(own.get("secure", False)),
        noise=float(own.get("noise", 0.0)),
        clip=float(own.get("clip", "inf")),
        sums=int(own.get("sums", 2**31)),
        colluding=int(own.get("colluding", 0)),
        threshold=None if "threshold" not in own else int(own["threshold"]),
        min_clients=None if "min-clients" not in own else int(own["min-clients"]),
        cohorts=int(own.get("cohorts", 1)),
        unfinished=int(own.get("unfinished", 3)),
        ledger=_ledger(own, name),
    )
    return Node(
        name,
        lambda: _client(name, data, column, plan),
        Path(str(own["state"])),
        identity=None if identity is None else read_identity(Path(str(identity))),
        directory=None if directory is None else read_directory(Path(str(directory))),
        terms=terms,
        heads=_keeper(own, name, data, column, plan, terms.ledger),
        description=plan.description,
    )


def _ledger(own: Mapping[str, Any], name: str) -> dp.Ledger | None:
    from secure_fl.privacy.ledgers import open_books

    if "ledger" not in own:
        return None
    budget = None
    if "epsilon" in own:
        norm = own.get("norm")
        unit = dp.Element(float(own.get("distance", 1.0))) if norm is None else dp.Record(norm)
        budget = dp.Budget(float(own["epsilon"]), float(own.get("delta", 1e-5)), unit)
    return open_books(Path(str(own["ledger"])), name, budget)


def _keeper(
    own: Mapping[str, Any],
    name: str,
    data: Path,
    column: str,
    plan: Plan,
    ledger: dp.Ledger | None,
) -> HeadKeeper | None:
    if not isinstance(plan.recipe, HeadRecipe) or plan.recipe.method != "kahm":
        return None
    if "heads" not in own:
        raise InputError("--node-config heads: missing; name the folder that keeps this node's")
    return HeadKeeper(
        name,
        plan.clients,
        plan.classes,
        plan.scaling_map,
        plan.recipe,
        lambda: _records(data, column, plan),
        Path(str(own["heads"])),
        ledger,
        plan.description,
    )


def _client(name: str, data: Path, column: str, plan: Plan) -> Client:
    from secure_fl.training.linear import model_inputs, random_features

    found = _records(data, column, plan)
    if isinstance(plan.recipe, HeadRecipe):
        from secure_fl.heads.record_private import released_inputs

        if plan.recipe.method == "kahm":
            raise InputError("server: asks for a sum, the plan is of heads")
        return Client(name, released_inputs(found.X, plan.scaling_map, found.where), found.y)
    random = random_features(plan.recipe, found.n_features, plan.seed)
    inputs = model_inputs(found.X, plan.recipe, plan.scaling_map, random, found.where)
    return Client(name, inputs, found.y)


def _records(data: Path, column: str, plan: Plan) -> Any:
    from secure_fl.data import ClassList, Columns, ReadOptions, assemble, read_client

    records = read_client(data, ReadOptions(columns=Columns(column)))
    (found,) = assemble([records], classes=ClassList(plan.classes), manifest="the run's classes")
    return found
