"""Heads trained where the records are (kahm.txt, 3.7): one pass over a network, nothing to sum.

The server learns who is there and what the manifest states, and tells the manifest to all. Every
node trains its own head, books its release where there is noise, and keeps both; the fingerprint
of the federation is all that it answers.

Where nodes know each other's signature keys, a head counts when all clients of its federation have
signed the same description: a server that tells them different ones has heads that nobody uses.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

import dp
from secure_fl.crypto.keys import Directory, Identity, verify
from secure_fl.data import Dataset, Scaling
from secure_fl.encoders.embedding import encoder_fingerprint
from secure_fl.errors import FederationError, InputError, PrivacyError, QuorumError
from secure_fl.federation import wire
from secure_fl.files import make_folder, new_folder, reserve
from secure_fl.flower.descriptions import as_array
from secure_fl.flower.head_recipe import HeadRecipe
from secure_fl.flower.scaled import Taken
from secure_fl.flower.transport import Requester
from secure_fl.heads.fitting import train_heads, whole_path
from secure_fl.heads.head import Head, head_inputs, head_path, load_head, save_head
from secure_fl.heads.index import index_path, load_index
from secure_fl.heads.manifest import (
    NOT_OF_HEADS,
    Manifest,
    load_manifest,
    make_manifest,
    save_manifest,
    scaling_facts,
)
from secure_fl.heads.released import save_statements, train_private_head
from secure_fl.heads.run_folder import run_room
from secure_fl.heads.statements import STATEMENT_FILES

ORIGIN = "origin.json"
"""What a kept head was made of, as a digest."""
UNCONFIRMED = ".unconfirmed"
"""Behind the name of a run folder until all clients have signed its federation."""


class HeadKeeper:
    """The node's side: trains its client's head and keeps it.

    Args:
        name: of the client.
        clients: of the plan.
        classes: of the plan.
        scaling: of the plan.
        recipe: of the plan.
        load: reads the records; unscaled.
        folder: receives a run folder for each federation, named by its fingerprint.
        ledger: of the data set; needed where heads are private.
        description: of the plan, a value of the wire encoding; signed with the federation.
        agreed: the federation that its owner named, such as a successor's; heads of no other are
            made then.
    """

    def __init__(
        self,
        name: str,
        clients: Sequence[str],
        classes: tuple[str, ...],
        scaling: Scaling,
        recipe: HeadRecipe,
        load: Callable[[], Dataset],
        folder: Path,
        ledger: dp.Ledger | None,
        description: Any = None,
        agreed: Manifest | None = None,
    ) -> None:
        self._agreed_on = agreed
        self._name = name
        self._clients = clients
        self._classes = classes
        self._scaling = scaling
        self._recipe = recipe
        self._load = load
        self._folder = folder
        self._ledger = ledger
        self._description = description

    def facts(self) -> dict[str, Any]:
        """What the manifest needs to know of the records: features, their names, the schema."""
        data = self._load()
        names = None if data.features is None else list(data.features)
        return {"features": data.n_features, "names": names, "schema": data.schema}

    def train(
        self,
        described: Mapping[str, Any],
        identity: Identity | None = None,
        taken: Taken | None = None,
    ) -> dict[str, Any]:
        """Trains the head of a federation, unless it is kept already, and answers its fingerprint.

        Args:
            described: the federation, by the server.
            identity: signs it; the head then waits for the others' signatures (`confirm`).
            taken: in place of the plan's scaling and promise, where all clients' moments say it.

        A head of the same records and settings is never released twice: another federation of some
        of the same clients gets the head that is here.

        Raises:
            FederationError: another federation than the plan's.
            PrivacyError: no ledger to book a private head in, or a ledger and no privacy.
            InputError: a head of other records or settings is kept for this federation.
            dp.BudgetError: the ledger's budget does not allow the release.
        """
        data = self._load()
        scaling = self._scaling if taken is None else taken.scaling
        manifest = self._agreed(described, data, scaling)
        recipe = self._recipe
        if taken is not None:
            recipe = attrs.evolve(recipe, privacy=taken.promise)
        origin = recipe.origin(manifest, data)
        run = self._folder / manifest.fingerprint[:16]
        if identity is not None and not run.exists():
            run = run.with_name(run.name + UNCONFIRMED)
        if not run.exists():
            self._keep(run, manifest, data, origin, taken)
        elif _origin(run) != origin:
            raise InputError(
                f"{run}: keeps a head of other records or settings; move it away to train anew"
            )
        answer: dict[str, Any] = {"federation": manifest.fingerprint}
        if identity is not None:
            answer["signature"] = as_array(identity.sign(*self._signed(manifest)))
        return answer

    def confirm(
        self, fingerprint: str, signatures: Mapping[str, Any], directory: Directory
    ) -> dict[str, Any]:
        """Takes a head into use, when all clients of its federation have signed the same.

        Args:
            fingerprint: of the federation.
            signatures: by client.
            directory: their public keys.

        Raises:
            FederationError: no head of that federation is kept, or a client did not sign.
            ProtocolError: a signature is not its owner's, or is over another federation or plan.
        """
        run = self._folder / fingerprint[:16]
        waiting = run.with_name(run.name + UNCONFIRMED)
        kept = run if run.exists() else waiting
        if not fingerprint.isalnum() or not kept.exists():
            raise FederationError(f"server: no head of federation {fingerprint!r} is kept here")
        manifest = load_manifest(kept)
        for name in manifest.clients:
            if name not in signatures:
                raise FederationError(f'client "{name}": did not sign federation {fingerprint}')
            verify(directory, name, signatures[name].tobytes(), *self._signed(manifest))
        if kept == waiting:
            waiting.rename(run)
        return {"confirmed": fingerprint}

    def _signed(self, manifest: Manifest) -> tuple[bytes, ...]:
        """What all clients must have been told alike, as this one was."""
        told = {"federation": manifest.fingerprint, "plan": self._description}
        return b"federation of heads", wire.fingerprint(told)

    def _agreed(self, described: Mapping[str, Any], data: Dataset, scaling: Scaling) -> Manifest:
        """The manifest that plan and records give for the server's choice of clients."""
        clients = tuple(described["clients"])
        expected = self._recipe.manifest(
            classes=self._classes,
            clients=clients,
            n_features=data.n_features,
            features=data.features,
            schema=data.schema,
            **scaling_facts(scaling),
            encoder_fingerprint=described["encoder_fingerprint"],
        )
        if self._agreed_on is not None:
            expected = _as_agreed(expected, self._agreed_on)
        ordered = tuple(name for name in self._clients if name in clients)
        if clients != ordered or self._name not in clients:
            raise FederationError(f"server: a federation of {clients}, the plan has other clients")
        if make_manifest(**described) != expected:
            raise FederationError("server: a federation of other facts than the plan and records")
        return expected

    def _keep(
        self, run: Path, manifest: Manifest, data: Dataset, origin: str, taken: Taken | None
    ) -> None:
        runs = sorted(path.parent for path in self._folder.glob(f"*/{ORIGIN}"))
        earlier = next((path for path in runs if _origin(path) == origin), None)
        make_folder(self._folder, mode=0o700)
        with new_folder(run) as aside:
            if earlier is None:
                # Before anything is booked: what was spent must not be lost for want of room.
                free = reserve(aside, run_room([(len(data), data.n_features)]))
                head, statements = self._trained(manifest, data, taken)
                free()
                save_head(aside, head, manifest)
                save_statements(aside, statements)
            else:
                facts = load_manifest(earlier)
                head = load_head(earlier, self._name, facts)
                if index_path(earlier, self._name).exists():
                    index = load_index(earlier, self._name, facts)
                    head = dataclasses.replace(head, index=index)
                save_head(aside, head, manifest)
                old, new = (head_path(each, self._name).parent for each in (earlier, aside))
                for file in STATEMENT_FILES if self._recipe.privacy else ():
                    shutil.copyfile(old / file, new / file)
            save_manifest(aside, manifest)
            (aside / ORIGIN).write_text(json.dumps({"origin": origin}) + "\n", encoding="utf-8")

    def _trained(
        self, manifest: Manifest, data: Dataset, taken: Taken | None
    ) -> tuple[Head, list[tuple[str, dp.Statement]]]:
        plan, ledger = self._recipe.privacy if taken is None else taken.promise, self._ledger
        own = self._name, head_inputs(data, manifest.scaling_map), data.y
        source = {self._name: whole_path(data.source)}
        if plan is None:
            if ledger is not None:
                raise PrivacyError("server: asks for a head without noise, this node books noise")
            (head,) = train_heads([own], manifest, seed=self._recipe.seed, sources=source)
            return head, []
        if ledger is None:
            raise PrivacyError("private heads need a ledger; name one in the node's configuration")
        head, statement = train_private_head(*own, manifest, plan, ledger, source[self._name])
        if taken is not None and taken.assumed is not None:
            statement = attrs.evolve(statement, assumptions=(*statement.assumptions, taken.assumed))
        return head, [(self._name, statement)]


def _as_agreed(planned: Manifest, agreed: Manifest) -> Manifest:
    """The federation that was agreed on, where the plan makes heads of it.

    Raises:
        FederationError: it makes heads of other facts.
    """
    facts = attrs.evolve(planned, tried=agreed.tried)
    if facts.heads_fingerprint != agreed.heads_fingerprint:
        ours, told = attrs.asdict(agreed), attrs.asdict(facts)
        other = [key for key in told if key not in NOT_OF_HEADS and told[key] != ours[key]]
        raise FederationError(
            f"federation {agreed.fingerprint[:16]}, which was agreed on: differs from the run's in"
            f" {', '.join(other)}; set them alike, or leave the federation out"
        )
    return agreed


def _origin(run: Path) -> str:
    return str(json.loads((run / ORIGIN).read_text(encoding="utf-8"))["origin"])


def train_remote_heads(
    line: Requester,
    clients: Sequence[str],
    recipe: HeadRecipe,
    *,
    classes: tuple[str, ...],
    scaling: Scaling,
    threshold: int,
    progress: Callable[[str], None],
    agreed: Manifest | None = None,
) -> Manifest:
    """The server's side: has all clients that are there train their heads; returns their manifest.

    A client that is lost on the way is left out of the federation, and the others keep the head
    that they trained. Of a federation that was agreed on none can be left out.

    Args:
        line: to the nodes.
        clients: names, in the evaluator's order.
        recipe: how to train.
        classes: class names.
        scaling: of every feature.
        threshold: clients that must have a head.
        progress: receives one line a step.
        agreed: the federation whose heads are made; None makes one of the clients that are there.

    Raises:
        QuorumError: fewer clients are there, or have a head, than the threshold.
        FederationError: they differ in their features, or from what was agreed on.
    """
    if agreed is not None:
        threshold = len(clients)
    question = {"do": "facts"}
    facts = line.request(dict.fromkeys(clients, question))
    left = _enough(tuple(facts), clients, threshold)
    n_features, names, schema = _common(facts)
    fingerprint = encoder_fingerprint(recipe.encoder)
    while True:
        manifest = recipe.manifest(
            classes=classes,
            clients=left,
            n_features=n_features,
            features=names,
            schema=schema,
            **scaling_facts(scaling),
            encoder_fingerprint=fingerprint,
        )
        if agreed is not None:
            manifest = _as_agreed(manifest, agreed)
        request = {"do": "head", "federation": manifest.facts}
        answers = line.request(dict.fromkeys(left, request))
        kept = tuple(n for n, a in answers.items() if a.get("federation") == manifest.fingerprint)
        progress(f"heads: {len(kept)} of {len(left)} clients, federation {manifest.fingerprint}")
        if _enough(kept, clients, threshold) == left:
            kept = _confirmed(line, manifest, answers)
            if _enough(kept, clients, threshold) == left:
                return manifest
        left = kept


def _confirmed(
    line: Requester, manifest: Manifest, answers: Mapping[str, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Passes the signatures on; the clients whose heads count now."""
    signatures = {name: each["signature"] for name, each in answers.items() if "signature" in each}
    if not signatures:
        return manifest.clients
    request = {
        "do": "confirm head",
        "federation": manifest.fingerprint,
        "signatures": signatures,
    }
    found = line.request(dict.fromkeys(manifest.clients, request))
    return tuple(n for n, a in found.items() if a.get("confirmed") == manifest.fingerprint)


def _enough(left: tuple[str, ...], clients: Sequence[str], threshold: int) -> tuple[str, ...]:
    if len(left) < threshold:
        raise QuorumError(
            f"heads: {len(left)} clients left of {len(clients)}, the threshold is {threshold}; run"
            " it again when more are there, nobody trains the same head twice"
        )
    return left


def _common(
    facts: Mapping[str, Mapping[str, Any]],
) -> tuple[int, tuple[str, ...] | None, str]:
    found = {
        name: (each.get("features"), each.get("names"), each.get("schema", ""))
        for name, each in facts.items()
    }
    first = next(iter(found.values()))
    for name, (width, names, schema) in found.items():
        if (width, names, schema) != first or not isinstance(width, int):
            raise FederationError(
                f'client "{name}": has {width} features {names} of schema {schema or "none"},'
                f" others {first}"
            )
    width, names, schema = first
    assert isinstance(width, int)
    return width, None if names is None else tuple(names), str(schema)
