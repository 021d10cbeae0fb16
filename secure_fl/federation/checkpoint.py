"""A run's state after a round, whole in one file: what a killed run continues from.

The file holds the clients' own arrays and, under privacy, the secrets of their noise: it is as
confidential as their records, and only its owner may read it (mode 0600).
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from attrs import field, frozen
from numpy.typing import NDArray

from fhe.envelope import PRIVATE, write_atomic
from secure_fl.errors import FederationError
from secure_fl.federation import wire
from secure_fl.federation.client import Client
from secure_fl.federation.trees import Array

KIND = "federation checkpoint"
VERSION = 2
"""Of the content. Version 1, of securefl 0.1.0, does not keep a method's settings."""


@frozen
class Snapshot:
    """A run between two rounds.

    Attributes:
        setting: what must be the same when the run goes on: seed, names, records, stages.
        round: rounds that were closed.
        session: 16 bytes that name the run.
        secrets: of the noise sources.
        meter: totals, shape (4, clients).
        clients: every client's own arrays.
        state: what the trainer yielded.
        sums: private sums of the rounds before, in all sessions of the run.
        method: whose state it is; empty where the handle was not told.
        settings: of the method, what must be the same when the run goes on; None where the handle
            was not told, and in files of version 1.
        notes: of whoever drives the run, see `Federation.notes`.
        version: of the content that it was read from.
    """

    setting: Mapping[str, Any]
    round: int
    session: bytes
    secrets: Mapping[str, bytes]
    meter: NDArray[np.int64]
    clients: Mapping[str, Mapping[str, Array]]
    state: Any
    sums: int = 0
    method: str = ""
    settings: Mapping[str, Any] | None = None
    notes: Mapping[str, float] = field(factory=dict)
    version: int = VERSION


def save(path: Path, snapshot: Snapshot) -> None:
    """Writes a checkpoint, whole or not at all.

    Raises:
        FederationError: the trainer's state or a client's is not made of values that can be kept.
        fhe.errors.InputError: the file cannot be written.
    """
    content = {
        "setting": dict(snapshot.setting),
        "round": snapshot.round,
        "session": _blob(snapshot.session),
        "secrets": {name: _blob(secret) for name, secret in snapshot.secrets.items()},
        "meter": snapshot.meter,
        "clients": {name: dict(arrays) for name, arrays in snapshot.clients.items()},
        "state": snapshot.state,
        "sums": snapshot.sums,
        "method": snapshot.method,
        "settings": None if snapshot.settings is None else dict(snapshot.settings),
        "notes": dict(snapshot.notes),
        "version": VERSION,
    }
    write_atomic(path, wire.encode(content, kind=KIND), mode=PRIVATE)


def load(path: Path) -> Snapshot:
    """Reads a checkpoint.

    Raises:
        FederationError: it cannot be read, is of a later version, or holds something else.
        fhe.errors.FormatError: damaged, or of another kind.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FederationError(f"{path}: cannot be read ({error.strerror})") from None
    content = wire.decode(data, kind=KIND, source=str(path))
    try:
        version = content.get("version", 1)
        if version > VERSION:
            raise FederationError(
                f"{path}: a checkpoint of version {version}, this is version {VERSION}; go on with"
                " the version of securefl that wrote it"
            )
        return Snapshot(
            content["setting"],
            content["round"],
            content["session"].tobytes(),
            {name: secret.tobytes() for name, secret in content["secrets"].items()},
            content["meter"],
            # A step may write into its own arrays; those of a file are read-only.
            {n: {k: a.copy() for k, a in own.items()} for n, own in content["clients"].items()},
            content["state"],
            content["sums"],
            # Absent from files of versions that did not keep it.
            content.get("method", ""),
            content.get("settings"),
            {str(name): float(value) for name, value in content.get("notes", {}).items()},
            version,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FederationError(f"{path}: not a checkpoint of this version ({error})") from None


def refuse_other_settings(
    path: Path,
    found: Snapshot,
    settings: Mapping[str, Any],
    moved: Mapping[str, tuple[Any, Any]],
) -> None:
    """Raises where a run would go on by other settings than it began with.

    Args:
        path: of the checkpoint, for messages.
        found: what it holds.
        settings: of the run that goes on; those that both know are compared.
        moved: see `Federation.resume`.

    Raises:
        FederationError: so, with the first setting and both values.
    """
    if found.version == 1:
        for name, (then, now) in moved.items():
            raise FederationError(
                f"{path}: a checkpoint of version 1, which does not keep settings, this is version"
                f" {VERSION}; the default of {name} was {then:g} then (securefl 0.1.0) and is"
                f" {now:g} now: give {name} {then:g} to go on as that run began, or choose another"
                " checkpoint file"
            )
    for name, value in settings.items():
        before = (found.settings or {}).get(name, value)
        if before != value:
            raise FederationError(
                f"{path}: {name} was {before}, this run has {value}; resume with the same, or"
                " choose another checkpoint file"
            )


def records_digest(clients: Iterable[Client]) -> str:
    """SHA-256 of all clients' names, weights, features and targets, hexadecimal."""
    whole = hashlib.sha256()
    for client in clients:
        whole.update(repr((client.name, client.weight)).encode())
        for array in _arrays(client):
            whole.update(repr((array.dtype.str, array.shape)).encode())
            whole.update(np.ascontiguousarray(array).data)
    return whole.hexdigest()


def _arrays(client: Client) -> list[Array]:
    targets = np.asarray(client.targets)
    if scipy.sparse.issparse(client.features):
        rows = client.features.tocsr()
        return [rows.data, rows.indices, rows.indptr, targets]
    return [np.asarray(client.features), targets]


def _blob(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)
