"""The artifact of a trained network: its specification, its parameters, and its classes."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fhe.envelope import PUBLIC, read_envelope, write_envelope
from secure_fl.data import Scale
from secure_fl.errors import FormatError
from secure_fl.trainers.networks.models import (
    Array,
    ConvNet,
    FourierModel,
    LinearModel,
    Model,
    Perceptron,
    load,
    predictions,
    scores,
)
from secure_fl.training.model_files import FILE, NETWORK, UNFIT, Described, Description

KINDS: dict[str, type[Model]] = {
    each.__name__: each for each in (LinearModel, FourierModel, Perceptron, ConvNet)
}


@dataclass(frozen=True, eq=False)
class TrainedNetwork(Described):
    """A network, and what stands between a record and it.

    Public once it is shared, as `secure_fl.training.linear_model.LinearModel`.

    Attributes:
        model: its specification.
        parameters: flat float32 vector.
        classes: C names.
        features: d names, or None.
        scale: constant factor on the features, or a scaling.
        origin: how it was trained, JSON types.

    Raises:
        ValueError: parts do not fit together, or a parameter or the scale is not finite.
    """

    model: Model
    parameters: Array
    classes: tuple[str, ...]
    features: tuple[str, ...] | None
    scale: Scale
    origin: dict[str, Any]

    def __post_init__(self) -> None:
        if len(self.classes) != self.model.classes:
            raise ValueError(f"{len(self.classes)} names of {self.model.classes} classes")
        self.check_names(self.n_features)
        # On the meta device nothing is allocated, whatever size a file claims.
        with torch.device("meta"):
            size = sum(p.numel() for p in self.model.module().parameters())
        if self.parameters.shape != (size,) or self.parameters.dtype != np.float32:
            raise ValueError(f"parameters {self.parameters.shape}, {size} float32 needed")
        self.check_finite(self.parameters, "parameter")

    @property
    def n_features(self) -> int:
        """d."""
        return self.model.inputs

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return f"network ({type(self.model).__name__})"

    @property
    def weights(self) -> Array:
        """All that was learned."""
        return self.parameters

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Class codes, shape (n,): the largest score, the lowest class on a tie.

        Args:
            X: scaled features, shape (n, d).
        """
        network = self.model.build()
        load(network, self.parameters)
        found: NDArray[np.int64] = predictions(network, X)
        return found

    def scores(self, X: Any) -> Array:
        """Logarithms of probabilities up to a constant, shape (n, C); X as in `predict`."""
        network = self.model.build()
        load(network, self.parameters)
        return scores(network, X)

    def save(self, path: Path, *, mode: int = PUBLIC) -> int:
        """Writes the model, whole or not at all; returns its bytes.

        Args:
            path: the file.
            mode: who may read it; a client's own model is `fhe.envelope.PRIVATE`.
        """
        header = {
            "model": {"kind": type(self.model).__name__, **asdict(self.model)},
            **Description(self.classes, self.features, self.scale, self.origin).header(),
        }
        tensors = {"parameters": np.ascontiguousarray(self.parameters)}
        return write_envelope(path, NETWORK, header, save_tensors(tensors), mode=mode)

    @classmethod
    def load(cls, path: Path) -> "TrainedNetwork":
        """Reads a model.

        Args:
            path: the file, or the run folder with it.

        Raises:
            fhe.errors.InputError: absent, truncated, damaged, or of another kind or version.
            FormatError: its parts do not belong together.
        """
        file = path / FILE if path.is_dir() else path
        envelope = read_envelope(file, NETWORK)
        header = envelope.header
        try:
            told = Description.of(header)
            return cls(
                _specification(header["model"]),
                load_tensors(envelope.payload)["parameters"],
                told.classes,
                told.features,
                told.scale,
                told.origin,
            )
        except UNFIT as error:
            raise FormatError(f"{file}: its parts do not belong together; train again") from error


def _specification(found: dict[str, Any]) -> Model:
    # JSON has no tuples; sizes that are not whole numbers fail when the layers are made.
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found.items()
        if name != "kind"
    }
    return KINDS[found["kind"]](**fields)
