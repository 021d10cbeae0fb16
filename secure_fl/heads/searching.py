"""Looking for copies of records in files: client files, caches of features, heads, and models.

Records are recognised by their features; texts, and files of other programs, are not looked into.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from fhe.envelope import MAGIC, read_envelope, read_header
from fhe.errors import InputError as FileError
from secure_fl.data import ReadOptions, Scale, read_records
from secure_fl.data.libsvm import looks_like_libsvm
from secure_fl.data.naming import format_suffix
from secure_fl.encoders.cache import prune_shard
from secure_fl.errors import InputError
from secure_fl.files import placed
from secure_fl.heads.head import KIND as HEAD_KIND
from secure_fl.heads.index import features_digests
from secure_fl.heads.manifest import Manifest

Array = NDArray[Any]
Recognise = Callable[..., NDArray[np.bool_]]
LISTED = 100
"""Row numbers that are told of one file."""


@attrs.frozen
class Found:
    """A file that holds, or may hold, something of the records.

    Attributes:
        path: of it.
        what: "client file", "cache", "head" or "model".
        records: how many rows are of the records; 0 where that cannot be seen.
        rows: of the first of them, at most `LISTED`, from 0.
        removed: whether they were taken out.
        remark: what is left to do, or cannot be done; "" where nothing is.
    """

    path: str
    what: str
    records: int
    rows: tuple[int, ...]
    removed: bool
    remark: str


def search(
    places: Iterable[Path],
    digests: NDArray[np.uint8],
    key: bytes,
    manifest: Manifest,
    own: Path,
    options: ReadOptions,
) -> tuple[Found, ...]:
    """Looks for records in files and folders, and takes their features out of caches.

    Args:
        places: files and folders; those that are not there are passed over.
        digests: of the records, shape (k, 16).
        key: of the digests.
        manifest: whose scaling the digests are under.
        own: folder of the client's head, which is left out.
        options: of client files.
    """
    wanted = np.array(sorted({each.tobytes() for each in digests}), dtype="S16")

    def recognise(X: Array, scale: Scale = manifest.scaling_map) -> NDArray[np.bool_]:
        if X.ndim != 2 or X.shape[1] != manifest.n_features or not len(X):
            return np.zeros(len(X), bool)
        named = [each.view("S16").ravel() for each in features_digests(X, scale, key)]
        seen: NDArray[np.bool_] = np.logical_or(*(np.isin(each, wanted) for each in named))
        return seen

    found = []
    for path in _files(places, own):
        each = _look(path, recognise, manifest, options)
        if each is not None:
            found.append(each)
    return tuple(found)


def _files(places: Iterable[Path], own: Path) -> list[Path]:
    own, every = own.resolve(), set[Path]()
    for place in places:
        with placed(place):
            if place.is_dir():
                every |= {path.resolve() for path in place.rglob("*") if path.is_file()}
            elif place.is_file():
                every.add(place.resolve())
    return sorted(path for path in every if path.parent != own)


def _look(
    path: Path, recognise: Recognise, manifest: Manifest, options: ReadOptions
) -> Found | None:
    name = _name(path)
    if path.suffix == ".safetensors":
        count = prune_shard(path, recognise)
        return Found(name, "cache", count, (), True, "") if count else None
    with placed(path), path.open("rb") as file:
        ours = file.read(len(MAGIC)) == MAGIC
    if ours:
        return _ours(path, recognise)
    if not format_suffix(path) and not looks_like_libsvm(path):
        return None
    return _client_file(path, recognise, manifest, options)


def _client_file(
    path: Path, recognise: Recognise, manifest: Manifest, options: ReadOptions
) -> Found | None:
    try:
        if options.n_features is None:
            options = replace(options, n_features=manifest.n_features)
        X = read_records(path, options, all_ignored=False, unlabelled=True).X
    except InputError as error:
        return Found(_name(path), "client file", 0, (), False, f"could not be read: {error}")
    if X is None:
        return Found(
            _name(path), "client file", 0, (), False, f"{_name(path)}: texts, not compared"
        )
    rows = np.flatnonzero(recognise(X))
    if not len(rows):
        return None
    remark = f"{_name(path)}: still holds {len(rows)} of the records; take them out there"
    return Found(_name(path), "client file", len(rows), _first(rows), False, remark)


def _ours(path: Path, recognise: Recognise) -> Found | None:
    try:
        kind, header, _ = read_header(path)
        if kind == HEAD_KIND:
            from safetensors.numpy import load

            # A head's records are scaled already.
            rows = np.flatnonzero(
                recognise(load(read_envelope(path, kind).payload)["records"], 1.0)
            )
    except (FileError, ValueError, LookupError) as error:
        return Found(_name(path), "head", 0, (), False, f"could not be read: {error}")
    if kind == HEAD_KIND:
        if not len(rows):
            return None
        remark = (
            f"{_name(path)}: still holds {len(rows)} of the records; forget them in its run too"
        )
        return Found(_name(path), "head", len(rows), _first(rows), False, remark)
    origin = header.get("origin")
    if not isinstance(origin, dict) or "method" not in origin:
        return None
    said = origin.get("privacy") or "no guarantee; the model shows what it was trained on"
    remark = (
        f"{_name(path)}: a model of {origin['method']}, which may have learned from the records and"
        f" cannot unlearn them; what is promised of it: {said}"
    )
    return Found(_name(path), "model", 0, (), False, remark)


def _name(path: Path) -> str:
    """A path as one printable line, which a receipt can hold."""
    name = str(path)
    return name if name.isprintable() else ascii(name)[1:-1]


def _first(rows: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(rows[:LISTED].tolist())
