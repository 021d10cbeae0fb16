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
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .circuits import compile_rule
from .envelope import PRIVATE, read_envelope, write_envelope
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
    folder = cache_folder()
    path = folder / _name(parameters)
    if path.exists():
        check_private(folder)
        try:
            return _load(path)
        except FormatError as error:
            warnings.warn(f"{error}; compiling again", CacheWarning, stacklevel=2)
    module = compile_rule(parameters)
    lookups = sum(each.programmable_bootstrap_count for each in module.functions().values())
    found = CompiledRule(
        module.client.specs, module.server, module.p_error, module.complexity / lookups
    )
    _keep(path, found)
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


def _name(parameters: RuleParameters) -> str:
    digest = hashlib.sha256(json.dumps(parameters.to_json(), sort_keys=True).encode())
    digest.update(f"{version('concrete-python')} {platform.machine()}".encode())
    for source in _SOURCES:
        digest.update(Path(__file__).with_name(f"{source}.py").read_bytes())
    return digest.hexdigest()


def _load(path: Path) -> CompiledRule:
    envelope = read_envelope(path, KIND)
    header, fhe = envelope.header, concrete_fhe()
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        file.write(envelope.payload)
        file.flush()
        server = fhe.Server.load(file.name)
    remove_at_exit(server)
    return CompiledRule(server.client_specs, server, header["failure"], header["complexity"])


def _keep(path: Path, found: CompiledRule) -> None:
    header = {"failure": found.failure, "complexity": found.complexity}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        _warn_not_kept(f"{path.parent}: cannot be made ({error.strerror or error})")
        return
    check_private(path.parent)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "server.zip"
        found.server.save(archive)
        try:
            write_envelope(path, KIND, header, archive.read_bytes(), mode=PRIVATE)
        except InputError as error:
            _warn_not_kept(str(error))


def _warn_not_kept(reason: str) -> None:
    message = f"{reason}; the compiled rule is not kept and will be compiled again"
    warnings.warn(message, CacheWarning, stacklevel=4)
