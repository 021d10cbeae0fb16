"""A run folder: `federation.json` beside one folder per client with its head.

A consortium on several machines has this folder on each of them, with only the own client's head in
it; a simulation on one machine has all of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dp import Statement
from secure_fl.data import Scaling, scaled_features
from secure_fl.errors import InputError
from secure_fl.files import new_folder
from secure_fl.heads.head import Head, head_path, load_head, save_head
from secure_fl.heads.manifest import Manifest, load_manifest, save_manifest
from secure_fl.heads.released import save_statements

Array = NDArray[Any]


def create_run(
    path: Path,
    heads: Sequence[Head],
    manifest: Manifest,
    statements: Sequence[tuple[str, Statement]] = (),
) -> dict[str, int]:
    """Writes a run folder, whole or not at all; returns the bytes of each client's head.

    Args:
        path: absent or empty.
        heads: of the clients.
        manifest: the federation's facts.
        statements: the privacy statements of the clients, where their heads are releases.

    Raises:
        InputError: the folder exists and is not empty.
    """
    with new_folder(path) as aside:
        return fill_run(aside, heads, manifest, statements)


def fill_run(
    folder: Path,
    heads: Sequence[Head],
    manifest: Manifest,
    statements: Sequence[tuple[str, Statement]] = (),
) -> dict[str, int]:
    """As `create_run`, into a folder of `new_folder` that is still aside."""
    sizes = {head.client: save_head(folder, head, manifest) for head in heads}
    save_statements(folder, statements)
    save_manifest(folder, manifest)
    return sizes


def run_room(clients: Sequence[tuple[int, int]]) -> list[int]:
    """Bytes that the files of a run folder have at most, for `reserve`.

    Args:
        clients: records and features of each client's head.
    """
    small = 1 << 20
    return [small, *(small + n * (12 * d + 256) for n, d in clients)]


def load_run(path: Path, clients: Sequence[str] = ()) -> tuple[Manifest, list[Head]]:
    """Reads the manifest and the heads of the given clients, of all that are there by default.

    Raises:
        InputError: no manifest, no head, or an unknown client; and as `load_head` does.
    """
    manifest = load_manifest(path)
    names = clients or [name for name in manifest.clients if head_path(path, name).exists()]
    if not names:
        raise InputError(f"{path}: no client's head is here; train one with `securefl train`")
    return manifest, [load_head(path, name, manifest) for name in names]


class FeatureSpace(Protocol):
    """What queries must look like: a manifest, or a model that knows it."""

    @property
    def n_features(self) -> int:
        """d."""

    @property
    def features(self) -> tuple[str, ...] | None:
        """d names, or None."""

    @property
    def scaling_map(self) -> Scaling:
        """What is done to every feature."""

    @property
    def schema(self) -> str:
        """Digest of the schema that the clients' tables were prepared by; "" for none."""


def query_features(X: Array, manifest: FeatureSpace, *, source: str) -> Array:
    """Queries as the heads want them: checked and scaled, float32, shape (queries, n_features).

    Args:
        X: encoded but unscaled queries.
        manifest: the federation's facts.
        source: where they came from, for messages.

    Raises:
        InputError: no query, another feature count, a row that is not finite, or scaled features
            that overflow or vanish.
    """
    if X.ndim != 2 or X.shape[1] != manifest.n_features:
        raise InputError(
            f"{source}: queries of shape {X.shape}, the federation has {manifest.n_features}"
            " features (federation.json); encode them with the federation's encoder"
        )
    if len(X) == 0:
        raise InputError(f"{source}: 0 queries, at least 1 is needed")
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        raise InputError(f"{source}: query {bad[0]} holds NaN or infinity; remove or repair it")
    found: Array = scaled_features(X, manifest.scaling_map, np.float32, where=source)
    return found


def all_measures(heads: Sequence[Head], features: Array, manifest: Manifest) -> Array:
    """The measures of every client and class, shape (queries, clients, classes), in [0, 1].

    Only a simulation may hold them together: they are what the encryption hides.
    """
    return np.stack([head.measures(features, manifest) for head in heads], axis=1)
