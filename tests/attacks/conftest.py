"""The small federation of the service's tests, with parties that cheat."""

from tests.secure_fl.service.conftest import made, workers_folder

__all__ = ["made", "workers_folder"]
