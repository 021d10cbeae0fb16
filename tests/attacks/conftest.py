"""The small federation of the service's tests, with parties that cheat."""

from tests.secure_fl.service.conftest import made, other, workers_folder

__all__ = ["made", "other", "workers_folder"]
