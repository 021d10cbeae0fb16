"""Errors that a user can mend, each one line: what, where, found, expected, what to do."""

__all__ = [
    "ClientError",
    "FeatureError",
    "FormatError",
    "InputError",
    "LabelError",
    "MissingExtraError",
    "PartitionError",
]


class InputError(ValueError):
    """Something given cannot be used; the command line prints it and exits with 2."""


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
