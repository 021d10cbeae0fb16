"""Features of texts already encoded, on disk, keyed by the text's content and the model.

A cache folder holds one folder a model and in it any number of shards. A shard is a safetensors
file with `keys` (n, 32), the SHA-256 of each text, `features` (n, d), and `cut` (n,), 1 where the
text was longer than the model's window, and a digest of all in its header; texts of shards of
format 1, which lacks `cut`, are encoded again. Shards are never changed: new texts make a new
shard, so an interrupted run keeps what it finished and two processes may share a cache. The
features reveal the texts: keep the folder where the texts may be kept.
"""

import hashlib
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fhe.envelope import PRIVATE, write_atomic
from secure_fl.files import make_folder

_FORMAT = "2"
_WITHOUT_CUT = "1"


class CacheWarning(UserWarning):
    """A cache entry was damaged and is encoded again."""


def text_key(text: str) -> bytes:
    """SHA-256 of the text's UTF-8 bytes."""
    return content_key(text.encode("utf-8"))


def content_key(content: bytes) -> bytes:
    """SHA-256 of what was encoded, such as an image file."""
    return hashlib.sha256(content).digest()


class EmbeddingCache:
    """One model's part of a cache folder.

    Args:
        folder: the cache; made where absent.
        model: hex digest that stands for the model and all that its features depend on.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self._folder = folder / model[:32]
        self._model = model

    def load(self, keys: Collection[bytes]) -> dict[bytes, tuple[NDArray[np.float32], bool]]:
        """Features of those keys that the cache has, each of shape (d,), and whether it was cut.

        A damaged shard is reported by a `CacheWarning` that names it, removed, and its texts
        count as absent.
        """
        wanted = set(keys)
        found: dict[bytes, tuple[NDArray[np.float32], bool]] = {}
        for path in sorted(self._folder.glob("*.safetensors")):
            shard = self._read(path)
            if shard is None:
                continue
            stored, features, cut = shard
            for i, key in enumerate(stored):
                if key in wanted:
                    found[key] = features[i], bool(cut[i])
        return found

    def store(
        self, keys: Sequence[bytes], features: NDArray[np.float32], cut: NDArray[np.bool_]
    ) -> None:
        """Adds a shard: complete or not at all.

        Args:
            keys: n digests of 32 bytes.
            features: shape (n, d), float32.
            cut: shape (n,), whether the text was longer than the model's window.
        """
        from safetensors.numpy import save

        packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
        features, marks = np.ascontiguousarray(features), cut.astype(np.uint8)
        header = {
            "format": _FORMAT,
            "model": self._model,
            "digest": _digest(packed, features, marks),
        }
        content: bytes = save({"keys": packed, "features": features, "cut": marks}, metadata=header)
        make_folder(self._folder)
        name = hashlib.sha256(packed.tobytes()).hexdigest()[:32]
        write_atomic(self._folder / f"{name}.safetensors", content, mode=PRIVATE)

    def _read(
        self, path: Path
    ) -> tuple[list[bytes], NDArray[np.float32], NDArray[np.uint8]] | None:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                header: dict[str, str] = file.metadata() or {}
                if header.get("format") == _WITHOUT_CUT:
                    return None
                keys: NDArray[Any] = file.get_tensor("keys")
                features: NDArray[Any] = file.get_tensor("features")
                cut: NDArray[Any] = file.get_tensor("cut")
            sound = (
                header.get("format") == _FORMAT
                and header.get("model") == self._model
                and header.get("digest") == _digest(keys, features, cut)
            )
        except (SafetensorError, OSError, ValueError):
            sound = False
        if not sound:
            warnings.warn(
                f"{path}: damaged cache entry; removed, its texts are encoded again",
                CacheWarning,
                stacklevel=4,
            )
            path.unlink(missing_ok=True)
            return None
        return [row.tobytes() for row in keys], features, cut


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def prune_shard(path: Path, gone: Callable[[NDArray[np.float32]], NDArray[np.bool_]]) -> int:
    """Takes texts out of a shard of any model; they are encoded again where they are needed.

    Args:
        path: a file; what is no shard of format 2 is left alone.
        gone: which rows of features to take out, from their matrix (n, d).

    Returns:
        How many were taken out.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import save

    try:
        with safe_open(path, framework="numpy") as file:
            header: dict[str, str] = file.metadata() or {}
            if header.get("format") != _FORMAT or "model" not in header:
                return 0
            found = {name: file.get_tensor(name) for name in ("keys", "features", "cut")}
    except (SafetensorError, OSError, ValueError):
        return 0
    out = gone(found["features"])
    if not out.any():
        return 0
    left = {name: np.ascontiguousarray(each[~out]) for name, each in found.items()}
    if len(left["keys"]):
        digest = _digest(left["keys"], left["features"], left["cut"])
        content: bytes = save(left, metadata={**header, "digest": digest})
        write_atomic(path, content, mode=PRIVATE)
    else:
        path.unlink()
    return int(np.count_nonzero(out))
