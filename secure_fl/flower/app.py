"""The two apps of a Flower run: a server that trains, and clients that answer for their nodes.

Flower carries the messages, knows which nodes are there, and offers TLS and node authentication;
what is in the messages is `secure_fl.flower`'s. Its client processes are short-lived: what a
client keeps lies in the folder that its node's owner names.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secure_fl.errors import InputError
from secure_fl.federation import wire
from secure_fl.flower.node import Node
from secure_fl.flower.pace import Pace
from secure_fl.flower.superlink import Answers, content_of, new_content
from secure_fl.flower.transport import ANSWER, REQUEST, dropped

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

log = logging.getLogger(__name__)

_POLL = 0.2
"""Seconds between two looks for nodes."""
_LONGEST_PAUSE = 1.0
"""Seconds between two looks for answers, at most: one server looks, whoever waits."""
_LONGEST_NAME = 60.0
"""Seconds that a node has to say its name."""
_QUESTIONS = 3
"""Times that a node is asked for its name; one that is no client's must not hold up every sum."""


class GridTransport:
    """Carries messages over Flower's grid; see `secure_fl.flower.transport.Transport`.

    Nodes join when they come: whoever is new is asked for its name before the next messages go
    out. A node that comes back under its name takes its old place.

    Args:
        grid: of the ServerApp.
        names: of all clients; others are not used.
        wait: seconds that the first messages wait for all of them to be there.
    """

    def __init__(self, grid: "Grid", names: Sequence[str], wait: float = 60.0) -> None:
        self._grid = grid
        self._names = frozenset(names)
        self._wait = wait
        self._left: dict[int, int] = {}
        """Questions left of the nodes that are there."""
        self._homes: dict[str, int] = {}
        self._answers = Answers(grid)
        self._pace = Pace(most=_LONGEST_PAUSE)

    def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        """The answers that came within so many seconds."""
        self._find_nodes()
        homes = {self._homes[name]: name for name in requests if name in self._homes}
        content = {node: requests[name] for node, name in homes.items()}
        return {homes[node]: answer for node, answer in self._carry(content, seconds)}

    def _find_nodes(self) -> None:
        """Asks new nodes for their names; the first time, waits until all clients are there."""
        end = time.monotonic() + self._wait
        self._wait = 0.0
        while True:
            there = set(self._grid.get_node_ids())
            self._homes = {name: node for name, node in self._homes.items() if node in there}
            self._left = {node: self._left.get(node, _QUESTIONS) for node in there}
            silent = [node for node in there if self._left[node] > 0]
            if silent:
                self._learn(silent)
            if len(self._homes) == len(self._names) or time.monotonic() >= end:
                return
            time.sleep(_POLL)

    def _learn(self, nodes: Iterable[int]) -> None:
        question = wire.encode({"do": "name"}, kind=REQUEST)
        for node in nodes:
            self._left[node] -= 1
        for node, answer in self._carry(dict.fromkeys(nodes, question), _LONGEST_NAME):
            self._left[node] = 0
            try:
                name = wire.decode(answer, kind=ANSWER, source=f"node {node}").get("name")
            except (InputError, ValueError, AttributeError) as error:
                log.warning("node %d: %s; not used", node, error)
                continue
            if name in self._names:
                self._homes[name] = node
                log.info('client "%s" is node %d', name, node)
            else:
                log.warning("node %d: says it is %r, no client of this run; not used", node, name)

    def _carry(self, content: Mapping[int, bytes], seconds: float) -> list[tuple[int, bytes]]:
        from flwr.app import Message

        nodes = list(content)
        if not nodes:
            return []
        messages = [
            Message(new_content(content[node]), node, "query", ttl=seconds) for node in nodes
        ]
        pushed = zip(self._grid.push_messages(messages), nodes, strict=True)
        waiting = {number: node for number, node in pushed if number}
        began, waited = time.monotonic(), 0.0
        found: list[tuple[int, bytes]] = []
        while waiting:
            waited = time.monotonic() - began
            time.sleep(min(self._pace.pause(waited), max(0.0, seconds - waited)))
            for asked, reply in self._answers.look(list(waiting)):
                node = waiting.pop(asked)
                answer = _answer_in(reply, node)
                if answer is not None:
                    found.append((node, answer))
            waited = time.monotonic() - began
            if waited >= seconds:
                return found
        self._pace.came(waited)
        return found


def _answer_in(reply: "Message | None", node: int) -> bytes | None:
    if reply is None or reply.has_error():
        reason = "its answer did not come whole" if reply is None else reply.error.reason
        log.warning("node %d: %s; no answer", node, reason)
        return None
    return content_of(reply)


def make_client_app(
    make: Callable[[Mapping[str, Any], Mapping[str, Any]], Node] | None = None,
) -> "ClientApp":
    """The app that every SuperNode runs; its `--node-config` says whose records it answers for.

    Args:
        make: the node, of the SuperNode's own configuration and the run's; by default
            `secure_fl.flower.settings.make_node`. Whatever it imports is what a server may ask.
    """
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        from secure_fl.flower.settings import make_node

        own, run = context.node_config, context.run_config
        number = str(message.metadata.message_id)
        answer = answer_of(lambda: (make or make_node)(own, run), content_of(message), number)
        return Message(new_content(answer), reply_to=message)

    return app


def answer_of(make: Callable[[], Node], request: bytes | None, message: str = "") -> bytes:
    """A node's answer, or that it has none and of what kind the error was.

    Flower by itself would send the error's text, which may name files or quote records.

    Args:
        make: the node.
        request: None where the message held none of securefl's.
        message: name of what carried it; see `Node.answer`.
    """
    try:
        if request is None:
            raise InputError("message: not one of securefl's")
        return make().answer(request, message)
    except Exception as error:
        log.exception("no answer")
        return dropped(type(error).__name__)


def make_server_app(
    train: Callable[["Grid", Mapping[str, Any]], None] | None = None,
) -> "ServerApp":
    """The app that the SuperLink runs: trains by the run's configuration and writes the model.

    Args:
        train: does something else with the grid (see `GridTransport`) and the configuration.
    """
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        logging.getLogger("secure_fl").setLevel(logging.INFO)
        (train or _train_by_plan)(grid, context.run_config)

    return app


def _train_by_plan(grid: "Grid", config: Mapping[str, Any]) -> None:
    from secure_fl.flower import training
    from secure_fl.flower.plan import read_plan

    plan = read_plan(config)
    exchange = GridTransport(grid, plan.clients, plan.wait)
    training.train(exchange, plan, lambda line: print(line, flush=True))


def write_app(folder: Path, config: Mapping[str, Any]) -> None:
    """Writes the app folder that `flwr run` takes.

    Args:
        folder: must not exist.
        config: of the run, see `secure_fl.flower.plan.Plan`; None is left out.

    Raises:
        InputError: the folder exists, or a setting is wrong.
    """
    from secure_fl.files import new_folder
    from secure_fl.flower.plan import read_plan

    given = {key: value for key, value in config.items() if value is not None}
    read_plan(given)
    lines = "\n".join(f"{key} = {_toml(value)}" for key, value in given.items())
    with new_folder(folder) as aside:
        package = aside / "securefl_app"
        package.mkdir()
        (aside / "pyproject.toml").write_text(_PROJECT + lines + "\n", encoding="utf-8")
        (package / "__init__.py").write_text('"""A run of securefl on Flower."""\n')
        for side in ("client", "server"):
            text = f"from secure_fl.flower.app import make_{side}_app\n\napp = make_{side}_app()\n"
            (package / f"{side}.py").write_text(text)


_PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "securefl-app"
version = "1.0.0"
description = "A run of securefl; every machine has securefl installed."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "securefl"

[tool.flwr.app.components]
serverapp = "securefl_app.server:app"
clientapp = "securefl_app.client:app"

[tool.flwr.app.config]
"""


def _toml(value: object) -> str:
    import json

    # TOML's basic strings, numbers and booleans are written as JSON's.
    return json.dumps(value)
