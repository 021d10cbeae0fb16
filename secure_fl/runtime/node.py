"""A client on its own machine: one request in, one answer out, everything kept on its disk.

The server is not trusted with more than it is asked to be: what the owner of the data insists on
(`Terms`) is checked here, errors leave the machine without their text, and a protocol message is
answered once even if two processes are asked at the same time (a lock on the node's folder).
"""

import contextlib
import fcntl
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from fhe.envelope import PRIVATE, write_atomic
from secure_fl.errors import InputError
from secure_fl.federation import wire
from secure_fl.federation.client import Client
from secure_fl.federation.errors import FederationError, PrivacyError, QuorumError, StepError
from secure_fl.federation.privacy import GRID_BITS, Grid, NoiseSource
from secure_fl.federation.runtime import Call, InProcess
from secure_fl.federation.secagg.encoding import FixedPoint, Words
from secure_fl.federation.secagg.errors import ProtocolError
from secure_fl.federation.secagg.keys import KEY, Directory, Identity, Member
from secure_fl.federation.secagg.parameters import SESSION, Parameters
from secure_fl.federation.steps import find_step
from secure_fl.federation.trees import SparseArray, Structure, Tree, flatten, is_finite
from secure_fl.runtime.kept_client import KeptClient
from secure_fl.runtime.line import ANSWER, REQUEST

log = logging.getLogger(__name__)

_KEPT = "federation node"
_STARTS = 2
"""Rounds whose start a node can go back to: a server repeats at most the one it was killed in."""


@frozen
class Terms:
    """What a node insists on, whatever the server asks.

    Attributes:
        secure: every update is masked.
        noise: least noise multiplier of every sum, 0 for none; implies `secure`.
        clip: largest L2 norm that updates may be clipped to; noise is relative to it.
        sums: private sums that the node answers in all.
        colluding: surviving clients that may tell the server their noise.
    """

    secure: bool = False
    noise: float = 0.0
    clip: float = math.inf
    sums: int = 2**31
    colluding: int = 0


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
    ) -> None:
        self.name = name
        self._load = load
        self._folder = folder
        self._identity = identity
        self._directory = directory
        self._terms = terms or Terms()

    def answer(self, request: bytes) -> bytes:
        """The answer to one request; what fails here is told by its kind alone.

        Raises:
            OSError: the folder cannot be used.
        """
        with self._locked():
            kept = self._kept()
            try:
                found = self._answer(wire.decode(request, kind=REQUEST, source="server"), kept)
            except StepError as error:
                log.error("%s", error)
                cause = error.__cause__
                found = {"failed": type(cause if cause is not None else error).__name__}
            except (InputError, ProtocolError, QuorumError) as error:
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
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

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
                if self._terms.secure or self._terms.noise > 0:
                    raise PrivacyError("server: asks for a bare update; this node masks all")
                tree, client = self._run(request, kept)
                return {"tree": tree, "weight": client.weight}
            case "begin":
                return self._begin(request, kept)
            case "share" | "mask" | "confirm" | "unmask":
                return self._go_on(request, kept)
        raise FederationError(f"server: asks for {request['do']!r}, which no node does")

    # ----------------------------------------------------------------------------------- steps

    def _run(self, request: Mapping[str, Any], kept: dict[str, Any]) -> tuple[Tree, Client]:
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
        client = self._load()
        client.state = {key: array.copy() for key, array in kept["now"].items()}
        asked = Call(step, tuple(request["broadcast"]), seed, number, call)
        ((_, tree),) = InProcess([client]).run(asked, [self.name])
        kept["now"] = dict(client.state)
        return tree, client

    # ------------------------------------------------------------------------------ secure sums

    def _begin(self, request: Mapping[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        parameters = _parameters(request["sum"])
        coding = request["coding"]
        self._check(parameters, coding, kept)
        member = self._member(parameters.session, kept)
        context = parameters.context.hex()
        if context in kept["sums"]:
            raise ProtocolError(f'client "{self.name}": was asked twice for one sum; not answered')
        kept["sums"] = [*kept["sums"], context]
        tree, client = self._run(request, kept)
        structure, leaves = flatten(tree)
        if not all(map(is_finite, leaves)):
            return {"refused": True}
        if any(isinstance(leaf, SparseArray) for leaf in leaves):
            raise PrivacyError(
                "a sparse array cannot be aggregated securely, the positions tell on the client"
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
        return {"message": _blob(message), "structure": describe(structure)}

    def _go_on(self, request: Mapping[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        running = kept["sum"]
        # Taken out first: after an error the client is silent for the rest of the sum.
        kept["sum"] = None
        if running is None:
            raise ProtocolError(f'client "{self.name}": no sum is running')
        parameters = _parameters(running["sum"])
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
        return {"message": _blob(answer)}

    def _check(
        self, parameters: Parameters, coding: Mapping[str, Any], kept: Mapping[str, Any]
    ) -> None:
        if self._directory is not None and not set(parameters.names) <= set(self._directory):
            raise ProtocolError("server: a sum with clients that are not in the directory")
        terms = self._terms
        if terms.noise <= 0:
            return
        if "sigma" not in coding:
            raise PrivacyError(
                f"server: asks for a sum without noise, this node adds {terms.noise:g}"
            )
        honest = parameters.threshold - terms.colluding
        noise = coding["sigma"] / coding["steps"] * math.sqrt(max(0, honest))
        if coding["clip"] > terms.clip or noise < terms.noise * (1 - 1e-9):
            raise PrivacyError(
                f"server: clip {coding['clip']:g} and noise {noise:g}, this node wants at most"
                f" {terms.clip:g} and at least {terms.noise:g}"
            )
        if kept.get("private_sums", 0) >= terms.sums:
            raise PrivacyError(f"this node answered the {terms.sums} private sums it allows")

    def _member(self, session: bytes, kept: dict[str, Any]) -> Member:
        if self._identity is None or self._directory is None:
            raise FederationError(
                f'client "{self.name}": secure aggregation needs its identity and the directory of'
                " all clients' public keys; name both in the node's configuration"
            )
        found = kept["member"]
        if found is None or found["session"].tobytes() != session:
            found = kept["member"] = {"session": _blob(session), "seed": _blob(os.urandom(KEY))}
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
            encoding = _encoding(coding)
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
        return _encoding(coding).wrap(codes + noise)


def _encoding(coding: Mapping[str, Any]) -> FixedPoint:
    return FixedPoint(coding["clip"], coding["clients"], coding["bits"], coding["outside"])


def _parameters(described: Mapping[str, Any]) -> Parameters:
    numbers = {key: int(described[key]) for key in ("round", "call", "threshold", "degree")}
    session = described["session"].tobytes()
    if len(session) != SESSION:
        raise ProtocolError("server: a session without a name")
    return Parameters(
        session=session,
        names=tuple(described["names"]),
        share_threshold=int(described["share_threshold"]),
        bits=int(described["bits"]),
        **numbers,
    )


def describe_parameters(parameters: Parameters) -> dict[str, Any]:
    """What `begin` tells a node of the sum."""
    return {
        "session": _blob(parameters.session),
        "round": parameters.round,
        "call": parameters.call,
        "names": list(parameters.names),
        "threshold": parameters.threshold,
        "degree": parameters.degree,
        "share_threshold": parameters.share_threshold,
        "bits": parameters.bits,
    }


def describe(structure: Structure) -> list[Any]:
    """A structure as a value of the wire encoding."""
    children = [describe(child) for child in structure.children]
    return [structure.kind, list(structure.keys), children, structure.dtype, list(structure.shape)]


def structure_of(described: Any) -> Structure:
    """The structure that `describe` described.

    Raises:
        FederationError: it describes none.
    """
    try:
        kind, keys, children, dtype, shape = described
        parts = tuple(structure_of(child) for child in children)
        return Structure(kind, tuple(keys), parts, dtype, tuple(int(n) for n in shape))
    except (TypeError, ValueError) as error:
        raise FederationError("a node's answer describes no tree") from error


def _blob(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)
