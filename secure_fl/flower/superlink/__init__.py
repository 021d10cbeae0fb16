"""A SuperLink as nodes and a run's server meet it: all private names of flwr 1.42 that are used.

Flower's own node is a loop of waits around a process for each message; what it says to a SuperLink
(`flwr.supernode.fleet_http_connection`) is said here without them. Nothing of an app is unpacked or
run: its settings are read as data, by `secure_fl.flower.supernode`.
"""

from secure_fl.flower.superlink.answers import Answers
from secure_fl.flower.superlink.line import Line
from secure_fl.flower.superlink.messages import (
    Arrived,
    content_of,
    new_content,
)
from secure_fl.flower.superlink.refusals import (
    AHEAD,
    BEHIND,
    ForgottenError,
    RunOverError,
)
from secure_fl.flower.superlink.setup import check_flwr, private_key

__all__ = [
    "AHEAD",
    "BEHIND",
    "Answers",
    "Arrived",
    "ForgottenError",
    "Line",
    "RunOverError",
    "check_flwr",
    "content_of",
    "new_content",
    "private_key",
]
