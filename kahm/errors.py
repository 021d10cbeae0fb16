"""Errors that a user of the head can mend."""


class InputError(ValueError):
    """The data given cannot be used; the message says what, where and what to do."""
