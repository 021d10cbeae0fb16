"""What the roles send each other: contributions to the evaluator, an answer to the querier."""

from pathlib import Path
from typing import Any, ClassVar, Self

import attrs

from .envelope import Envelope, pack, read_envelope, unpack, write_atomic
from .errors import FormatError, InputError, VersionError
from .parameters import RuleParameters


@attrs.frozen(kw_only=True)
class Message:
    """The facts that say where ciphertexts belong.

    Attributes:
        parameters: of the rule, `PARAMETERS`.
        key: fingerprint of the evaluation keys that go with them.
        federation: fingerprint of the federation's manifest.
        batch: name of the query batch, drawn by the querier; no batch is answered twice.
        queries: number of queries, at least 1.
    """

    parameters: Any
    key: str
    federation: str
    batch: str
    queries: int

    KIND = "fhe message"
    VERSION = 1
    CIPHERTEXTS = ""
    PARAMETERS: ClassVar[type[Any]] = RuleParameters

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
    def load(cls, path: Path) -> Self:
        """Reads a message's file.

        Raises:
            VersionError: of another version; names both.
            FormatError: foreign, truncated or damaged; names the file.
        """
        return cls._parse(read_envelope(path, cls.KIND), str(path))

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> Self:
        """Reads what `to_bytes` made.

        Args:
            data: the envelope.
            source: whose it is, for messages.

        Raises:
            VersionError, FormatError: as `load`; names the source.
        """
        return cls._parse(unpack(data, cls.KIND, source=source), source)

    @classmethod
    def _parse(cls, envelope: Envelope, source: str) -> Self:
        raise NotImplementedError

    @classmethod
    def _facts(cls, envelope: Envelope, source: str) -> dict[str, Any]:
        """The members but the ciphertexts, checked."""
        fields = dict(envelope.header)
        version = fields.pop("version", 1)
        if version != cls.VERSION:
            raise VersionError(
                f"{source}: a {cls.KIND[4:]} of version {version!s:.10}, this package reads version"
                f" {cls.VERSION}; make it again with this release"
            )
        expected = {field.name for field in attrs.fields(cls)} - {cls.CIPHERTEXTS}
        if set(fields) != expected:
            raise FormatError(f"{source}: header members are missing or unknown; get it again")
        fields["parameters"] = cls.PARAMETERS.from_json(fields["parameters"], source=source)
        for name, value in fields.items():
            if name != "parameters" and type(value) is not _TYPES[name]:
                raise FormatError(f"{source}: header member {name} is of the wrong type")
        if fields["queries"] < 1:
            raise FormatError(f"{source}: {fields['queries']} queries; get it again")
        return fields


_TYPES: dict[str, type] = {
    "key": str,
    "federation": str,
    "batch": str,
    "queries": int,
    "contributor": int,
    "name": str,
    "public": str,
}


@attrs.frozen(kw_only=True)
class Sent(Message):
    """What any engine's contribution says beside its ciphertexts.

    Attributes:
        contributor: its position, 0 to Q - 1.
        name: its name, for messages.
        public: fingerprint of the public key that the ciphertexts are under.
    """

    contributor: int
    name: str
    public: str

    KIND = "fhe contribution"


@attrs.frozen(kw_only=True)
class Contribution(Sent):
    """One contributor's encrypted integers.

    Attributes:
        content: words of the ring ciphertexts, as `encrypt_digits` gives them.
    """

    content: bytes = attrs.field(repr=False)

    # Version 1 held ciphertexts made with the secret key, version 2 of digits in bases 2 and 4.
    VERSION = 3
    CIPHERTEXTS = "content"

    def payload(self) -> bytes:
        """The ring ciphertexts."""
        return self.content

    @classmethod
    def _parse(cls, envelope: Envelope, source: str) -> Self:
        return cls(**cls._facts(envelope, source), content=envelope.payload)


@attrs.frozen(kw_only=True)
class Answer(Message):
    """The evaluator's encrypted classes.

    Attributes:
        content: words of the LWE ciphertexts of the last function's results, in their order, and
            nothing else: what describes them to the library is the reader's own.
    """

    content: bytes = attrs.field(repr=False)

    KIND = "fhe answer"
    # Version 1 held the library's objects, whose headers an evaluator could choose.
    VERSION = 2
    CIPHERTEXTS = "content"

    def payload(self) -> bytes:
        """The words."""
        return self.content

    @classmethod
    def _parse(cls, envelope: Envelope, source: str) -> Self:
        return cls(**cls._facts(envelope, source), content=envelope.payload)


def check_span(span: range, queries: int) -> None:
    """Refuses what are no queries of a batch that follow each other.

    Raises:
        InputError: so.
    """
    if span.step != 1 or not 0 <= span.start < span.stop <= queries:
        raise InputError(f"slice: queries {span.start} to {span.stop} of a batch of {queries}")
