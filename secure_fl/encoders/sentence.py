"""Frozen encoders: texts to the features that every client of a federation uses.

All clients must use the same encoder. Its fingerprint, recorded in the federation's manifest,
tells whether they do.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.data.dataset import Records, require_finite
from secure_fl.encoders.cache import CacheWarning, EmbeddingCache, text_key
from secure_fl.encoders.local_models import model_files, model_folder
from secure_fl.errors import FormatError, InputError, MissingExtraError

__all__ = [
    "CacheWarning",
    "SentenceEncoder",
    "encode_records",
    "model_folder",
]

Progress = Callable[[int, int], None]
"""Called with texts done and texts in all."""

_CHUNK = 256
"""Texts between two reports of progress; also the size of a cache shard."""


@dataclass(frozen=True)
class SentenceEncoder:
    """A sentence-transformers model on this machine; nothing is ever downloaded.

    The model must be data: weights in safetensors, modules of sentence-transformers' own. It is
    loaded at the first use.

    Attributes:
        model: a model's folder, or `package:NAME` for a model inside an installed package.
        scale: factor on the features, finite and not 0.
        max_tokens: cut texts after so many tokens, at most the model's own limit; None: that.
        batch_size: texts in one forward pass. With another batch size features may differ by
            rounding (about 1e-7 of their size).
        device: where it runs, e.g. "cpu" or "cuda".

    Raises:
        InputError: scale, max_tokens or batch_size out of range.
    """

    model: str
    scale: float = 1.0
    max_tokens: int | None = None
    batch_size: int = 64
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not math.isfinite(self.scale) or self.scale == 0:
            raise InputError(f"encoder scale is {self.scale}; give a finite number, not 0")
        if self.batch_size < 1 or (self.max_tokens is not None and self.max_tokens < 1):
            raise InputError(
                f"encoder batch size {self.batch_size}, tokens {self.max_tokens}; both are at"
                " least 1"
            )

    @cached_property
    def folder(self) -> Path:
        """Where the model lies.

        Raises:
            InputError: no such folder or package.
            FormatError: it is not a model, or would run code or unpickle.
        """
        return model_folder(self.model)

    @cached_property
    def model_digest(self) -> str:
        """SHA-256 over the model's files, their names, and max_tokens; 64 hex digits."""
        parts = {
            path.relative_to(self.folder).as_posix(): _file_digest(path)
            for path in model_files(self.folder)
        }
        return _hex({"files": parts, "max_tokens": self.max_tokens})

    @property
    def fingerprint(self) -> str:
        """Depends on the model's files, max_tokens and scale; not on where the model lies."""
        return _fingerprint({"kind": "sentence", "model": self.model_digest, "scale": self.scale})

    @property
    def n_features(self) -> int:
        """d; loads the model."""
        network = self._network
        # sentence-transformers renamed the method in version 5.
        renamed = getattr(network, "get_embedding_dimension", None)
        width: int | None = (renamed or network.get_sentence_embedding_dimension)()
        if width is None:
            raise FormatError(f"{self.folder}: the model does not say how many features it gives")
        return width

    def encode(
        self,
        texts: Sequence[str],
        *,
        cache: str | Path | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        """Features of texts.

        Args:
            texts: n texts; equal texts are encoded once.
            cache: folder for features between runs, or None. It reveals the texts as the
                features do: keep it where the texts may be kept.
            progress: called after each chunk of texts.

        Returns:
            Shape (n, d), float32, times `scale`.

        Raises:
            InputError: an entry is not text, or the model is not there.
            MissingExtraError: sentence-transformers is not installed.
        """
        keys = [_checked_key(i, text) for i, text in enumerate(texts)]
        store = None if cache is None else EmbeddingCache(Path(cache), self.model_digest)
        known = {} if store is None else store.load(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        todo = list(missing)
        if progress is not None:
            progress(len(known), len(known) + len(todo))
        for start in range(0, len(todo), _CHUNK):
            chunk = todo[start : start + _CHUNK]
            features = self._forward([missing[key] for key in chunk])
            if store is not None:
                store.store(chunk, features)
            known.update(zip(chunk, features, strict=True))
            if progress is not None:
                progress(len(known), len(known) + len(todo) - start - len(chunk))
        if not keys:
            return np.empty((0, self.n_features), dtype=np.float32)
        return np.stack([known[key] for key in keys]) * np.float32(self.scale)

    def _forward(self, texts: list[str]) -> NDArray[np.float32]:
        features = self._network.encode(
            texts, batch_size=self.batch_size, show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(features, dtype=np.float32)

    @cached_property
    def _network(self) -> Any:
        folder = self.folder
        # Both must stand before the first import, or the libraries look for the model online.
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["TRANSFORMERS_OFFLINE"] = "1"
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging
        except ImportError:
            raise MissingExtraError(
                "text encoders need sentence-transformers, which is not installed; run"
                " pip install 'securefl[text]'"
            ) from None
        # Its bar would run into the caller's own progress.
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped in transformers
        try:
            network = SentenceTransformer(
                str(folder),
                device=self.device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        except Exception as error:
            # A damaged model raises whatever the part that met it raises: OSError, ValueError,
            # KeyError, RuntimeError, SafetensorError and others.
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise FormatError(f"{folder}: not a usable model: {reason[0]}") from error
        if self.max_tokens is not None:
            limit = network.max_seq_length
            if limit is not None and self.max_tokens > limit:
                raise InputError(
                    f"{self.max_tokens} tokens, the model {self.model} takes {limit}; give at most"
                    " that"
                )
            network.max_seq_length = self.max_tokens
        return network


def encode_records(
    records: Records,
    encoder: SentenceEncoder,
    *,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Records:
    """A client's records with features in place of texts.

    Args:
        records: with texts, e.g. of `read_csv(path, Columns(text="body"))`.
        encoder: the federation's.
        cache, progress: as `SentenceEncoder.encode`.

    Raises:
        InputError: the records have no texts; or as `SentenceEncoder.encode`.
        FeatureError: the model gave a feature that is not finite.
    """
    if records.texts is None:
        raise InputError(
            f'client "{records.name}": no texts in {records.source}; name the text column'
        )
    X = encoder.encode(records.texts, cache=cache, progress=progress)
    encoded = replace(records, X=X, texts=None)
    require_finite(encoded)
    return encoded


def _checked_key(i: int, text: Any) -> bytes:
    if not isinstance(text, str):
        raise InputError(f"text {i} is of type {type(text).__name__}; give text")
    try:
        return text_key(text)
    except UnicodeEncodeError:
        raise InputError(f"text {i} holds a lone surrogate; give valid Unicode") from None


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hex(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _fingerprint(value: Mapping[str, Any]) -> str:
    return f"sha256:{_hex(value)}"
