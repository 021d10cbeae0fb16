"""Digests that stand for an encoder: what its features depend on, not where it lies."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secure_fl.encoders.local_models import model_files
from secure_fl.files import digest_of


def folder_digest(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a model's folder by their names below it."""
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in model_files(folder)}


def hex_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 of a value of JSON, 64 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def fingerprint_of(value: Mapping[str, Any]) -> str:
    """The same, as manifests have it."""
    return f"sha256:{hex_digest(value)}"
