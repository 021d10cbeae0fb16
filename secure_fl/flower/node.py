"""A client on its own machine: one request in, one answer out, everything kept on its disk.

The server is not trusted with more than it is asked to be: what the owner of the data insists on
(`Terms`) is checked here, errors leave the machine without their text, and a protocol message is
answered once even if two processes are asked at the same time (a lock on the node's folder).
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dp import BudgetError, StorageError
from fhe.envelope import PRIVATE, write_atomic
from secure_fl.crypto.keys import KEY, Directory, Identity, Member
from secure_fl.errors import (
    FederationError,
    InputError,
    PrivacyError,
    ProtocolError,
    QuorumError,
    StepError,
)
from secure_fl.federation import wire
from secure_fl.federation.client import Client
from secure_fl.federation.codes import PackedCodes
from secure_fl.federation.executor import Call, InProcess
from secure_fl.federation.privacy import GRID_BITS, Grid, NoiseSource
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.federation.steps import find_step
from secure_fl.federation.trees import LowRank, SparseArray, Tree, flatten, is_finite
from secure_fl.files import make_folder, prove_writable
from secure_fl.flower.descriptions import as_array, describe, encoding_of, parameters_of
from secure_fl.flower.heads import HeadKeeper
from secure_fl.flower.kept_client import KeptClient
from secure_fl.flower.policy import Terms
from secure_fl.flower.transport import ANSWER, REQUEST

log = logging.getLogger(__name__)

_KEPT = "federation node"
_STARTS = 2
"""Rounds whose start a node can go back to: a server repeats at most the one it was killed in."""


class Node:
    """One client of a federation over a network.

    Args:
        name: of the client.
        load: reads its records; called only by requests that need them.
        folder: where it keeps its own arrays and the secrets of a running sum; made if absent,
            mode 0700.
        identity: its lasting signature key; needed by secure aggregation.
        directory: every client's public signature key, known beforehand and not from the server.
        terms: what it insists on.
        heads: trains and keeps the client's heads, where the plan is of heads.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Client],
        folder: Path,
        *,
        identity: Identity | None = None,
        directory: Directory | None = None,
        terms: Terms | None = None,
        heads: HeadKeeper | None = None,
    ) -> None:
        self.name = name
        self._load = load
        self._folder = folder
        self._identity = identity
        self._directory = directory
        self._terms = terms or Terms()
        self._heads = heads

    def answer(self, request: bytes) -> bytes:
        """The answer to one request; what fails here is told by its kind alone.

        Raises:
            InputError: the folder cannot be used; nothing was answered.
            StorageError: its disk is full; nothing was answered.
        """
        with self._locked():
            kept = self._kept()
            # Before anything is booked: what was answered must be kept, so it must be possible.
            prove_writable(self._file, self._room())
            try:
                found = self._answer(wire.decode(request, kind=REQUEST, source="server"), kept)
            except StepError as error:
                log.error("%s", error)
                cause = error.__cause__
                found = {"failed": type(cause if cause is not None else error).__name__}
            except (InputError, ProtocolError, QuorumError, BudgetError, StorageError) as error:
                log.error('client "%s": %s', self.name, error)
                found = {"dropped": type(error).__name__}
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                log.error('client "%s": not a request of this version: %r', self.name, error)
                found = {"dropped": type(error).__name__}
            # Before the answer leaves: whoever asks again must find that it was given.
            write_atomic(self._file, wire.encode(kept, kind=_KEPT), mode=PRIVATE)
        return wire.encode(found, kind=ANSWER)

    @property
    def _file(self) -> Path:
        return self._folder / "node.state"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make_folder(self._folder, mode=0o700)
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _room(self) -> int:
        """Bytes to ask the disk for: twice what is kept now, and some."""
        return (1 << 16) + (2 * self._file.stat().st_size if self._file.exists() else 0)

    def _kept(self) -> dict[str, Any]:
        if not self._file.exists():
            return {"epoch": "", "now": {}, "starts": {}, "member": None, "sums": [], "sum": None}
        return dict(wire.decode(self._file.read_bytes(), kind=_KEPT, source=str(self._file)))

    def _answer(self, request: Mapping[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "hello":
                client = self._load()
                return {"name": self.name, "features": int(client.features.shape[1])}
            case "name":
                return {"name": self.name}
            case "run":
                self._terms.check_bare()
                client = self._load()
                tree = self._run(request, kept, client)
                return {"tree": tree, "weight": client.weight}
            case "begin":
                return self._begin(request, kept)
            case "share" | "mask" | "confirm" | "unmask":
                return self._go_on(request, kept)
            case "facts" if self._heads is not None:
                return self._heads.facts()
            case "head" if self._heads is not None:
                return self._heads.train(request["federation"])
        raise FederationError(f"server: asks for {request['do']!r}, which this node does not do")

    # ----------------------------------------------------------------------------------- steps

    def _run(self, request: Mapping[str, Any], kept: dict[str, Any], client: Client) -> Tree:
        """Runs the step on the state that the client had when the round began."""
        step = find_step(request["step"])
        seed, number, call = request["key"]
        starts: dict[str, Any] = kept["starts"]
        if request["epoch"] != kept["epoch"] and str(number) in starts:
            kept["now"] = starts[str(number)]
        kept["epoch"] = request["epoch"]
        if str(number) not in starts or call == 0:
            starts[str(number)] = kept["now"]
        for old in sorted(starts, key=int)[:-_STARTS]:
            del starts[old]
        client.state = {key: array.copy() for key, array in kept["now"].items()}
        asked = Call(step, tuple(request["broadcast"]), seed, number, call)
        ((_, tree),) = InProcess([client]).run(asked, [self.name])
        kept["now"] = dict(client.state)
        return tree

    # ------------------------------------------------------------------------------ secure sums

    def _begin(self, request: Mapping[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        parameters = parameters_of(request["sum"])
        coding = request["coding"]
        if self._directory is not None and not set(parameters.names) <= set(self._directory):
            raise ProtocolError("server: a sum with clients that are not in the directory")
        self._terms.check_masked(parameters, coding, kept.get("private_sums", 0))
        member = self._member(parameters.session, kept)
        context = parameters.context.hex()
        if context in kept["sums"]:
            raise ProtocolError(f'client "{self.name}": was asked twice for one sum; not answered')
        kept["sums"] = [*kept["sums"], context]
        client = self._load()
        self._terms.book(
            request["step"],
            client,
            parameters,
            coding,
            tuple(request["broadcast"]),
        )
        tree = self._run(request, kept, client)
        structure, leaves = flatten(tree)
        if not all(map(is_finite, leaves)):
            return {"refused": True}
        if any(isinstance(leaf, SparseArray | LowRank | PackedCodes) for leaf in leaves):
            raise PrivacyError(
                "a sparse array, low-rank matrix or quantised vector cannot be aggregated securely:"
                " positions tell on the client, and factors and codes do not add up"
            )
        flat = [np.asarray(leaf).ravel().astype(np.float64, copy=False) for leaf in leaves]
        vector = np.concatenate(flat) if flat else np.zeros(0)
        running = KeptClient(member, parameters)
        message = running.advertise()
        kept["sum"] = {
            "sum": request["sum"],
            "client": running.dump(),
            "structure": structure.text(),
            "codes": self._codes(coding, client.weight, vector),
            "coding": coding,
        }
        return {"message": as_array(message), "structure": describe(structure)}

    def _go_on(self, request: Mapping[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        running = kept["sum"]
        # Taken out first: after an error the client is silent for the rest of the sum.
        kept["sum"] = None
        if running is None:
            raise ProtocolError(f'client "{self.name}": no sum is running')
        parameters = parameters_of(running["sum"])
        member = self._member(parameters.session, kept)
        client = KeptClient.load(member, parameters, running["client"])
        message = request["message"].tobytes()
        if request["do"] == "mask":
            codes = self._noisy(running["coding"], running["codes"], parameters, kept)
            answer = client.mask(message, codes, running["structure"])
            running = {**running, "codes": None}
        else:
            step = {"share": client.share, "confirm": client.confirm, "unmask": client.unmask}
            answer = step[request["do"]](message)
        kept["sum"] = {**running, "client": client.dump()}
        return {"message": as_array(answer)}

    def _member(self, session: bytes, kept: dict[str, Any]) -> Member:
        if self._identity is None or self._directory is None:
            raise FederationError(
                f'client "{self.name}": secure aggregation needs its identity and the directory of'
                " all clients' public keys; name both in the node's configuration"
            )
        found = kept["member"]
        if found is None or found["session"].tobytes() != session:
            found = kept["member"] = {
                "session": as_array(session),
                "seed": as_array(os.urandom(KEY)),
            }
            kept["sums"] = []
        seed: bytes = found["seed"].tobytes()
        return Member(self.name, self._identity, self._directory, session, lambda _: seed)

    def _codes(self, coding: Mapping[str, Any], weight: float, vector: Any) -> Any:
        """Codes without noise and masks; what was moved to the clip stays in this node's log."""
        if "sigma" in coding:
            if not 0 < coding["steps"] <= 1 << GRID_BITS:
                raise FederationError(f"server: a grid of {coding['steps']} steps")
            codes, clipped = Grid(coding["clip"], coding["steps"]).place(vector)
            outside = int(clipped)
        else:
            encoding = encoding_of(coding)
            if coding["weighted"]:
                if weight > coding["largest"]:
                    raise FederationError(
                        f'client "{self.name}": weighs {weight:g}, the public bound is'
                        f" {coding['largest']:g}; raise it (max-weight)"
                    )
                share = weight / coding["largest"]
                vector = np.append(vector * share, share * encoding.clip)
            codes, outside = encoding.encode(vector)
        if outside:
            log.info('client "%s": moved to the clip %d times', self.name, outside)
        return codes

    def _noisy(
        self,
        coding: Mapping[str, Any],
        codes: Any,
        parameters: Parameters,
        kept: dict[str, Any],
    ) -> Words:
        if "sigma" not in coding:
            return codes
        kept["private_sums"] = kept.get("private_sums", 0) + 1
        # A fresh secret for every sum: nothing is ever repeated under the same noise.
        noise = NoiseSource().draw(coding["sigma"], codes, parameters.context)
        return encoding_of(coding).wrap(codes + noise)
