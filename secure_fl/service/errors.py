"""What goes wrong between the parties of the service."""

from secure_fl.errors import InputError

__all__ = ["InputError", "ServiceError"]


class ServiceError(RuntimeError):
    """Another party could not be reached, refused, or sent what it should not have sent."""
