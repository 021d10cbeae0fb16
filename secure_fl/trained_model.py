"""Models of iterative trainers as files: linear ones and networks, by one name in a run folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from fhe.envelope import read_header

if TYPE_CHECKING:
    from secure_fl.linear_model import LinearModel
    from secure_fl.networks.artifact import TrainedNetwork

FILE = "model"
"""Name of the model in a run folder."""
LINEAR, NETWORK = "linear model", "network"
"""Kinds of its envelope."""


def load_model(path: Path) -> "LinearModel | TrainedNetwork":
    """Reads a model of either kind; torch is imported for networks alone.

    Args:
        path: the file, or the run folder with it.

    Raises:
        fhe.errors.InputError: absent, truncated, damaged, or of another kind or version.
        FormatError: its parts do not belong together.
    """
    file = path / FILE if path.is_dir() else path
    kind, _, _ = read_header(file, (LINEAR, NETWORK))
    if kind == NETWORK:
        from secure_fl.networks.artifact import TrainedNetwork

        return TrainedNetwork.load(file)
    from secure_fl.linear_model import LinearModel

    return LinearModel.load(file)
