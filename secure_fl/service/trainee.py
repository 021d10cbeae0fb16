"""A client's node that a training server of the service's own channel asks, over and over."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from secure_fl.errors import AwayError, FederationError, InputError, ServiceError
from secure_fl.federation import wire
from secure_fl.flower.app import answer_of
from secure_fl.flower.descriptions import as_array
from secure_fl.flower.node import Node
from secure_fl.flower.serving import log_to_standard_error, told_to_stop
from secure_fl.flower.settings import Owner, read_config
from secure_fl.flower.supernode import Desk
from secure_fl.service.channel import Channel
from secure_fl.service.coordinator import FETCH, MESSAGE, SERVER, UNFIT, read_circle, read_party

log = logging.getLogger("securefl.service")

_PAUSE = 2.0
"""Seconds between two calls of a server that is away; between runs there is none."""


def read_message(content: bytes) -> tuple[str, dict[str, Any], bytes]:
    """Number, settings of the run, and request of a message.

    Raises:
        ServiceError: it holds something else.
    """
    from fhe.errors import FormatError, VersionError

    try:
        told = wire.decode(content, kind=MESSAGE, source="server")
        found = str(told["number"]), dict(told["settings"]), told["request"].tobytes()
    except (FederationError, FormatError, VersionError, *UNFIT) as error:
        raise ServiceError(f"server: no message of this version ({type(error).__name__})") from None
    return found


class Trainee:
    """Answers a training server until it is told to stop.

    Args:
        channel: to the server.
        make: the node of a run, of the run's settings.
        ending: set to stop; the message at work is answered first.

    Attributes:
        waiting: for the server; what comes meanwhile comes again if this is broken off.
        answered: messages so far.
    """

    def __init__(
        self, channel: Channel, make: Callable[[Mapping[str, Any]], Node], ending: Event
    ) -> None:
        self._channel, self._make, self._ending = channel, make, ending
        self._run: tuple[str, Node | None] = "", None
        self.waiting = False
        self.answered = 0

    def run(self) -> None:
        """Fetches and answers.

        Raises:
            ServiceError: the server refuses this client, or its responses are not its own.
        """
        last, answer, away = "", b"", False
        while not self._ending.is_set():
            body = wire.encode({"last": last, "answer": as_array(answer)}, kind=FETCH)
            try:
                self.waiting = True
                found = self._channel.expect("POST", "/training", body, what="the next message")
                self.waiting = False
            except AwayError as error:
                if not away:
                    log.warning("%s Trying again until it is there", error)
                away = True
                self._ending.wait(_PAUSE)
                continue
            away = False
            last, answer = self._answered(found)

    def _answered(self, content: bytes) -> tuple[str, bytes]:
        """The number of a message, and the answer; both empty where there was none."""
        if not content:
            return "", b""
        number, settings, request = read_message(content)
        answer = answer_of(lambda: self._node(settings), request, number)
        self.answered += 1
        log.info("a message answered")
        return number, answer

    def _node(self, settings: Mapping[str, Any]) -> Node:
        """The node of a run; kept, with its records, while its settings are the same."""
        key = json.dumps(settings, sort_keys=True)
        if self._run[0] != key or self._run[1] is None:
            self._run = key, self._make(settings)
        found = self._run[1]
        assert found is not None
        return found


def serve_trainee(
    url: str,
    config: str,
    *,
    authority: Path | None,
    insecure: bool,
    proxy: str | None,
    note: Callable[[str], None],
) -> int:
    """Answers a training server until SIGTERM or SIGINT; a message at work is finished first.

    Args:
        url: of the server.
        config: `--node-config`, see `secure_fl.flower.settings.read_config`; identity and
            directory are needed, and the directory names the server.
        authority: PEM file of who signed the server's certificate; None trusts the system's.
        insecure: allow plain HTTP beyond loopback.
        proxy: to call through.
        note: receives remarks for people.

    Returns:
        The messages answered.

    Raises:
        InputError: a setting, a file, key or address cannot be used.
        ServiceError: the server refuses this client, or its responses are not its own.
    """
    own = read_config(config)
    owner = Owner(own)
    for needed in ("identity", "directory"):
        if needed not in own:
            raise InputError(f"--node-config {needed}: missing; messages are signed")
    circle = read_circle(Path(str(own["directory"])))
    member = read_party(Path(str(own["identity"])), owner.name, circle)
    records = owner.records()
    with Desk(owner.state).held():
        channel = Channel(
            *(url, member, circle),
            recipient=SERVER,
            authority=authority,
            insecure=insecure,
            patience=0.0,
            proxy=proxy,
        )
        log_to_standard_error()
        note(
            f'client "{owner.name}": {len(records)} records, calls {url} (members'
            f" {circle.fingerprint}); stop it with Ctrl+C"
        )
        ending = Event()
        trainee = Trainee(channel, owner.node, ending)
        with channel, told_to_stop(ending, idle=lambda: trainee.waiting):
            trainee.run()
    return trainee.answered
