"""Requests and answers between the server and its clients' nodes, whatever carries them."""

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from secure_fl.errors import FederationError
from secure_fl.federation import wire

log = logging.getLogger(__name__)

REQUEST, ANSWER = "federation request", "federation answer"


def dropped(kind: str) -> bytes:
    """The answer of a node that does not do what it is asked, and of what kind the reason is."""
    return wire.encode({"dropped": kind}, kind=ANSWER)


class Transport(Protocol):
    """Carries messages to clients by name."""

    def __call__(self, requests: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """The answers that came within so many seconds; the others' are dropped."""


class Requester:
    """Requests and answers in the wire encoding."""

    def __init__(self, exchange: Transport, seconds: float) -> None:
        self._exchange = exchange
        self._seconds = seconds

    def request(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Answers by client, in the order of the requests; without those that are lost."""
        # Most requests of a call are one and the same object.
        encoded: dict[int, bytes] = {}
        for each in requests.values():
            if id(each) not in encoded:
                encoded[id(each)] = wire.encode(dict(each), kind=REQUEST)
        messages = {name: encoded[id(each)] for name, each in requests.items()}
        found = self._exchange(messages, self._seconds)
        answers = {n: self._read(n, found[n]) for n in requests if n in found}
        for name in requests:
            if name not in found:
                log.warning('client "%s": no answer; it counts as dropped out', name)
        return {name: each for name, each in answers.items() if each is not None}

    def _read(self, name: str, data: bytes) -> dict[str, Any] | None:
        from fhe.errors import FormatError, VersionError

        try:
            answer = wire.decode(data, kind=ANSWER, source=f'client "{name}"')
        except (FederationError, FormatError, VersionError) as error:
            log.warning("%s; it counts as dropped out", error)
            return None
        if not isinstance(answer, dict) or "dropped" in answer:
            kind = answer.get("dropped") if isinstance(answer, dict) else "an answer of no kind"
            log.warning('client "%s": %s, see its log; it counts as dropped out', name, kind)
            return None
        return answer
