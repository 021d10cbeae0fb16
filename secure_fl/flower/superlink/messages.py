"""Messages of Flower, and securefl's bytes in them."""

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from flwr.app import Message

RECORD, FIELD = "securefl", "message"
"""Where securefl's bytes are in a message of Flower."""
ARRIVING = 30.0
"""Seconds that the rest of a message may be behind its head."""


@frozen
class Arrived:
    """A message without its content.

    Attributes:
        head: of Flower's message, serialised.
        tree: of its objects, serialised.
        at: when it came, seconds since 1970 by this machine's clock.
    """

    head: bytes
    tree: bytes
    at: float

    @property
    def _metadata(self) -> Any:
        from flwr.proto.message_pb2 import Message as Head

        return Head.FromString(self.head).metadata

    @property
    def number(self) -> str:
        """Digest of the whole message, which is its name."""
        return str(self._metadata.message_id)

    @property
    def run(self) -> int:
        """Of which run."""
        return int(self._metadata.run_id)

    @property
    def node(self) -> int:
        """To which node."""
        return int(self._metadata.dst_node_id)


def content_of(message: "Message") -> bytes | None:
    """Securefl's bytes in a message of Flower; None where it has none."""
    try:
        found = message.content[RECORD][FIELD]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return found if isinstance(found, bytes) else None


def new_content(data: bytes) -> Any:
    """The content of a message of Flower that carries these bytes."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({RECORD: ConfigRecord({FIELD: data})})


def inflate(number: str, contents: dict[str, bytes]) -> Any:
    """Flower's message of its objects; None where they make none."""
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
    from google.protobuf.message import DecodeError

    try:
        return inflate_object_from_contents(number, contents)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError, DecodeError):
        return None


def reply_to(arrived: Arrived, answer: bytes) -> Any:
    """The reply, the same however often it is made: its name is a digest of all of it."""
    from flwr.app import Message
    from flwr.common.serde import message_from_proto
    from flwr.proto.message_pb2 import Message as Head

    asked = message_from_proto(Head.FromString(arrived.head))
    made = Message(new_content(answer), reply_to=asked)
    told, times = made.metadata, asked.metadata
    told.__dict__["_created_at"] = arrived.at
    told.__dict__["_ttl"] = times.created_at + times.ttl - arrived.at
    told.__dict__["_message_id"] = made.object_id
    return made
