"""Errors of a federation's rounds, each one line that says who, what was found and what to do."""

from secure_fl.errors import InputError

__all__ = ["DivergedError", "FederationError", "PrivacyError", "QuorumError", "StepError"]


class FederationError(InputError):
    """The handle was set up or called in a way that cannot work."""


class PrivacyError(FederationError):
    """What was asked would show the server more than a sum, or cost more than the budget."""


class QuorumError(RuntimeError):
    """Too few clients are left in a round; nothing of it was aggregated or revealed."""


class StepError(RuntimeError):
    """A client's step failed; the message names the client, the step and the cause."""


class DivergedError(RuntimeError):
    """A trainer's model is not finite any more, or has left the stated bound."""
