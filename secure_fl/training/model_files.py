"""Models of iterative trainers as files: linear ones and networks, by one name in a run folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fhe.envelope import read_header
from secure_fl.errors import InputError

if TYPE_CHECKING:
    from secure_fl.training.linear_model import LinearModel
    from secure_fl.training.network_model import TrainedNetwork

FILE = "model"
"""Name of the model in a run folder."""
PERSONAL = "personal"
"""Folder in a run folder with clients' own models, one folder a client."""
HEADS = "federation.json"
"""What a run folder of heads has in its place."""
LINEAR, NETWORK = "linear model", "network"
"""Kinds of its envelope."""


@dataclass(frozen=True)
class Description:
    """What the files of both kinds say of a model.

    Attributes:
        classes: C names.
        features: d names, or None.
        scale: constant factor on the features.
        origin: how it was trained, JSON types.
    """

    classes: tuple[str, ...]
    features: tuple[str, ...] | None
    scale: float
    origin: dict[str, Any]

    def header(self) -> dict[str, Any]:
        """As members of an envelope's header."""
        return {
            "classes": list(self.classes),
            "features": None if self.features is None else list(self.features),
            "scale": self.scale,
            "origin": self.origin,
        }

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> "Description":
        """What `header` wrote.

        Raises:
            KeyError, TypeError, ValueError: a member is missing or of another type.
        """
        names = header["features"]
        try:
            scale = float(header["scale"])
        except OverflowError:
            raise ValueError("a scale beyond float64") from None
        return cls(
            tuple(map(str, header["classes"])),
            None if names is None else tuple(map(str, names)),
            scale,
            dict(header["origin"]),
        )


def load_model(path: Path) -> "LinearModel | TrainedNetwork":
    """Reads a model of either kind; torch is imported for networks alone.

    Args:
        path: the file, or the run folder with it.

    Raises:
        fhe.errors.InputError: absent, truncated, damaged, or of another kind or version.
        InputError: the folder holds heads.
        FormatError: its parts do not belong together.
    """
    file = path / FILE if path.is_dir() else path
    if path.is_dir() and not file.exists() and (path / HEADS).is_file():
        raise InputError(
            f"{path}: holds heads, no one model; classify with `securefl infer QUERIES --run {path}"
            " --mode plain`, or on ciphertexts (securefl keys new, encrypt, infer, decrypt)"
        )
    kind, _, _ = read_header(file, (LINEAR, NETWORK))
    if kind == NETWORK:
        from secure_fl.training.network_model import TrainedNetwork

        return TrainedNetwork.load(file)
    from secure_fl.training.linear_model import LinearModel

    return LinearModel.load(file)
