"""What the roles send each other: contributions to the evaluator, an answer to the querier."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from .envelope import pack, read_envelope, write_atomic
from .errors import FormatError
from .library import concrete_fhe
from .parameters import RuleParameters

_LENGTH = struct.Struct("<I")


@attrs.frozen(kw_only=True)
class Message:
    """Ciphertexts and the facts that say where they belong.

    Attributes:
        parameters: of the rule.
        key: fingerprint of the keys they are under.
        federation: fingerprint of the federation's manifest.
        batch: name of the query batch, drawn by the querier; no batch is answered twice.
        queries: number of queries, at least 1.
        blocks: the library's ciphertexts, one per run of the circuit.
    """

    parameters: RuleParameters
    key: str
    federation: str
    batch: str
    queries: int
    blocks: tuple[bytes, ...] = attrs.field(repr=False)

    KIND = "fhe message"

    def header(self) -> dict[str, Any]:
        """Everything but the ciphertexts, as JSON types."""
        fields = attrs.asdict(self, recurse=False)
        del fields["blocks"]
        return {**fields, "parameters": self.parameters.to_json()}

    def to_bytes(self) -> bytes:
        """The message as an envelope."""
        payload = b"".join(_LENGTH.pack(len(block)) + block for block in self.blocks)
        return pack(self.KIND, self.header(), payload)

    def save(self, path: Path) -> int:
        """Writes the message whole or not at all; returns its bytes."""
        data = self.to_bytes()
        write_atomic(path, data)
        return len(data)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a message file.

        Raises:
            FormatError: foreign, truncated or damaged; names the file.
        """
        envelope = read_envelope(path, cls.KIND)
        fields = dict(envelope.header)
        expected = {field.name for field in attrs.fields(cls)} - {"blocks"}
        if set(fields) != expected:
            raise FormatError(f"{path}: header members are missing or unknown; get it again")
        fields["parameters"] = RuleParameters.from_json(fields["parameters"], source=str(path))
        for name, value in fields.items():
            if type(value) is not _TYPES[name]:
                raise FormatError(f"{path}: header member {name} is of the wrong type")
        message = cls(**fields, blocks=_blocks(envelope.payload, path))
        runs = -(-message.queries // message.parameters.block)
        if message.queries < 1 or len(message.blocks) != runs:
            raise FormatError(
                f"{path}: {len(message.blocks)} ciphertexts for {message.queries} queries,"
                f" expected {runs}; get it again"
            )
        return message


_TYPES: dict[str, type] = {
    "parameters": RuleParameters,
    "key": str,
    "federation": str,
    "batch": str,
    "queries": int,
    "contributor": int,
    "name": str,
}


@attrs.frozen(kw_only=True)
class Contribution(Message):
    """One contributor's encrypted integers.

    Attributes:
        contributor: its position, 0 to Q - 1.
        name: its name, for messages.
    """

    contributor: int
    name: str

    KIND = "fhe contribution"


@attrs.frozen(kw_only=True)
class Answer(Message):
    """The evaluator's encrypted classes."""

    KIND = "fhe answer"


def _blocks(payload: bytes, path: Path) -> tuple[bytes, ...]:
    blocks: list[bytes] = []
    position = 0
    while position < len(payload):
        start = position + _LENGTH.size
        if start > len(payload):
            raise FormatError(f"{path}: truncated ciphertext; get it again")
        (length,) = _LENGTH.unpack_from(payload, position)
        position = start + length
        if position > len(payload):
            raise FormatError(f"{path}: truncated ciphertext; get it again")
        blocks.append(payload[start:position])
    return tuple(blocks)


def library_values(message: Message, *, who: str) -> Sequence[Any]:
    """The library's ciphertext objects of a message.

    Raises:
        FormatError: bytes that are no ciphertext; names `who`.
    """
    fhe = concrete_fhe()

    values = []
    for block in message.blocks:
        try:
            values.append(fhe.Value.deserialize(block))
        except RuntimeError as error:
            raise FormatError(f"{who}: holds bytes that are no ciphertext; get it again") from error
    return values
