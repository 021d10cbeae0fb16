"""`securefl flower node`: a SuperNode of one process that runs securefl's own installed code.

What a server ships is never unpacked or run: of an app the settings are read, as data, and what
they may ask for is the owner's to say (`secure_fl.flower.settings`). A message is done once: its
head is on the disk before its content is fetched, its answer before it is sent, and a node that was
killed between the two sends what it finds there, or says that it was interrupted.
"""

import contextlib
import fcntl
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from fhe.envelope import PRIVATE, write_atomic
from secure_fl.crypto.party import new_node_key
from secure_fl.errors import AwayError, InputError
from secure_fl.federation import wire
from secure_fl.files import make_folder
from secure_fl.flower.app import answer_of
from secure_fl.flower.app_settings import settings_of_app
from secure_fl.flower.descriptions import as_array
from secure_fl.flower.node import Node
from secure_fl.flower.pace import Pace
from secure_fl.flower.superlink import (
    Arrived,
    ForgottenError,
    Line,
    RunOverError,
)

log = logging.getLogger(__name__)

_KEPT = "supernode"
_RUNS = 4
"""Runs whose nodes are kept ready; each holds its records as its plan wants them."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0
"""Seconds between two attempts to reach a SuperLink that is away."""


class Desk:
    """What a supernode keeps on its disk: its number at the SuperLink, and the message at work.

    Args:
        folder: of the node's state; made if absent, mode 0700.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps a second supernode out.

        Raises:
            InputError: one runs already.
        """
        make_folder(self._folder, mode=0o700)
        with (self._folder / "supernode.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"{self._folder}: a node works in this folder already; end it, or give this one"
                    " a folder of its own (--node-config state)"
                ) from None
            yield

    def own_key(self) -> tuple[bytes, Path]:
        """The key of a node that registers itself, made once, and its file."""
        make_folder(self._folder, mode=0o700)
        path = self._folder / "supernode.key"
        if not path.exists():
            write_atomic(path, new_node_key(), mode=PRIVATE)
        return path.read_bytes(), path

    def load(self) -> tuple[int, Arrived | None]:
        """Number at the SuperLink, 0 before there was one, and the message at work."""
        file = self._folder / "supernode.state"
        if not file.exists():
            return 0, None
        found = wire.decode(file.read_bytes(), kind=_KEPT, source=str(file))
        if found["head"] is None:
            return int(found["node"]), None
        head, tree = found["head"].tobytes(), found["tree"].tobytes()
        return int(found["node"]), Arrived(head, tree, found["at"])

    def keep(self, node: int, arrived: Arrived | None) -> None:
        """Writes both."""
        kept: dict[str, Any] = {"node": str(node), "head": None, "tree": None, "at": 0.0}
        if arrived is not None:
            kept |= {"head": as_array(arrived.head), "tree": as_array(arrived.tree)}
            kept |= {"at": arrived.at}
        write_atomic(self._folder / "supernode.state", wire.encode(kept, kind=_KEPT), mode=PRIVATE)


class SuperNode:
    """Answers a SuperLink's messages until it is told to stop.

    Args:
        line: to the SuperLink.
        desk: what is kept; held by the caller.
        make: the node of a run, of the run's settings.
        ending: set to stop; the message at work is answered first.
    """

    def __init__(
        self,
        line: Line,
        desk: Desk,
        make: Callable[[Mapping[str, Any]], Node],
        ending: Event,
    ) -> None:
        self._line, self._desk, self._make, self._ending = line, desk, make, ending
        self._nodes: dict[int, Node] = {}
        self._pace = Pace()
        self.answered = 0

    def run(self, joined: Callable[[int], None] = lambda number: None) -> None:
        """Joins and answers; returns when it is told to stop.

        Args:
            joined: called with this node's number whenever the SuperLink has given one.

        Raises:
            ServiceError: the SuperLink refuses this node, or cannot be spoken with.
        """
        try:
            before, left = self._desk.load()
            self._join(before, joined)
            if left is not None and left.node == self._line.node:
                log.info("run %d: going on with the message that was at work", left.run)
                self._do(left, joined)
            waiting, failed = time.monotonic(), 0.0
            while not self._ending.is_set():
                try:
                    arrived = self._line.look()
                    failed = 0.0
                except AwayError as away:
                    failed = self._wait_out(failed, away)
                    continue
                except ForgottenError as forgotten:
                    log.warning("%s; joining anew", forgotten)
                    self._join(self._line.node, joined)
                    continue
                waited = time.monotonic() - waiting
                if arrived is None:
                    self._ending.wait(self._pace.pause(waited))
                    continue
                self._pace.came(waited)
                self._desk.keep(self._line.node, arrived)
                self._do(arrived, joined)
                waiting = time.monotonic()
        finally:
            self._line.leave()

    def _join(self, before: int, joined: Callable[[int], None]) -> None:
        failed = 0.0
        while not self._ending.is_set():
            try:
                number = self._line.join(before)
            except AwayError as away:
                failed = self._wait_out(failed, away)
                continue
            if number != before:
                # A message of before was to another node, whose answer this one cannot send.
                self._desk.keep(number, None)
            joined(number)
            return

    def _wait_out(self, failed: float, away: AwayError) -> float:
        """Waits longer each time; says it once."""
        if failed == 0:
            log.warning("%s Trying again until it is there", away)
        pause = min(max(2 * failed, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._ending.wait(pause)
        return pause

    def _do(self, arrived: Arrived, joined: Callable[[int], None]) -> None:
        """Answers a message, as often as it takes until the SuperLink has the answer."""
        began, failed = time.monotonic(), 0.0
        answer: bytes | None = None
        while answer is not None or not self._ending.is_set():
            try:
                if answer is None:
                    answer = self._answer(arrived)
                seconds = time.monotonic() - began
                self._line.answer(arrived, answer, seconds)
            except AwayError as away:
                if self._ending.is_set():
                    # The next start sends it.
                    return
                failed = self._wait_out(failed, away)
                continue
            except RunOverError as over:
                log.info("run %d: %s; its message counts as dropped out", arrived.run, over)
            except ForgottenError as forgotten:
                log.warning("%s; the message is lost with it, joining anew", forgotten)
                self._join(self._line.node, joined)
            else:
                self.answered += 1
                log.info("run %d: a message answered in %.3f s", arrived.run, seconds)
            return

    def _answer(self, arrived: Arrived) -> bytes:
        app = self._app(arrived.run)
        try:
            request = self._line.request(arrived)
        except RunOverError:
            # It was fetched before this process was killed, or its sender has given it up.
            kept = self._node(arrived.run, *app).kept_answer(arrived.number)
            if kept is None:
                raise
            return kept
        return answer_of(lambda: self._node(arrived.run, *app), request, arrived.number)

    def _app(self, run: int) -> tuple[bytes, Mapping[str, Any]]:
        return (b"", {}) if run in self._nodes else self._line.app(run)

    def _node(self, run: int, app: bytes, given: Mapping[str, Any]) -> Node:
        """The node of a run; kept, with its records."""
        if run not in self._nodes:
            node = self._make(settings_of_app(app, given))
            while len(self._nodes) >= _RUNS:
                del self._nodes[next(iter(self._nodes))]
            self._nodes[run] = node
        return self._nodes[run]
