"""What the roles of a batched rule send each other: residues, and the facts of `fhe.messages`."""

from pathlib import Path
from typing import Any, ClassVar, Self

import attrs

from fhe.envelope import Envelope, Payload, head_of, read_in_parts
from fhe.errors import FormatError
from fhe.long_file import write_in_parts
from fhe.messages import Message, Sent

from .packing import packed_bytes
from .parameters import BatchedParameters

_PART = 1 << 20


def bit_bytes(parameters: BatchedParameters, level: int) -> int:
    """Bytes of a ciphertext at a level; those of a lower one are its first."""
    return packed_bytes(parameters.chain.primes(level), parameters.degree, 2)


def set_bytes(parameters: BatchedParameters) -> int:
    """Bytes of a contributor's ciphertexts of one set of queries."""
    rule = parameters.circuit
    bits = range(rule.layout.ciphertexts)
    return sum(bit_bytes(parameters, rule.level_of(bit)) for bit in bits)


def contribution_bytes(parameters: BatchedParameters, queries: int) -> int:
    """Bytes of a contribution's ciphertexts to so many queries."""
    return parameters.sets(queries) * set_bytes(parameters)


def place(parameters: BatchedParameters, number: int, bit: int) -> int:
    """Where the ciphertext of a bit begins in set `number` of a contribution."""
    rule = parameters.circuit
    before = sum(bit_bytes(parameters, rule.level_of(each)) for each in range(bit))
    return number * set_bytes(parameters) + before


@attrs.frozen(kw_only=True)
class BatchedContribution(Sent):
    """One contributor's encrypted thermometers.

    Attributes:
        content: set by set and bit by bit the residues, packed; read from its file in parts.
    """

    content: Payload = attrs.field(repr=False)

    CIPHERTEXTS = "content"
    PARAMETERS: ClassVar[type[Any]] = BatchedParameters

    def payload(self) -> bytes:
        """The residues."""
        return self.content.read(0, self.content.size)

    def save(self, path: Path) -> int:
        """Writes the message whole or not at all, a part in memory at a time; returns its bytes."""
        size = self.content.size
        parts = (self.content.read(start, _PART) for start in range(0, size, _PART))
        return write_in_parts(path, self.KIND, self.header(), parts, size)

    def file(self) -> Path | None:
        """The file that holds this very message; None where there is none."""
        content = self.content
        head = head_of(self.KIND, self.header(), content.size)
        if isinstance(content.source, bytes) or content.start != len(head):
            return None
        same = Payload(content.source, 0, len(head)).read(0, len(head)) == head
        return content.source if same else None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a message's file; its ciphertexts stay there until they are used.

        Raises:
            VersionError: of another version; names both.
            FormatError: foreign, truncated or damaged; names the file.
        """
        kind, header, payload = read_in_parts(path, cls.KIND)
        return cls(**cls._facts(Envelope(kind, header, b""), str(path)), content=payload)

    @classmethod
    def _parse(cls, envelope: Envelope, source: str) -> Self:
        content = Payload(envelope.payload, 0, len(envelope.payload))
        return cls(**cls._facts(envelope, source), content=content)


@attrs.frozen(kw_only=True)
class BatchedAnswer(Message):
    """The evaluator's encrypted classes.

    Attributes:
        blocks: packed residues, a ciphertext a set.
    """

    blocks: tuple[bytes, ...] = attrs.field(repr=False)

    KIND = "fhe answer"
    CIPHERTEXTS = "blocks"
    PARAMETERS: ClassVar[type[Any]] = BatchedParameters

    def payload(self) -> bytes:
        """The residues of all sets."""
        return b"".join(self.blocks)

    @classmethod
    def _parse(cls, envelope: Envelope, source: str) -> Self:
        fields = cls._facts(envelope, source)
        parameters, payload = fields["parameters"], envelope.payload
        size, sets = bit_bytes(parameters, 0), parameters.sets(fields["queries"])
        if len(payload) != size * sets:
            raise FormatError(
                f"{source}: {len(payload)} bytes of ciphertext, expected {size * sets};"
                " get it again"
            )
        blocks = tuple(payload[i : i + size] for i in range(0, len(payload), size))
        return cls(**fields, blocks=blocks)
