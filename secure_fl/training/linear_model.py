"""The artifact of an iterative trainer: a linear model behind a fixed feature map."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fhe.envelope import read_envelope, write_envelope
from secure_fl.data import Scale
from secure_fl.errors import FormatError, InputError
from secure_fl.objectives import RandomFourierFeatures, with_constant
from secure_fl.objectives.base import Array, Features
from secure_fl.training.model_files import FILE, LINEAR, REGRESSION, UNFIT, Described, Description


@dataclass(frozen=True, eq=False)
class LinearModel(Described):
    """Weights, and what stands between a record and them.

    Public once it is shared: it holds no records, but what it was trained on shows in it unless
    the sums were private.

    Attributes:
        weights: shape (k, C), float64; k is d + 1 with a constant feature last, or the number of
            random features.
        classes: C names.
        n_features: d.
        features: d names, or None.
        scale: constant factor on the features, or a scaling.
        random: random features in place of the record and the constant, or None.
        origin: how it was trained, JSON types.

    Raises:
        ValueError: shapes do not fit together, or a weight or the scale is not finite.
    """

    weights: Array
    classes: tuple[str, ...]
    n_features: int
    features: tuple[str, ...] | None
    scale: Scale
    random: RandomFourierFeatures | None
    origin: dict[str, Any]

    file_kind: ClassVar[str] = LINEAR
    """Kind of its file's envelope."""

    def __post_init__(self) -> None:
        width = self.n_features + 1 if self.random is None else self.random.count
        if self.weights.shape != (width, len(self.classes)):
            raise ValueError(f"weights {self.weights.shape}, {width} x {len(self.classes)} needed")
        if self.random is not None and len(self.random.frequencies) != self.n_features:
            raise ValueError(f"random features of {len(self.random.frequencies)} features")
        self.check_names(self.n_features)
        self.check_finite(self.weights, "weight")

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return "linear model"

    def predict(self, X: Features) -> NDArray[np.int64]:
        """Class codes, shape (n,): the largest score, the lowest class on a tie.

        Args:
            X: scaled features, shape (n, d).
        """
        return np.argmax(mapped(X, self.random) @ self.weights, axis=1)

    def save(self, path: Path) -> int:
        """Writes the model, whole or not at all; returns its bytes."""
        tensors = {"weights": np.ascontiguousarray(self.weights)}
        if self.random is not None:
            tensors["frequencies"] = np.ascontiguousarray(self.random.frequencies)
            tensors["phases"] = np.ascontiguousarray(self.random.phases)
        header = {
            "n_features": self.n_features,
            **Description(self.classes, self.features, self.scale, self.origin).header(),
        }
        return write_envelope(path, self.file_kind, header, save_tensors(tensors))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a model.

        Args:
            path: the file, or the run folder with it.

        Raises:
            fhe.errors.InputError: absent, truncated, damaged, or of another kind or version.
            FormatError: its parts do not belong together.
        """
        file = path / FILE if path.is_dir() else path
        envelope = read_envelope(file, cls.file_kind)
        header = envelope.header
        try:
            tensors = load_tensors(envelope.payload)
            if any(tensor.dtype != np.float64 for tensor in tensors.values()):
                raise ValueError("numbers of another type than float64")
            random = None
            if "frequencies" in tensors:
                random = RandomFourierFeatures(tensors["frequencies"], tensors["phases"])
            told = Description.of(header)
            return cls(
                tensors["weights"],
                told.classes,
                int(header["n_features"]),
                told.features,
                told.scale,
                random,
                told.origin,
            )
        except UNFIT as error:
            raise FormatError(f"{file}: its parts do not belong together; train again") from error


class RegressionModel(LinearModel):
    """A linear model of numbers; `classes` holds the names of its C targets.

    It is a file kind of its own, so that no reader takes the largest value for a class.
    """

    file_kind: ClassVar[str] = REGRESSION

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return "linear regression"

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of what is predicted."""
        return self.classes

    def values(self, X: Features) -> Array:
        """Predicted numbers, shape (n, C), in the targets' units.

        Args:
            X: scaled features, shape (n, d).
        """
        found: Array = mapped(X, self.random) @ self.weights
        return found

    def predict(self, X: Features) -> NDArray[np.int64]:
        """Refused: it has no classes.

        Raises:
            InputError: always.
        """
        raise InputError("a regression predicts numbers and no classes; take its values")


def mapped(X: Features, random: RandomFourierFeatures | None) -> Features:
    """What the weights multiply: random features of the records, or the records and a constant."""
    return with_constant(X) if random is None else random.apply(X)
