"""The one error of the protocol's parties."""

__all__ = ["ProtocolError"]


class ProtocolError(RuntimeError):
    """The other side said something that an honest one would not; this side stops.

    One line: who, in which step, what was found and what was expected.
    """
