"""Frozen image encoders: pictures to the features that every client of a federation uses.

A model is a folder of transformers' own vision models with safetensors weights; it is data, never
downloaded, and nothing in it runs. Without a model `pixels:N` gives the picture itself, N x N.
"""

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secure_fl.encoders.cache import EmbeddingCache, content_key
from secure_fl.encoders.digests import fingerprint_of, folder_digest, hex_digest
from secure_fl.encoders.local_models import image_model_folder
from secure_fl.encoders.opening import importing_offline, opening
from secure_fl.encoders.pictures import Picture, open_picture, read_picture_file
from secure_fl.errors import FormatError, InputError

Features = NDArray[np.float32]

PIXELS = "pixels:"
MAX_SIDE = 128
"""Of pictures that are their own features: 49,152 numbers."""
MAX_MODEL_SIDE = 1024
"""Of pictures for models; beside a large picture, more would pass the bound of its memory."""
_OPENING = 2
"""Version of how pictures are opened and resized; features of another are encoded again."""
_CHUNK = 32
"""Pictures of a forward pass, and between two reports of progress."""
_SIDE = 224
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Those of ImageNet, for models whose folder does not say."""


class ImageEncoder(Protocol):
    """What turns pictures into features."""

    @property
    def digest(self) -> str:
        """Stands for all that the features depend on; 64 hexadecimal digits."""

    @property
    def fingerprint(self) -> str:
        """For the manifest; does not depend on where a model lies."""

    def prepare(self, picture: Picture) -> Features:
        """What the encoder needs of a picture, of the same shape for all."""

    def forward(self, prepared: Sequence[Features]) -> Features:
        """Features of n of these, shape (n, d)."""


def image_encoder(name: str) -> ImageEncoder:
    """The encoder of that name: `pixels:N`, a model folder, or `package:NAME`.

    Raises:
        InputError: N out of range, or no such folder or package.
        FormatError: the folder is not a model, or more than data.
    """
    if not name.startswith(PIXELS):
        return ModelEncoder(name)
    side = name.removeprefix(PIXELS)
    if not re.fullmatch("[0-9]{1,3}", side) or not 1 <= int(side) <= MAX_SIDE:
        raise InputError(f"encoder {name!r}: expected pixels:N with N from 1 to {MAX_SIDE}")
    return PixelEncoder(int(side))


@dataclass(frozen=True)
class PixelEncoder:
    """The picture itself, side x side x 3 values in [0, 1]; its edges are kept, not its shape.

    Attributes:
        side: in pixels.
    """

    side: int

    @property
    def digest(self) -> str:
        """As `ImageEncoder.digest`."""
        return hex_digest({"kind": "pixels", "side": self.side, "opening": _OPENING})

    @property
    def fingerprint(self) -> str:
        """As `ImageEncoder.fingerprint`."""
        return fingerprint_of({"kind": "pixels", "side": self.side, "opening": _OPENING})

    def prepare(self, picture: Picture) -> Features:
        """As `ImageEncoder.prepare`, shape (side * side * 3,)."""
        from PIL.Image import Resampling

        small = picture.resized((self.side, self.side), Resampling.BOX)
        values: Features = np.asarray(small, np.float32).ravel() / np.float32(255)
        return values

    def forward(self, prepared: Sequence[Features]) -> Features:
        """As `ImageEncoder.forward`."""
        return np.stack(prepared)


@dataclass(frozen=True)
class _Preparation:
    """What a model wants of a picture.

    Attributes:
        side: of the square in its middle.
        mean, deviation: of each colour in [0, 1], shape (3,).
    """

    side: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, picture: Picture) -> NDArray[np.float32]:
        """The picture's middle, shape (3, side, side)."""
        from PIL.Image import Resampling

        width, height = picture.size
        whole = min(width, height)
        left, top = (width - whole) / 2, (height - whole) / 2
        middle = (left, top, left + whole, top + whole)
        square = picture.resized((self.side, self.side), Resampling.BICUBIC, middle)
        # In place, for the large picture is still there.
        values: NDArray[np.float32] = np.array(square, np.float32)
        values /= np.float32(255)
        values -= np.array(self.mean, np.float32)
        values /= np.array(self.deviation, np.float32)
        return values.transpose(2, 0, 1)


@dataclass(frozen=True)
class ModelEncoder:
    """A vision model of transformers on this machine; nothing is ever downloaded.

    Attributes:
        model: its folder, or `package:NAME` for one inside an installed package.
    """

    model: str

    @cached_property
    def folder(self) -> Path:
        """Where the model lies; raises as `image_model_folder`."""
        return image_model_folder(self.model)

    @cached_property
    def digest(self) -> str:
        """As `ImageEncoder.digest`."""
        return hex_digest({"files": folder_digest(self.folder), "opening": _OPENING})

    @property
    def fingerprint(self) -> str:
        """As `ImageEncoder.fingerprint`."""
        return fingerprint_of({"kind": "image", "model": self.digest})

    def prepare(self, picture: Picture) -> Features:
        """As `ImageEncoder.prepare`, shape (3, side, side)."""
        return self._preparation(picture)

    def forward(self, prepared: Sequence[Features]) -> Features:
        """As `ImageEncoder.forward`: the model's pooled output.

        Of a model of images and texts (CLIP, SigLIP) it is what stands beside a text's features.
        """
        import torch

        values = torch.from_numpy(np.stack(prepared))
        with torch.inference_mode():
            pictured = getattr(self._network, "get_image_features", self._network)
            found = pictured(pixel_values=values)
        # Of models of images and texts some versions of transformers give the tensor itself.
        pooled = found if torch.is_tensor(found) else getattr(found, "pooler_output", None)
        if pooled is None:
            # Without a pooling layer of its own: the mean over places.
            states = found.last_hidden_state
            pooled = states.mean(dim=1) if states.ndim == 3 else states.mean(dim=(2, 3))
        flat: Features = pooled.flatten(1).numpy().astype(np.float32)
        return flat

    @cached_property
    def _preparation(self) -> _Preparation:
        path = self.folder / "preprocessor_config.json"
        try:
            told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            sizes: Any = told.get("crop_size") or told.get("size") or _SIDE
            if isinstance(sizes, dict):
                sizes = sizes.get("height") or sizes.get("shortest_edge")
            side = int(sizes)
            mean = tuple(map(float, told.get("image_mean", _MEAN)))
            deviation = tuple(map(float, told.get("image_std", _DEVIATION)))
            fine = (
                len(mean) == len(deviation) == 3
                and min(deviation) > 0
                and 1 <= side <= MAX_MODEL_SIDE
            )
            if not fine:
                raise ValueError("sizes, means or deviations out of range")
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(f"{path}: not a usable description of pictures ({error})") from None
        return _Preparation(side, mean, deviation)

    @cached_property
    def _network(self) -> Any:
        with importing_offline(
            "models of images need transformers, which is not installed; run pip install"
            " 'securefl[images]'"
        ):
            from transformers import AutoModel
        with opening(self.folder):
            network = AutoModel.from_pretrained(
                str(self.folder),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
        return network.eval()


@dataclass(frozen=True, eq=False)
class EncodedPictures:
    """What became of files.

    Attributes:
        features: of those that could be read, shape (n, d), float32.
        kept: their places among the files, shape (n,).
        damaged: what was wrong with the others, a line each.
    """

    features: Features
    kept: NDArray[np.int64]
    damaged: tuple[str, ...]


def encode_pictures(
    files: Sequence[Path],
    encoder: ImageEncoder,
    *,
    cache: Path | None = None,
    drop_damaged: bool = False,
    progress: Callable[[int, int], None],
) -> EncodedPictures:
    """Features of image files.

    Args:
        files: of any number; they are opened a few at a time.
        encoder: the federation's.
        cache: folder that keeps features between runs, by the files' content; it reveals the
            pictures as features do.
        drop_damaged: leave out files that cannot be read, instead of refusing the first.
        progress: told of files done and all files.

    Raises:
        FormatError: a file cannot be read, or none of them.
        FeatureError: the model gave a feature that is not finite.
    """
    store = None if cache is None else EmbeddingCache(cache, encoder.digest)
    known = {} if store is None else store.load(_keys(files))
    features: list[Features] = []
    kept: list[int] = []
    damaged: list[str] = []
    for start in range(0, len(files), _CHUNK):
        chunk = files[start : start + _CHUNK]
        found, problems = _chunk(chunk, encoder, known, store, drop_damaged)
        damaged += problems
        kept += [start + i for i in sorted(found)]
        features += [found[i] for i in sorted(found)]
        progress(start + len(chunk), len(files))
    if not features:
        raise FormatError(f"none of {len(files)} images can be read; the first: {damaged[0]}")
    return EncodedPictures(np.stack(features), np.array(kept, np.int64), tuple(damaged))


def _keys(files: Sequence[Path]) -> set[bytes]:
    """The cache's keys of files that can be read; the others are told of when they are opened."""
    found: set[bytes] = set()
    for path in files:
        with contextlib.suppress(FormatError):
            found.add(content_key(read_picture_file(path)))
    return found


def _chunk(
    files: Sequence[Path],
    encoder: ImageEncoder,
    known: Mapping[bytes, tuple[Features, bool]],
    store: EmbeddingCache | None,
    drop_damaged: bool,
) -> tuple[dict[int, Features], list[str]]:
    """Features by place of the files that can be read, and what is wrong with the others.

    A picture is made small as soon as it is open: a few large ones would fill the memory.
    """
    found: dict[int, Features] = {}
    prepared: dict[int, Features] = {}
    keys: dict[int, bytes] = {}
    problems: list[str] = []
    for i, path in enumerate(files):
        with _noting(problems, drop_damaged):
            content = read_picture_file(path)
            key = content_key(content)
            if key in known:
                found[i] = known[key][0]
            else:
                prepared[i], keys[i] = encoder.prepare(open_picture(path, content)), key
    if prepared:
        made = dict(zip(prepared, encoder.forward(list(prepared.values())), strict=True))
        if store is not None:
            new = {keys[i]: value for i, value in made.items()}
            store.store(list(new), np.stack(list(new.values())), np.zeros(len(new), np.bool_))
        found |= made
    return found, problems


class _noting:  # noqa: N801  # read as a word of the with statement
    """Keeps the line of a file that cannot be read, or lets it out."""

    def __init__(self, problems: list[str], keep: bool) -> None:
        self._problems, self._keep = problems, keep

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if self._keep and isinstance(error, FormatError):
            self._problems.append(str(error))
            return True
        return False
