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
        _log()

        def joined(number: int) -> None:
            note(
                f'client "{owner.name}": {len(records)} records, node {number} of {address}; stop'
                " it with Ctrl+C"
            )

        with _told_to_stop() as ending:
            node = SuperNode(line, desk, owner.node, ending)
            try:
                node.run(joined)
            except ServiceError as error:
                # Kinds of it are this room's own.
                raise ServiceError(str(error)) from None
    return node.answered


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)


@contextmanager
def _told_to_stop() -> Iterator[Event]:
    """An event that SIGTERM and SIGINT set; a second SIGINT ends at once."""
    ending = Event()

    def stop(number: int, frame: Any) -> None:
        if ending.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        ending.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
