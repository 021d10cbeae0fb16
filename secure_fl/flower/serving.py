"""Runs a node until it is told to stop."""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from secure_fl.errors import ServiceError
from secure_fl.flower.settings import Owner, read_config
from secure_fl.flower.superlink import Line
from secure_fl.flower.supernode import Desk, SuperNode


def serve_node(
    address: str,
    config: str,
    *,
    authority: Path | None,
    key: Path | None,
    insecure: bool,
    progress: Callable[[str, int, int], None],
    note: Callable[[str], None],
) -> int:
    """Answers a SuperLink until SIGTERM or SIGINT; a message at work is finished first.

    Args:
        address: HOST:PORT of the SuperLink.
        config: `--node-config`, see `read_config`.
        authority: PEM file of who signed the SuperLink's certificate; None trusts the system's.
        key: the node's private key; None makes one in its folder, which the node registers itself.
        insecure: plain HTTP.
        progress: while the records are read; see `secure_fl.progress`.
        note: receives remarks for people.

    Returns:
        The messages answered.

    Raises:
        InputError: a setting, a file, key or address cannot be used.
        ServiceError: the SuperLink refuses this node, or cannot be spoken with.
    """
    owner = Owner(read_config(config))
    desk = Desk(owner.state)
    with desk.held():
        secret, source = desk.own_key() if key is None else (key.read_bytes(), key)
        line = Line(
            address,
            secret,
            source=source,
            registers=key is None,
            authority=authority,
            insecure=insecure,
        )
        progress("reading the records", 0, 1)
        # What cannot be read is said now, not to the server when it asks.
        records = owner.records()
        progress("reading the records", 1, 1)
        log_to_standard_error()

        def joined(number: int) -> None:
            note(
                f'client "{owner.name}": {len(records)} records, node {number} of {address}; stop'
                " it with Ctrl+C"
            )

        ending = Event()
        node = SuperNode(line, desk, owner.node, ending)
        with told_to_stop(ending):
            try:
                node.run(joined)
            except ServiceError as error:
                # Kinds of it are this room's own.
                raise ServiceError(str(error)) from None
    return node.answered


def log_to_standard_error() -> None:
    """One line a message, without those of every request."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)


class Stopped(BaseException):
    """Told to stop while nothing was at work."""


@contextmanager
def told_to_stop(ending: Event, idle: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Has SIGTERM and SIGINT set an event; a second SIGINT ends at once.

    Args:
        ending: the event.
        idle: whether this thread only waits for others, so that it may be torn out of it: by
            `Stopped`, which ends the block.
    """

    def stop(number: int, frame: Any) -> None:
        if ending.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        ending.set()
        if idle():
            raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except Stopped:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
