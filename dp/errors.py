"""Errors of the private release, each one line that says what to do."""


class InputError(ValueError):
    """An argument cannot be used; the message says what, where and what to do."""


class BudgetError(RuntimeError):
    """The event would exceed the budget of the ledger; no noise was drawn."""


class LedgerError(InputError):
    """The ledger's file is damaged or was edited; nothing was added to it."""


class StorageError(RuntimeError):
    """The storage took no more (a full disk, a quota, a limit); nothing was changed."""
