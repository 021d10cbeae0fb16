"""Frozen encoders: texts to the features that every client of a federation uses.

All clients must use the same encoder. Its fingerprint, recorded in the federation's manifest,
tells whether they do.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secure_fl.data.dataset import Records, require_finite
from secure_fl.encoders.cache import CacheWarning, EmbeddingCache, text_key
from secure_fl.encoders.digests import fingerprint_of, folder_digest, hex_digest
from secure_fl.encoders.local_models import model_folder
from secure_fl.encoders.opening import importing_offline, opening
from secure_fl.errors import FeatureError, FormatError, InputError, whose

__all__ = [
    "CacheWarning",
    "Encoded",
    "LongTextWarning",
    "LongTexts",
    "Progress",
    "SentenceEncoder",
    "check_texts",
    "encode_records",
    "model_folder",
]

Progress = Callable[[int, int], None]
"""Called with texts done and texts in all."""

LongTexts = Literal["cut", "refuse"]
"""What becomes of texts beyond the model's window."""

_SHOWN = 10
"""Places that a message lists before it counts the rest."""
_CHUNK = 256
"""Texts between two reports of progress; also the size of a cache shard."""


class LongTextWarning(UserWarning):
    """Texts are longer than the model's window; their ends do not count."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """What became of n texts.

    Attributes:
        features: shape (n, d), float32.
        cut: shape (n,); whether the text was longer than the model's window, so that its end does
            not count.
    """

    features: NDArray[np.float32]
    cut: NDArray[np.bool_]


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
        return hex_digest({"files": folder_digest(self.folder), "max_tokens": self.max_tokens})

    @property
    def fingerprint(self) -> str:
        """Depends on the model's files, max_tokens and scale; not on where the model lies."""
        return fingerprint_of({"kind": "sentence", "model": self.model_digest, "scale": self.scale})

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
        """Features of texts; shape (n, d), float32. See `encode_texts`."""
        return self.encode_texts(texts, cache=cache, progress=progress).features

    def encode_texts(
        self,
        texts: Sequence[str],
        *,
        cache: str | Path | None = None,
        progress: Progress | None = None,
    ) -> "Encoded":
        """Features of texts, and which texts were longer than the model's window.

        Args:
            texts: n texts; equal texts are encoded once.
            cache: folder for features between runs, or None. It reveals the texts as the
                features do: keep it where the texts may be kept.
            progress: called after each chunk of texts.

        Returns:
            Features times `scale`. A text beyond the window counts with its beginning alone.

        Raises:
            InputError: an entry is not text, or the model is not there.
            FeatureError: a feature times `scale` overflows, or all become zero.
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
            chosen = [missing[key] for key in chunk]
            features, cut = self._forward(chosen), self._beyond_window(chosen)
            if store is not None:
                store.store(chunk, features, cut)
            known.update(zip(chunk, zip(features, cut.tolist(), strict=True), strict=True))
            if progress is not None:
                progress(len(known), len(known) + len(todo) - start - len(chunk))
        if not keys:
            return Encoded(np.empty((0, self.n_features), np.float32), np.empty(0, np.bool_))
        features = np.stack([known[key][0] for key in keys])
        return Encoded(self._scaled(features), np.array([known[key][1] for key in keys], np.bool_))

    def _scaled(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        # What overflows or vanishes is refused below, in words.
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            scaled = features * np.float32(self.scale)
        if np.isfinite(features).all() and not np.isfinite(scaled).all():
            raise FeatureError(f"encoder scale {self.scale} overflows float32; use a smaller one")
        if features.any() and not scaled.any():
            raise FeatureError(f"encoder scale {self.scale} leaves only zeros; use a larger one")
        return scaled

    def _beyond_window(self, texts: list[str]) -> NDArray[np.bool_]:
        """Which texts have more tokens than the model reads, shape (n,)."""
        window = self._network.max_seq_length
        if window is None or not math.isfinite(window):
            return np.zeros(len(texts), np.bool_)
        tokenizer = self._network.tokenizer
        if callable(tokenizer):
            # The model strips texts too.
            stripped = [text.strip() for text in texts]
            found = tokenizer(stripped, truncation=False, verbose=False)["input_ids"]
        else:
            found = [tokenizer.tokenize(text) for text in texts]
        return np.array([len(tokens) > window for tokens in found], np.bool_)

    def _forward(self, texts: list[str]) -> NDArray[np.float32]:
        features = self._network.encode(
            texts, batch_size=self.batch_size, show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(features, dtype=np.float32)

    @cached_property
    def _network(self) -> Any:
        folder = self.folder
        with importing_offline(
            "text encoders need sentence-transformers, which is not installed; run"
            " pip install 'securefl[text]'"
        ):
            from sentence_transformers import SentenceTransformer
        with opening(folder):
            network = SentenceTransformer(
                str(folder),
                device=self.device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
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
    long_texts: LongTexts = "cut",
    remark: Callable[[str], None] | None = None,
) -> Records:
    """A client's records with features in place of texts.

    Args:
        records: with texts, e.g. of `read_csv(path, Columns(text="body"))`.
        encoder: the federation's.
        cache, progress: as `SentenceEncoder.encode_texts`.
        long_texts: texts beyond the model's window: "cut" takes their beginning, as the model
            does, "refuse" raises.
        remark: receives one line that counts the texts that were cut and names the first; None
            warns with a `LongTextWarning`.

    Raises:
        InputError: the records have no texts, or an empty one; a text is too long and long texts
            are refused; or as `SentenceEncoder.encode_texts`.
        FeatureError: the model gave a feature that is not finite.
    """
    texts = check_texts(records)
    found = encoder.encode_texts(texts, cache=cache, progress=progress)
    long = np.flatnonzero(found.cut).tolist()
    if long:
        told = (
            f"{whose(records.name)}: {len(long)} of {len(texts)} texts longer than the model reads"
            f" ({_places(records, long)})"
        )
        if long_texts == "refuse":
            raise InputError(f"{told}; shorten or split them, or take their beginnings (cut)")
        told += "; their ends do not count"
        if remark is None:
            warnings.warn(told, LongTextWarning, stacklevel=2)
        else:
            remark(told)
    encoded = replace(records, X=found.features, texts=None)
    require_finite(encoded)
    return encoded


def check_texts(records: Records) -> tuple[str, ...]:
    """The records' texts, none of them empty.

    Raises:
        InputError: the records have no texts, or some hold nothing that can be seen; names their
            places.
    """
    if records.texts is None:
        raise InputError(
            f"{whose(records.name)}: no texts in {records.source}; name the text column"
            " (--text-column)"
        )
    empty = [row for row, text in enumerate(records.texts) if not _says_something(text)]
    if empty:
        raise InputError(
            f"{whose(records.name)}: {len(empty)} empty texts ({_places(records, empty)}); fill"
            " them in or remove the records"
        )
    return records.texts


def _says_something(text: str) -> bool:
    return any(character.isprintable() and not character.isspace() for character in text)


def _places(records: Records, rows: Sequence[int]) -> str:
    """The first places of a list: `lines 3, 7 and 2 more of a.csv`."""
    places = rows if records.lines is None else [int(records.lines[row]) for row in rows]
    shown = ", ".join(map(str, places[:_SHOWN]))
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    unit = "row" if records.lines is None else "line"
    return f"{unit}{'s' if len(places) > 1 else ''} {shown}{more} of {records.source}"


def _checked_key(i: int, text: Any) -> bytes:
    if not isinstance(text, str):
        raise InputError(f"text {i} is of type {type(text).__name__}; give text")
    try:
        return text_key(text)
    except UnicodeEncodeError:
        raise InputError(f"text {i} holds a lone surrogate; give valid Unicode") from None
