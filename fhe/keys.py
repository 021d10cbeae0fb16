"""Keys of one encrypted rule: who makes them, and the files they live in."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .compiled import compiled_rule
from .envelope import PRIVATE, Envelope, read_envelope, write_envelope
from .errors import FormatError, SecretError, VersionError
from .frames import draw_keys, frames_of
from .knockout import function_name, last_kind
from .library import concrete_fhe
from .lwe_layout import ResultReader, check_layout, input_type, result_reader
from .parameters import RuleParameters
from .retirement import refuse_retired
from .seal import seal, unseal

SECRET_KIND = "fhe secret key"
EVALUATION_KIND = "fhe evaluation key"
KEY_VERSION = 3
"""Keys of versions 1 and 2 were drawn for other circuits and fit none of today's."""
SECRET_FILE = "secret.key"
EVALUATION_FILE = "evaluation.key"
MAX_EVALUATION = 1 << 28
"""Bytes of an evaluation key file's content; those of the largest circuits are near 100 MB."""
MAX_SECRET = 1 << 28


@dataclass(frozen=True)
class EvaluationKeys:
    """What the evaluator holds; it computes on ciphertexts and opens none.

    Attributes:
        parameters: of the rule.
        content: the library's bytes.
    """

    parameters: RuleParameters
    content: bytes

    @cached_property
    def fingerprint(self) -> str:
        """Ties ciphertexts to these keys, 64 hexadecimal digits."""
        digest = hashlib.sha256(self.parameters.fingerprint().encode())
        digest.update(self.content)
        return digest.hexdigest()

    @cached_property
    def library_keys(self) -> Any:
        """The library's object; compiles the rule.

        Raises:
            FormatError: the bytes are not evaluation keys of the rule.
        """
        self.check()
        try:
            return concrete_fhe().EvaluationKeys.deserialize(self.content)
        except RuntimeError as error:
            raise FormatError("evaluation keys: the library cannot read them") from error

    def check(self) -> None:
        """Refuses bytes that differ from keys drawn here for the rule in more than words.

        Raises:
            FormatError: so.
        """
        frames_of(self.parameters).keys.check(self.content)


@dataclass(frozen=True, repr=False)
class SecretKeys:
    """The querier's keys. Whoever holds them reads every contribution and every answer.

    Attributes:
        parameters: of the rule.
        client: the library's client with its keys.
        evaluation: the keys to hand to the evaluator.
    """

    parameters: RuleParameters
    client: Any
    evaluation: EvaluationKeys

    def __repr__(self) -> str:
        return f"SecretKeys({self.parameters}, {self.evaluation.fingerprint[:16]})"

    @cached_property
    def results(self) -> ResultReader:
        """Reads the words of the last function's results. A secret.

        Made of the keys and the circuit alone, so that no answer has a part in how another is
        read; proving how the library lays out words takes longer than reading a batch.

        Raises:
            LibraryError: the library lays out its bytes otherwise.
        """
        p, last = self.parameters, function_name(last_kind(self.parameters), 1)
        check_layout(self.client, input_type(self.client.specs), last, (1, p.number_digits))
        return result_reader(self.client, last)


def generate_keys(parameters: RuleParameters) -> SecretKeys:
    """Fresh keys, from the operating system's randomness; takes seconds.

    Raises:
        LibraryError: the compiler finds no secure parameters.
    """
    client = _client(parameters)
    draw_keys(client)
    return _with_evaluation(parameters, client)


def save_secret_keys(folder: Path, keys: SecretKeys, passphrase: str) -> int:
    """Writes `secret.key`, sealed, mode 0600; returns its bytes."""
    header = _header(keys.evaluation)
    sealing, sealed = seal(keys.client.keys.serialize(), passphrase, seal_context(header))
    path = folder / SECRET_FILE
    return write_envelope(path, SECRET_KIND, {**header, "seal": sealing}, sealed, mode=PRIVATE)


def load_secret_keys(folder: Path, passphrase: str) -> SecretKeys:
    """Opens `secret.key`.

    Raises:
        RetiredError: the folder's keys met a wrong answer.
        SecretError: wrong passphrase or a changed file.
        VersionError: of another version; names both.
        FormatError: not such a file.
    """
    refuse_retired(folder)
    path = folder / SECRET_FILE
    envelope = read_envelope(path, SECRET_KIND, max_payload=MAX_SECRET)
    parameters = key_parameters(envelope, path)
    header = dict(envelope.header)
    sealing = header.pop("seal", None)
    content = unseal(envelope.payload, sealing, passphrase, seal_context(header))
    client = _client(parameters)
    client.keys.load_from_bytes(content)
    keys = _with_evaluation(parameters, client)
    if keys.evaluation.fingerprint != header.get("key"):
        raise SecretError
    return keys


def save_evaluation_keys(folder: Path, keys: EvaluationKeys) -> int:
    """Writes `evaluation.key`; returns its bytes."""
    return write_envelope(folder / EVALUATION_FILE, EVALUATION_KIND, _header(keys), keys.content)


def load_evaluation_keys(folder: Path) -> EvaluationKeys:
    """Reads `evaluation.key`.

    Raises:
        RetiredError: the folder's keys met a wrong answer.
        VersionError: of another version; names both.
        FormatError: not such a file, or one whose fingerprint does not fit its content.
    """
    refuse_retired(folder)
    path = folder / EVALUATION_FILE
    envelope = read_envelope(path, EVALUATION_KIND, max_payload=MAX_EVALUATION)
    keys = EvaluationKeys(key_parameters(envelope, path), envelope.payload)
    if envelope.header.get("key") != keys.fingerprint:
        raise FormatError(f"{path}: its fingerprint does not fit its keys; get it again")
    return keys


def _client(parameters: RuleParameters) -> Any:
    fhe = concrete_fhe()

    return fhe.Client(compiled_rule(parameters).specs)


def _with_evaluation(parameters: RuleParameters, client: Any) -> SecretKeys:
    content = client.evaluation_keys.serialize()
    return SecretKeys(parameters, client, EvaluationKeys(parameters, content))


def _header(keys: EvaluationKeys) -> dict[str, Any]:
    return {
        "parameters": keys.parameters.to_json(),
        "key": keys.fingerprint,
        "version": KEY_VERSION,
    }


def key_parameters(envelope: Envelope, path: Path, version: int = KEY_VERSION) -> RuleParameters:
    """Of a key file's header; the file must be of the version.

    Raises:
        VersionError: of another version; names both.
        InputError: parameters that are none.
    """
    found = envelope.header.get("version", 1)
    if found != version:
        raise VersionError(
            f"{path}: a key of version {found!s:.10}, this package reads version {version};"
            " make new keys with this release"
        )
    return RuleParameters.from_json(envelope.header.get("parameters"), source=str(path))


def seal_context(header: dict[str, Any]) -> bytes:
    """What a sealed key is bound to: its file's public header."""
    return json.dumps(header, sort_keys=True).encode()
