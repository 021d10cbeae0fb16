"""The small federation of the service's tests, with parties that cheat."""

from tests.secure_fl.service.conftest import made

__all__ = ["made"]
