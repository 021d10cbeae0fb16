"""What a node is told by its owner: the SuperNode's own configuration."""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dp
from secure_fl.data import (
    ClassList,
    Columns,
    Dataset,
    ReadOptions,
    Records,
    Scaling,
    assemble,
    read_client,
)
from secure_fl.data.naming import stem
from secure_fl.errors import InputError
from secure_fl.federation import Client
from secure_fl.files import placed
from secure_fl.flower.head_recipe import HeadRecipe
from secure_fl.flower.heads import HeadKeeper
from secure_fl.flower.node import Node
from secure_fl.flower.plan import Plan, read_plan
from secure_fl.flower.policy import NodePolicy
from secure_fl.flower.scaled import Scaled
from secure_fl.heads.manifest import load_manifest

_NODE = {"name", "data", "state", "identity", "directory", "label-column", "heads"} | {
    "federation",
    "features",
    *("secure", "noise", "clip", "sums", "colluding"),
    *("threshold", "min-clients", "cohorts", "unfinished"),
    *("ledger", "epsilon", "delta", "norm", "distance"),
}
_FLOWERS = {"partition-id", "num-partitions"}
"""What Flower itself may put into a node's configuration."""
_PAIR = re.compile(r"(\S+?)=(\'[^\']*\'|\"[^\"]*\"|\S+)")
"""Flower's own (`flwr.common.config.parse_config_args`)."""


def read_config(text: str) -> dict[str, Any]:
    """What an owner writes after `--node-config`, as Flower reads it.

    Args:
        text: `NAME=VALUE NAME=VALUE`, values as in TOML, or the name of a file that ends in .toml.

    Raises:
        InputError: it is neither.
    """
    expected = "expected NAME=VALUE with values as in TOML, or a file that ends in .toml"
    lines = text
    if text.endswith(".toml"):
        with placed(Path(text)):
            lines = Path(text).expanduser().read_text(encoding="utf-8")
    else:
        pairs = _PAIR.findall(text)
        if _PAIR.sub("", text).strip():
            raise InputError(f"--node-config {text[:100]!r}: {expected}")
        lines = "\n".join(f"{name} = {value}" for name, value in pairs)
    try:
        return tomllib.loads(lines)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"--node-config: {error}; {expected}") from None


def make_node(own: Mapping[str, Any], run: Mapping[str, Any]) -> Node:
    """The node of a machine.

    Args:
        own: its `--node-config`: see `Owner`.
        run: the run's configuration.

    Raises:
        InputError: a setting is unknown, absent or wrong, or a file cannot be used.
        dp.LedgerError: the ledger was edited.
    """
    return Owner(own).node(run)


class Owner:
    """Whose records a node answers for, and what their owner insists on.

    Args:
        own: `--node-config`: data (a client file), state (a folder), name (default: the file's),
            label-column; features (of LIBSVM data, where the run does not say); identity and
            directory for masked sums; heads (a folder) for the method kahm, and federation (a
            federation.json) where it makes heads of that one alone; its `NodePolicy`, of
            which ledger is a file, made where it is absent with the budget of epsilon and delta
            per norm (a record) or distance (an element).

    Attributes:
        name: of the client.
        state: folder of what its nodes keep.

    Raises:
        InputError: a setting is unknown, absent or wrong, or a file cannot be used.
        dp.LedgerError: the ledger was edited.
    """

    def __init__(self, own: Mapping[str, Any]) -> None:
        check_names(own)
        from secure_fl.crypto.identities import read_identity, read_members

        self._own = own
        self._data = Path(str(own["data"]))
        self.name = str(own.get("name", stem(self._data)))
        self.state = Path(str(own["state"]))
        self._column = str(own.get("label-column", "label"))
        self._features = _Numbers(own)("features", int, None)
        agreed = own.get("federation")
        self._agreed = None if agreed is None else load_manifest(Path(str(agreed)))
        identity, directory = own.get("identity"), own.get("directory")
        self._identity = None if identity is None else read_identity(Path(str(identity)))
        self._directory = None if directory is None else read_members(Path(str(directory))).clients
        self._terms = policy_of(own, _ledger(own, self.name))

    def node(self, run: Mapping[str, Any]) -> Node:
        """The node of a run.

        Args:
            run: the run's configuration.

        Raises:
            InputError: a setting of it is unknown, absent or wrong.
        """
        # What a server may ask for is what is imported here: a name from a network imports nothing.
        import secure_fl.trainers.fednl  # registers its steps
        import secure_fl.trainers.linear  # noqa: F401  # as above: registers steps

        plan = read_plan(run)
        load = _warm(lambda scaling: self._client(plan, scaling), self._data)
        return Node(
            self.name,
            lambda: load(plan.scaling_map),
            self.state,
            identity=self._identity,
            directory=self._directory,
            terms=self._terms,
            heads=self._keeper(plan),
            description=plan.description,
            scaled=None if plan.spread is None else Scaled(plan, load),
        )

    def records(self) -> Records:
        """The client file, for the owner's eyes: its width may be that of the records.

        Raises:
            InputError: it cannot be read.
        """
        return read_client(self._data, self._reading(self._features, public_width=False))

    def _reading(self, features: int | None, *, public_width: bool) -> ReadOptions:
        columns = Columns(self._column)
        return ReadOptions(columns=columns, n_features=features, public_width=public_width)

    def _keeper(self, plan: Plan) -> HeadKeeper | None:
        if not isinstance(plan.recipe, HeadRecipe) or plan.recipe.method != "kahm":
            return None
        if "heads" not in self._own:
            raise InputError("--node-config heads: missing; name the folder that keeps this node's")
        return HeadKeeper(
            self.name,
            plan.clients,
            plan.classes,
            plan.scaling_map,
            plan.recipe,
            lambda: self._dataset(plan),
            Path(str(self._own["heads"])),
            self._terms.ledger,
            plan.description,
            self._agreed,
        )

    def _client(self, plan: Plan, scaling: Scaling | None) -> Client:
        from secure_fl.training.linear import model_inputs, random_features

        found = self._dataset(plan)
        if scaling is None:
            return Client(self.name, found.X, found.y)
        if isinstance(plan.recipe, HeadRecipe):
            from secure_fl.heads.record_private import released_inputs

            if plan.recipe.method == "kahm":
                raise InputError("server: asks for a sum, the plan is of heads")
            inputs = released_inputs(found.X, scaling, found.where)
            return Client(self.name, inputs, found.y)
        random = random_features(plan.recipe, found.n_features, plan.seed)
        inputs = model_inputs(found.X, plan.recipe, scaling, random, found.where)
        return Client(self.name, inputs, found.y)

    def _dataset(self, plan: Plan) -> Dataset:
        """The client's records; their width goes to the server, so none is taken from them."""
        if None not in (self._features, plan.features) and self._features != plan.features:
            raise InputError(
                f"--node-config features: {self._features}, the run has {plan.features}; agree on"
                " one"
            )
        width = plan.features if self._features is None else self._features
        (found,) = assemble(
            [read_client(self._data, self._reading(width, public_width=True))],
            classes=ClassList(plan.classes),
            n_features=width,
            manifest="the run's classes and features",
        )
        return found


def _warm(
    read: Callable[[Scaling | None], Client], file: Path
) -> Callable[[Scaling | None], Client]:
    """The same client again, with what it has derived, while file and scaling are the same."""
    kept: dict[tuple[Any, ...], Client] = {}

    def load(scaling: Scaling | None) -> Client:
        with placed(file):
            facts = file.stat()
        key = scaling, facts.st_ino, facts.st_size, facts.st_mtime_ns
        if key not in kept:
            kept.clear()
            kept[key] = read(scaling)
        return kept[key]

    return load


def check_names(own: Mapping[str, Any]) -> None:
    """Raises InputError where a setting is unknown, or a needed one is missing."""
    unknown = sorted(set(own) - _NODE - _FLOWERS)
    if unknown:
        raise InputError(f"--node-config {unknown[0]}: no setting of a node; see docs/deploy.md")
    for needed in ("data", "state"):
        if needed not in own:
            raise InputError(f"--node-config {needed}: missing; see docs/deploy.md")


def policy_of(own: Mapping[str, Any], ledger: dp.Ledger | None = None) -> NodePolicy:
    """What an owner insists on.

    Args:
        own: `--node-config`.
        ledger: the books that it names, opened.

    Raises:
        InputError: a number is none, or out of range.
    """
    number = _Numbers(own)
    return NodePolicy(
        secure=bool(own.get("secure", False)),
        noise=number("noise", float, 0.0),
        clip=number("clip", float, math.inf),
        sums=number("sums", int, 2**31),
        colluding=number("colluding", int, 0),
        threshold=number("threshold", int, None),
        min_clients=number("min-clients", int, None),
        cohorts=number("cohorts", int, 1),
        unfinished=number("unfinished", int, 3),
        ledger=ledger,
    )


class _Numbers:
    """Numbers among an owner's settings."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        self._own = own

    def __call__(self, name: str, kind: type, otherwise: Any) -> Any:
        """The setting of this name; raises InputError where it is no such number."""
        if name not in self._own:
            return otherwise
        found = self._own[name]
        whole = isinstance(found, int) or (isinstance(found, float) and found.is_integer())
        real = isinstance(found, int | float) and not math.isnan(found)
        if isinstance(found, bool) or not (whole if kind is int else real):
            expected = "a whole number" if kind is int else "a number"
            raise InputError(f"--node-config {name}: found {found!r}, expected {expected}")
        return kind(found)


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
