"""What goes wrong in `fhe`, by whose hands the remedy is in.

Every message is one line: who or what, where, what was found, what was expected, what to do.
"""

__all__ = [
    "AnswerError",
    "ContributionError",
    "FormatError",
    "InputError",
    "LibraryError",
    "RetiredError",
    "SecretError",
    "StorageError",
    "VersionError",
]


class InputError(ValueError):
    """A value, file or argument handed in cannot be used; nothing was done with it."""


class FormatError(InputError):
    """Bytes are not what they claim to be: foreign, truncated, edited, or too long."""


class VersionError(FormatError):
    """A file of a format version this package does not read; the message names both versions."""


class ContributionError(InputError):
    """A contribution does not belong with the others; the message names its contributor."""


class RetiredError(InputError):
    """Keys that met a wrong answer, and are used no more."""


class SecretError(InputError):
    """A sealed secret key did not open. One message for every cause, on purpose."""

    MESSAGE = "the secret key did not open: wrong passphrase, or the file was changed"

    def __init__(self) -> None:
        super().__init__(self.MESSAGE)


class AnswerError(RuntimeError):
    """A decrypted answer is impossible or disagrees with a known one: trust none of its batch."""


class LibraryError(RuntimeError):
    """concrete-python does not behave as this package relies on; no ciphertext was made."""


class StorageError(RuntimeError):
    """The storage took no more (a full disk, a quota, a limit); no file was changed."""
