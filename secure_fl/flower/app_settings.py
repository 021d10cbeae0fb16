"""The settings of a run, read from its app as text; nothing of the app is unpacked or run."""

import io
import lzma
import struct
import tomllib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secure_fl.errors import InputError
from secure_fl.files import placed

_LARGEST = 1 << 20
"""Bytes of an app's settings; securefl writes some hundreds."""
_PROJECT = "pyproject.toml"


def settings_of_app(app: bytes, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run: those in its app, and over them those that it was started with.

    Args:
        app: Flower's app bundle, a zip file. One member of it is read, as text; nothing is written.
        given: overriding settings.

    Raises:
        InputError: no bundle, or none with settings.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(app)) as files, files.open(_PROJECT) as file:
            text = file.read(_LARGEST + 1)
    except (
        *(zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError),
        *(NotImplementedError, RuntimeError, struct.error, zlib.error, lzma.LZMAError),
    ) as error:
        raise InputError(f"server: an app without settings ({type(error).__name__})") from None
    return {**_settings(text, "server"), **given}


def settings_of_folder(folder: Path) -> dict[str, Any]:
    """The settings in an app folder, as `securefl flower app` writes it.

    Raises:
        InputError: no such folder, or one without settings.
    """
    file = folder / _PROJECT
    if not file.is_file():
        raise InputError(f"{folder}: no app folder; write one with `securefl flower app`")
    with placed(file), file.open("rb") as opened:
        return _settings(opened.read(_LARGEST + 1), str(folder))


def _settings(text: bytes, whose: str) -> dict[str, Any]:
    if len(text) > _LARGEST:
        raise InputError(f"{whose}: an app with more than {_LARGEST} bytes of settings")
    try:
        return _flat(tomllib.loads(text.decode())["tool"]["flwr"]["app"].get("config", {}))
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
        raise InputError(f"{whose}: an app without settings ({type(error).__name__})") from None


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Tables of tables by their paths, with dots, as Flower hands them to an app."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = value
    return found
