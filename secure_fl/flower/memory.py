"""What a node keeps on its disk between two messages, and how it knows a message again."""

import contextlib
import fcntl
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fhe.envelope import PRIVATE, write_atomic
from secure_fl.errors import FederationError
from secure_fl.federation import wire
from secure_fl.files import make_folder, prove_writable
from secure_fl.flower.descriptions import as_array
from secure_fl.flower.transport import dropped

log = logging.getLogger(__name__)

_KEPT = "federation node"
_VERSION = 3
"""Of what is kept; 1 knew neither cohorts nor sums without an end, 2 no set-ups of several sums."""
_REMEMBERED = 64
"""Messages that a node knows again; a network delivers the last one twice, seldom an older one."""


class Memory:
    """The file of one node.

    Args:
        name: of the client, for messages.
        folder: made if absent, mode 0700.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder

    @property
    def _file(self) -> Path:
        return self._folder / "node.state"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes of this node out."""
        make_folder(self._folder, mode=0o700)
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def prove_room(self) -> None:
        """Raises InputError or StorageError where what is answered could not be kept.

        Asks the disk for twice what is kept now, and some.
        """
        kept = self._file.stat().st_size if self._file.exists() else 0
        prove_writable(self._file, (1 << 16) + 2 * kept)

    def load(self) -> dict[str, Any]:
        """What is kept.

        Raises:
            FederationError: by a later version.
        """
        fresh: dict[str, Any] = {
            "version": _VERSION,
            **{"epoch": "", "now": {}, "starts": {}, "member": None, "sums": []},
            **{"setup": None, "sum": None},
            **{"private_sums": 0, "cohorts": [], "unfinished": 0, "scaled": []},
            **{"messages": [], "answered": None, "begun": ""},
        }
        if not self._file.exists():
            return fresh
        found = dict(wire.decode(self._file.read_bytes(), kind=_KEPT, source=str(self._file)))
        version = found.get("version", 1)
        if version > _VERSION:
            raise FederationError(
                f"{self._file}: written by a node of version {version}, this one is of version"
                f" {_VERSION}; install the newer securefl"
            )
        if version < _VERSION:
            # A sum that was running spoke another version of the protocol.
            found |= {"version": _VERSION, "member": None, "sums": [], "sum": None}
        return {**fresh, **found}

    def keep(self, kept: Mapping[str, Any]) -> None:
        """Writes what is kept, whole or not at all."""
        write_atomic(self._file, wire.encode(dict(kept), kind=_KEPT), mode=PRIVATE)

    def begin(self, kept: Mapping[str, Any], message: str) -> None:
        """Notes that a message is at work that may spend of the ledger.

        If this process is killed in it, neither the message nor its sum is gone on with: what was
        spent cannot be taken back, and must not be spent twice.
        """
        self.keep({**kept, "setup": None, "sum": None, "begun": message})

    def known(self, message: str, kept: Mapping[str, Any]) -> bytes | None:
        """What a message is answered that was here before; None where it is new or has no name."""
        if not message:
            return None
        if message == kept["begun"]:
            log.error('client "%s": was killed in this message; not begun anew', self._name)
            return dropped("Interrupted")
        if message not in kept["messages"]:
            return None
        log.warning('client "%s": a message came twice; nothing was done again', self._name)
        if message == kept["messages"][-1]:
            return bytes(kept["answered"].tobytes())
        return dropped("Repeated")

    def note(self, kept: dict[str, Any], message: str, answer: bytes) -> None:
        """Puts an answer into what is kept."""
        kept["begun"] = ""
        if message:
            kept["messages"] = [*kept["messages"], message][-_REMEMBERED:]
            kept["answered"] = as_array(answer)
