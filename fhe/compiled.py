"""Compiled rules, kept on disk: compiling for a hundred contributors takes many seconds.

A compiled circuit is code. It is never taken from a peer, and the cache it is kept in must belong
to this user and be closed to everybody else (0700); another folder is refused. An entry's name is
the digest of the rule's parameters, of the library's version, of the machine's type and of the
source code that traces and keeps the circuit, so nothing stale is found.
"""

import hashlib
import json
import os
import platform
import stat
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .circuits import compile_rule
from .envelope import PRIVATE, Envelope, read_envelope, write_envelope
from .errors import FormatError, InputError
from .library import concrete_fhe, remove_at_exit
from .parameters import RuleParameters

KIND = "fhe compiled rule"
CACHE_VARIABLE = "SECUREFL_CACHE"
_SOURCES = ("circuits", "code", "compiled", "digits", "knockout", "parameters")


class CacheWarning(UserWarning):
    """A compiled rule could not be kept, or a damaged one was compiled again."""


@dataclass(frozen=True)
class CompiledRule:
    """What encrypting, evaluating and decrypting need of a circuit.

    Attributes:
        specs: the library's description of keys, inputs and outputs (`ClientSpecs`).
        server: the library's object that runs the functions.
        failure: probability that noise makes one table look-up wrong.
        complexity: the library's estimate of one look-up's work, in operations.
    """

    specs: Any
    server: Any
    failure: float
    complexity: float


@lru_cache(maxsize=8)
def compiled_rule(parameters: RuleParameters) -> CompiledRule:
    """The compiled rule, from the cache where it is there.

    Raises:
        InputError: the cache folder is somebody else's or open to others.
        LibraryError: the compiler found no secure parameters, or other ones than asked for.
    """
    path = entry(parameters, _SOURCES)
    kept = read_kept(path, KIND)
    if kept is not None:
        return _load(kept)
    module = compile_rule(parameters)
    lookups = sum(each.programmable_bootstrap_count for each in module.functions().values())
    found = CompiledRule(
        module.client.specs, module.server, module.p_error, module.complexity / lookups
    )
    header = {"failure": found.failure, "complexity": found.complexity}
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "server.zip"
        found.server.save(archive)
        keep(path, KIND, header, archive.read_bytes())
    return found


def cache_folder() -> Path:
    """$SECUREFL_CACHE, else `securefl` in the user's cache folder; circuits have a folder in it."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen) / "circuits"
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "securefl" / "circuits"


def check_private(folder: Path) -> None:
    """Refuses a cache that somebody else could have written to.

    Raises:
        InputError: so.
    """
    facts = folder.stat()
    if facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise InputError(
            f"{folder}: mode {stat.S_IMODE(facts.st_mode):04o} of user {facts.st_uid}, expected"
            f" 0700 of user {os.getuid()}: compiled circuits are code; remove it, or name another"
            f" folder in ${CACHE_VARIABLE}"
        )


def entry(parameters: RuleParameters, sources: Sequence[str]) -> Path:
    """The file of the cache that belongs to a rule.

    Args:
        parameters: of the rule.
        sources: this package's modules whose code the entry depends on.
    """
    digest = hashlib.sha256(json.dumps(parameters.to_json(), sort_keys=True).encode())
    digest.update(f"{version('concrete-python')} {platform.machine()}".encode())
    for source in sources:
        digest.update(Path(__file__).with_name(f"{source}.py").read_bytes())
    return cache_folder() / digest.hexdigest()


def read_kept(path: Path, kind: str) -> Envelope | None:
    """An entry of the cache; None where it is absent or damaged.

    Raises:
        InputError: the cache folder is somebody else's or open to others.
    """
    if not path.exists():
        return None
    check_private(path.parent)
    try:
        return read_envelope(path, kind)
    except FormatError as error:
        warnings.warn(f"{error}; compiling again", CacheWarning, stacklevel=3)
        return None


def keep(path: Path, kind: str, header: Mapping[str, Any], payload: bytes) -> None:
    """Writes an entry of the cache, or warns that it cannot be kept.

    Raises:
        InputError: the cache folder is somebody else's or open to others.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        _warn_not_kept(f"{path.parent}: cannot be made ({error.strerror or error})")
        return
    check_private(path.parent)
    try:
        write_envelope(path, kind, header, payload, mode=PRIVATE)
    except InputError as error:
        _warn_not_kept(str(error))


def _load(envelope: Envelope) -> CompiledRule:
    header, fhe = envelope.header, concrete_fhe()
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        file.write(envelope.payload)
        file.flush()
        server = fhe.Server.load(file.name)
    remove_at_exit(server)
    return CompiledRule(server.client_specs, server, header["failure"], header["complexity"])


def _warn_not_kept(reason: str) -> None:
    message = f"{reason}; the compiled rule is not kept and will be compiled again"
    warnings.warn(message, CacheWarning, stacklevel=4)
