"""Reading the model in a run folder, whichever kind it is."""

from pathlib import Path
from typing import TYPE_CHECKING

from fhe.envelope import read_header
from secure_fl.errors import InputError
from secure_fl.heads.manifest import FILE_NAME
from secure_fl.training.linear_model import LinearModel, RegressionModel
from secure_fl.training.model_files import FILE, LINEAR, NETWORK, REGRESSION

if TYPE_CHECKING:
    from secure_fl.training.network_model import TrainedNetwork


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
    if path.is_dir() and not file.exists() and (path / FILE_NAME).is_file():
        raise InputError(
            f"{path}: holds heads, no one model; classify with `securefl infer QUERIES --run {path}"
            " --mode plain`, or on ciphertexts (securefl keys new, encrypt, infer, decrypt)"
        )
    kind, _, _ = read_header(file, (LINEAR, NETWORK, REGRESSION))
    if kind == REGRESSION:
        return RegressionModel.load(file)
    if kind == NETWORK:
        from secure_fl.training.network_model import TrainedNetwork

        return TrainedNetwork.load(file)
    return LinearModel.load(file)
