"""Several nodes in the threads of one process, where as many processes would not fit into memory.

    python -m benchmarks._nodes service http://127.0.0.1:8445 a.toml b.toml
    python -m benchmarks._nodes flower 127.0.0.1:8000 a.toml b.toml

The same classes answer as in `securefl serve client` and `securefl flower node`, without TLS.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event

from secure_fl.flower.settings import Owner, read_config
from secure_fl.flower.superlink import Line
from secure_fl.flower.supernode import Desk, SuperNode
from secure_fl.service.channel import Channel
from secure_fl.service.coordinator import SERVER, read_circle, read_party
from secure_fl.service.trainee import Trainee


def _of_service(url: str, config: str) -> None:
    own = read_config(config)
    owner = Owner(own)
    circle = read_circle(Path(str(own["directory"])))
    member = read_party(Path(str(own["identity"])), owner.name, circle)
    with Desk(owner.state).held():
        channel = Channel(url, member, circle, recipient=SERVER, patience=0.0)
        Trainee(channel, owner.node, Event()).run()


def _of_flower(address: str, config: str) -> None:
    owner = Owner(read_config(config))
    desk = Desk(owner.state)
    with desk.held():
        secret, source = desk.own_key()
        line = Line(address, secret, source=source, registers=True, authority=None, insecure=True)
        SuperNode(line, desk, owner.node, Event()).run()


def main(kind: str, address: str, *configs: str) -> None:
    """Runs one node for each configuration, until the process is ended."""
    run: Callable[[str, str], None] = _of_service if kind == "service" else _of_flower
    threads = [threading.Thread(target=run, args=(address, each)) for each in configs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
