"""What the files of both kinds of model have in common: their name, kinds and description."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from secure_fl.data import Dataset, Scale, Scaling, TargetSet, scaling_of
from secure_fl.errors import InputError
from secure_fl.heads.manifest import MODEL_FILE

FILE = MODEL_FILE
"""Name of the model in a run folder."""
PERSONAL = "personal"
"""Folder in a run folder with clients' own models, one folder a client."""
UNFIT = (
    *(SafetensorError, AttributeError, LookupError, OverflowError, RuntimeError),
    *(InputError, TypeError, ValueError),
)
"""What reading a model raises whose header and arrays do not fit each other."""
LINEAR, NETWORK, REGRESSION = "linear model", "network", "linear regression"
"""Kinds of its envelope."""


class Described:
    """What models of both kinds derive from their description; they have these attributes."""

    features: tuple[str, ...] | None
    scale: Scale
    origin: dict[str, Any]

    @property
    def schema(self) -> str:
        """Digest of the schema that the clients' tables were prepared by; "" for none."""
        return str(self.origin.get("schema", ""))

    @property
    def scaling_map(self) -> Scaling:
        """What is done to every feature."""
        return scaling_of(self.scale)

    def check_names(self, n_features: int) -> None:
        """Raises ValueError where names are not as many as features."""
        if self.features is not None and len(self.features) != n_features:
            raise ValueError(f"{len(self.features)} names of {n_features} features")

    def check_finite(self, learned: NDArray[Any], what: str) -> None:
        """Raises ValueError where what was learned, or the scale, is not finite."""
        scaled = isinstance(self.scale, Scaling) or math.isfinite(self.scale)
        if not (np.isfinite(learned).all() and scaled):
            raise ValueError(f"a {what} or the scale is not finite")


@dataclass(frozen=True)
class Description:
    """What the files of both kinds say of a model.

    Attributes:
        classes: C names.
        features: d names, or None.
        scale: constant factor on the features, or a scaling.
        origin: how it was trained, JSON types.
    """

    classes: tuple[str, ...]
    features: tuple[str, ...] | None
    scale: Scale
    origin: dict[str, Any]

    def header(self) -> dict[str, Any]:
        """As members of an envelope's header."""
        scaling = scaling_of(self.scale)
        # A reader that knows no scalings must not read a factor and go on.
        told = (
            {"scale": None, "scaling": {**scaling.to_json(), "factor": scaling.factor}}
            if scaling.affine
            else {"scale": scaling.factor}
        )
        return {
            "classes": list(self.classes),
            "features": None if self.features is None else list(self.features),
            **told,
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
            scale: Scale
            if header["scale"] is None:
                told = header["scaling"]
                scale = Scaling.of_json(told, float(told["factor"]))
            else:
                scale = float(header["scale"])
        except OverflowError:
            raise ValueError("a scale beyond float64") from None
        return cls(
            tuple(map(str, header["classes"])),
            None if names is None else tuple(map(str, names)),
            scale,
            dict(header["origin"]),
        )


def schema_of_clients(clients: Sequence[Dataset] | Sequence[TargetSet]) -> dict[str, str]:
    """What a model's origin says of the schema that the clients' tables were prepared by."""
    return {"schema": clients[0].schema} if clients[0].schema else {}
