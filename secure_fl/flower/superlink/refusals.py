"""Why a SuperLink did not do what a node asked of it."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from secure_fl.errors import AwayError, ServiceError
from secure_fl.flower.superlink.setup import VERSIONS

if TYPE_CHECKING:
    import httpx

TAKEN, NO_REGISTRATION, INACTIVE, _OVER = 23, 2001, 2004, 2007
"""Flower's codes (`flwr.supercore.error.ApiErrorCode`)."""
AHEAD, BEHIND = 5.0, 300.0
"""Seconds that a node's clock may be off where its key is checked."""


class RunOverError(ServiceError):
    """The run has ended, or the message is not there any more."""


class ForgottenError(ServiceError):
    """The SuperLink does not know this node, as after a restart without a database."""


class RefusedError(ServiceError):
    """The SuperLink refused with one of Flower's codes."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def refusal(name: str, response: "httpx.Response") -> ServiceError:
    """What a refusal means.

    Args:
        name: of the SuperLink, for messages.
        response: not of success.
    """
    from flwr.supercore.error import FlowerError

    status, told = response.status_code, FlowerError.from_json(response.text)
    if told is not None and told.code == _OVER:
        return RunOverError(f"{name}: the run is over")
    if told is not None:
        return RefusedError(f"{name}: refused ({told.code}): {told.message}", told.code)
    if status == 401:
        return ForgottenError(f"{name}: does not know this node{_clocks(response)}")
    if status in (408, 429) or status >= 500:
        return AwayError(f"{name}: answers {status} for now")
    return ServiceError(f"{name}: answers {status}; is it a SuperLink of {VERSIONS}*?")


def _clocks(response: "httpx.Response") -> str:
    """What a refused key may owe to a clock."""
    try:
        theirs = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError):
        return ""
    ahead = (datetime.now(UTC) - theirs).total_seconds()
    if -BEHIND < ahead < AHEAD + 1:
        return ""
    side = "ahead of" if ahead > 0 else "behind"
    return f"; this machine's clock is {abs(ahead):.0f} s {side} the SuperLink's, mend it"
