"""Every error that a user meets, each one line: what, where, found, expected, what to do.

Two branches: `InputError` for what was handed in and can be mended there, `WorkError` for work that
failed although it was asked for rightly. The command line exits with 2 and 1.
"""

__all__ = [
    "AwayError",
    "ClientError",
    "DivergedError",
    "FeatureError",
    "FederationError",
    "FormatError",
    "InputError",
    "LabelError",
    "MissingExtraError",
    "PartitionError",
    "PrivacyError",
    "ProtocolError",
    "QuorumError",
    "ServiceError",
    "StepError",
    "WorkError",
]


_LONGEST = 1000
"""Characters of a message; a label or a name from a hostile file may be of any length."""


class InputError(ValueError):
    """Something given cannot be used; the command line prints it and exits with 2.

    The message is one line of printable characters, whatever was quoted in it: a label or a
    column's name from a hostile file may hold line ends or terminal escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_one_line(message))


class FormatError(InputError):
    """A file is foreign, truncated, edited, too large, or breaks its format's rules."""


class FeatureError(InputError):
    """Features are not numbers, not finite, or another number of them than expected."""


class LabelError(InputError):
    """A label is unknown to the class list, or the labels cannot make a class list."""


class ClientError(InputError):
    """A client's name cannot be used or is used twice, or the client holds no records."""


class PartitionError(InputError):
    """Records cannot be divided over clients as asked."""


class MissingExtraError(InputError):
    """An optional dependency is not installed; the message names the extra."""


class FederationError(InputError):
    """A federation's handle was set up or called in a way that cannot work."""


class PrivacyError(FederationError):
    """What was asked would show the server more than a sum, or cost more than the budget."""


class WorkError(RuntimeError):
    """Work that was asked for rightly and failed; the command line prints it and exits with 1."""

    def __init__(self, message: str) -> None:
        super().__init__(_one_line(message))


class QuorumError(WorkError):
    """Too few clients are left in a round; nothing of it was aggregated or revealed."""


class StepError(WorkError):
    """A client's step failed; the message names the client, the step and the cause."""


class DivergedError(WorkError):
    """A trainer's model is not finite any more, or has left the stated bound."""


class ProtocolError(WorkError):
    """The other side of a secure sum said something that an honest one would not; this side stops.

    One line: who, in which step, what was found and what was expected.
    """


class ServiceError(WorkError):
    """Another party could not be reached, refused, or sent what it should not have sent."""


class AwayError(ServiceError):
    """Another party cannot be reached for now; trying again later may help."""


def whose(client: str) -> str:
    """Whose records a message is about: a client's, or nobody's in particular ("")."""
    return f'client "{client}"' if client else "records"


def _one_line(message: str) -> str:
    if len(message) > _LONGEST:
        # The end says what to do.
        message = f"{message[: _LONGEST - 300]} ... {message[-290:]}"
    if message.isprintable():
        return message
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in message
    )
