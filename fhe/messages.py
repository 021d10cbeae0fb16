"""What the roles send each other: contributions to the evaluator, an answer to the querier."""

import struct
from pathlib import Path
from typing import Any, Self

import attrs

from .envelope import pack, read_envelope, write_atomic
from .errors import FormatError, VersionError
from .library import concrete_fhe
from .parameters import RuleParameters

_LENGTH = struct.Struct("<I")


@attrs.frozen(kw_only=True)
class Message:
    """The facts that say where ciphertexts belong.

    Attributes:
        parameters: of the rule.
        key: fingerprint of the evaluation keys that go with them.
        federation: fingerprint of the federation's manifest.
        batch: name of the query batch, drawn by the querier; no batch is answered twice.
        queries: number of queries, at least 1.
    """

    parameters: RuleParameters
    key: str
    federation: str
    batch: str
    queries: int

    KIND = "fhe message"
    VERSION = 1
    CIPHERTEXTS = ""

    def header(self) -> dict[str, Any]:
        """Everything but the ciphertexts, as JSON types."""
        fields = attrs.asdict(self, recurse=False)
        del fields[self.CIPHERTEXTS]
        if self.VERSION > 1:
            fields["version"] = self.VERSION
        return {**fields, "parameters": self.parameters.to_json()}

    def payload(self) -> bytes:
        """The ciphertexts."""
        raise NotImplementedError

    def to_bytes(self) -> bytes:
        """The message as an envelope."""
        return pack(self.KIND, self.header(), self.payload())

    def save(self, path: Path) -> int:
        """Writes the message whole or not at all; returns its bytes."""
        data = self.to_bytes()
        write_atomic(path, data)
        return len(data)

    @classmethod
    def _read(cls, path: Path) -> tuple[dict[str, Any], bytes]:
        """The members but the ciphertexts, checked, and the payload."""
        envelope = read_envelope(path, cls.KIND)
        fields = dict(envelope.header)
        version = fields.pop("version", 1)
        if version != cls.VERSION:
            raise VersionError(
                f"{path}: a {cls.KIND[4:]} of version {version!s:.10}, this package reads version"
                f" {cls.VERSION}; make it again with this release"
            )
        expected = {field.name for field in attrs.fields(cls)} - {cls.CIPHERTEXTS}
        if set(fields) != expected:
            raise FormatError(f"{path}: header members are missing or unknown; get it again")
        fields["parameters"] = RuleParameters.from_json(fields["parameters"], source=str(path))
        for name, value in fields.items():
            if type(value) is not _TYPES[name]:
                raise FormatError(f"{path}: header member {name} is of the wrong type")
        if fields["queries"] < 1:
            raise FormatError(f"{path}: {fields['queries']} queries; get it again")
        return fields, envelope.payload


_TYPES: dict[str, type] = {
    "parameters": RuleParameters,
    "key": str,
    "federation": str,
    "batch": str,
    "queries": int,
    "contributor": int,
    "name": str,
    "public": str,
}


@attrs.frozen(kw_only=True)
class Contribution(Message):
    """One contributor's encrypted integers.

    Attributes:
        contributor: its position, 0 to Q - 1.
        name: its name, for messages.
        public: fingerprint of the public key they are under.
        content: words of the ring ciphertexts, as `encrypt_digits` gives them.
    """

    contributor: int
    name: str
    public: str
    content: bytes = attrs.field(repr=False)

    KIND = "fhe contribution"
    # Version 1 held ciphertexts made with the secret key.
    VERSION = 2
    CIPHERTEXTS = "content"

    def payload(self) -> bytes:
        """The ring ciphertexts."""
        return self.content

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a contribution's file.

        Raises:
            VersionError: of another version; names both.
            FormatError: foreign, truncated or damaged; names the file.
        """
        fields, payload = cls._read(path)
        return cls(**fields, content=payload)


@attrs.frozen(kw_only=True)
class Answer(Message):
    """The evaluator's encrypted classes.

    Attributes:
        blocks: the library's ciphertexts, one per run of the circuit.
    """

    blocks: tuple[bytes, ...] = attrs.field(repr=False)

    KIND = "fhe answer"
    CIPHERTEXTS = "blocks"

    def payload(self) -> bytes:
        """The blocks, each after its length."""
        return b"".join(_LENGTH.pack(len(block)) + block for block in self.blocks)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads an answer's file.

        Raises:
            FormatError: foreign, truncated or damaged; names the file.
        """
        fields, payload = cls._read(path)
        answer = cls(**fields, blocks=_blocks(payload, path))
        runs = -(-answer.queries // answer.parameters.block)
        if len(answer.blocks) != runs:
            raise FormatError(
                f"{path}: {len(answer.blocks)} ciphertexts for {answer.queries} queries,"
                f" expected {runs}; get it again"
            )
        return answer

    def library_values(self) -> list[Any]:
        """The library's ciphertext objects.

        Raises:
            FormatError: bytes that are no ciphertext.
        """
        fhe = concrete_fhe()
        try:
            return [fhe.Value.deserialize(block) for block in self.blocks]
        except RuntimeError as error:
            raise FormatError("answer: holds bytes that are no ciphertext; get it again") from error


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
