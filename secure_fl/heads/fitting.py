"""Training a federation of heads: one pass, no rounds (kahm.txt, 3.7)."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.data import ClassList, Dataset, ReadOptions, client_files, read_clients
from secure_fl.data.dataset import schema_shown
from secure_fl.errors import InputError
from secure_fl.heads.head import Head, train_head
from secure_fl.heads.manifest import Manifest
from secure_fl.progress import Progress, quiet

Array = NDArray[Any]


def train_heads(
    clients: Sequence[tuple[str, Array, NDArray[np.integer[Any]]]],
    manifest: Manifest,
    *,
    seed: int = 0,
    progress: Progress = quiet,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> list[Head]:
    """One head per client; what one client's head is does not depend on the others.

    So a client that trains alone gets the very head that a joint run gives it.

    Args:
        clients: name, scaled features (n, n_features) and class codes (n,) of each client.
        manifest: the federation's facts.
        seed: of the batches when they are clusters; each client draws from a stream of its own.
        progress: told after every client.
        sources: where each client's records were read from, by name, for the indexes.

    Raises:
        InputError: a client that the federation does not have, or that holds no record.
    """
    heads = []
    for i, (name, X, y) in enumerate(clients):
        rng = batches_stream(manifest, name, seed)
        heads.append(train_head(name, X, y, manifest, rng, sources.get(name, "")))
        progress("training", i + 1, len(clients))
    return heads


def batches_stream(
    manifest: Manifest, client: str, seed: int, arrival: int = 0
) -> np.random.Generator:
    """What draws the clusters' first centres for one arrival of one client's records.

    Args:
        manifest: the federation's facts.
        client: a client of it.
        seed: of the experiment.
        arrival: 0 for the records that the head was trained on.
    """
    place = manifest.client_index(client)
    key = (place, arrival) if arrival else (place,)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def whole_path(source: str) -> str:
    """A data set's source as an index keeps it: whole where it is a file, else as it is."""
    path = Path(source)
    return os.path.realpath(path) if path.is_file() else source


def read_party(
    source: Path,
    manifest: Manifest,
    origin: Path,
    options: ReadOptions,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Dataset, ...]:
    """The data of one party's clients, checked against a federation that was agreed on elsewhere.

    Args:
        source: a client's file, or a folder of them; a client is called what its file is.
        manifest: the federation's facts.
        origin: where the manifest came from, for messages.
        options: of the readers.
        progress: called with files read and files in all.

    Raises:
        InputError: a client that is not in the federation, another number of features, other
            feature names, an unknown label; and as `read_clients`.
    """
    for name, path in client_files(source).items():
        if name not in manifest.clients:
            raise InputError(
                f'client "{name}": named by {path}, the federation has'
                f" {', '.join(manifest.clients[:10])} ({origin}); name the file after its client"
            )
    clients = read_clients(
        source,
        options,
        classes=ClassList(manifest.classes),
        n_features=manifest.n_features,
        features=manifest.features,
        manifest=str(origin),
        progress=progress,
    )
    first = clients[0]
    if first.schema != manifest.schema:
        raise InputError(
            f"{first.where}: prepared by {schema_shown(first)}, the federation by"
            f" {schema_shown(manifest)} ({origin});"
            " prepare the files by the federation's schema (securefl data prepare)"
        )
    return clients
