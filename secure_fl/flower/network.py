"""The `Federation` handle over any exchange of messages: trainers run on it unchanged.

The server's side. Sums go round as in one process, but a node that does not answer in time is a
drop-out, and an interrupted sum is never repeated: a resumed run has a session of its own, with
fresh noise and its own events in the ledger.
"""

import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secure_fl.data import Scaling
from secure_fl.errors import FederationError, ProtocolError, QuorumError, StepError
from secure_fl.federation.agreement import describe_call
from secure_fl.federation.assembly import checked_clients
from secure_fl.federation.checkpoint import Snapshot
from secure_fl.federation.client import Client
from secure_fl.federation.engine import Engine
from secure_fl.federation.executor import Call
from secure_fl.federation.handle import Federation
from secure_fl.federation.metering import Traffic
from secure_fl.federation.options import Options
from secure_fl.federation.participation import Participation
from secure_fl.federation.privacy import ClientPrivacy
from secure_fl.federation.secagg.messages import check_version
from secure_fl.federation.secagg.parameters import PROTOCOL, SESSION, Parameters
from secure_fl.federation.secagg.server import ProtocolServer
from secure_fl.federation.secagg.setup_server import ServerSetUp
from secure_fl.federation.secure import SecureAggregation
from secure_fl.federation.trees import Array, Structure, Tree, leaf_shapes, split_leaves
from secure_fl.federation.vector import Asked, Private, VectorSum
from secure_fl.flower.descriptions import as_array, describe_parameters, structure_of
from secure_fl.flower.scaled import described, told
from secure_fl.flower.transport import Requester, Transport

log = logging.getLogger(__name__)

SUMS = 8
"""Sums of one set-up of keys: a set-up is two exchanges, and so a quarter of one a sum."""


class NetworkFederation(Federation):
    """A `Federation` of nodes elsewhere (`Node`).

    Args:
        exchange: carries the messages.
        names: of all clients, in the fixed order of every sum; none has to be there yet.
        seed, participation, threshold, aggregation, privacy: as `Federation`'s. Secure aggregation
            needs `max_weight`, because the server is not told the clients' weights.
        time_out: seconds that a node has for one message.
        description: of the federation, a value of the wire encoding; masked sums come about only
            with nodes that were told the same (`Node`).
        scaling: that nodes apply, where the plan scales by moments; then a part of the description,
            which is a mapping.

    Raises:
        FederationError, PrivacyError: as `Federation`.
    """

    def __init__(
        self,
        exchange: Transport,
        names: Sequence[str],
        *,
        seed: int = 0,
        participation: Participation | None = None,
        threshold: int | None = None,
        aggregation: SecureAggregation | None = None,
        privacy: ClientPrivacy | None = None,
        time_out: float = 600.0,
        description: Any = None,
        scaling: Scaling | None = None,
    ) -> None:
        more: dict[str, Any] = {}
        if scaling is not None:
            more["scaling"] = told(scaling)
            description = described(description, more["scaling"])
        # Their records are elsewhere; weights come with their answers where the server may know.
        nobody = np.zeros((0, 0)), np.zeros(0)
        clients = checked_clients([Client(name, *nobody, weight=1.0) for name in names])
        if aggregation is not None and aggregation.max_weight is None:
            raise FederationError(
                "secure aggregation over a network: give max_weight, a public bound on the records"
                " of one client"
            )
        if aggregation is not None and privacy is not None and privacy.noise != "gaussian":
            raise FederationError(
                f"noise {privacy.noise}: nodes draw and check discrete Gaussian noise alone"
            )
        options = Options.checked(
            len(clients),
            seed=seed,
            participation=participation,
            threshold=threshold,
            aggregation=aggregation,
            privacy=privacy,
            description=description,
        )
        self._start(options, NetworkEngine(clients, options, Requester(exchange, time_out), more))

    def features(self) -> int:
        """Columns of the clients' features, as every node that is there says.

        Raises:
            QuorumError: nobody answers.
            FederationError: they differ.
        """
        assert isinstance(self._engine, NetworkEngine)
        return self._engine.features()


class _Remote:
    """Steps on the nodes, for sums without masks; see `secure_fl.federation.executor.Runtime`."""

    def __init__(
        self, line: Requester, epoch: str, weights: dict[str, float], more: Mapping[str, Any]
    ) -> None:
        self._requester = line
        self._more = more
        self._epoch = epoch
        self._weights = weights

    def run(self, call: Call, names: Sequence[str]) -> Iterator[tuple[str, Tree]]:
        """What each client returns that answers in time, in the order of the names."""
        request = {"do": "run", **describe_call(call, self._epoch), **self._more}
        answers = self._requester.request(dict.fromkeys(names, request))
        for name, answer in answers.items():
            raise_failure(name, call, answer)
            self._weights[name] = _weight(name, answer)
            yield name, answer["tree"]

    def states(self) -> dict[str, dict[str, Array]]:
        """Nothing: nodes keep their own arrays, and go back to a round's start by themselves."""
        return {}

    def restore(self, states: Mapping[str, Mapping[str, Array]]) -> None:
        """Nothing, as `states`."""

    def close(self) -> None:
        """Nothing to end."""


class SetUps:
    """The set-ups of a session, one after another: a sum that follows one of the same clients, all
    of which were in it to its end, goes on with its set-up.
    """

    def __init__(self) -> None:
        self._number = 0
        self._kept: tuple[ServerSetUp, Parameters] | None = None

    def next(self, asked: Asked, vector: VectorSum) -> tuple[Parameters, ServerSetUp | None]:
        """Parameters of the next sum, and the set-up that it goes on with; None for a new one."""
        found, self._kept = self._kept, None
        if found is not None:
            setup, last = found
            place = {"setup": last.setup, "sums": last.sums, "place": last.place + 1}
            parameters = vector.parameters(asked, **place)
            if parameters.setup_context == last.setup_context:
                return parameters, setup
        self._number += 1
        return vector.parameters(asked, setup=self._number, sums=SUMS), None

    def keep(self, setup: ServerSetUp, of: Parameters, survivors: tuple[str, ...]) -> None:
        """After a sum: what the next one goes on with."""
        if survivors == of.names and of.place + 1 < of.sums:
            self._kept = setup, of


def raise_failure(name: str, call: Call, answer: Mapping[str, Any]) -> None:
    """Raises StepError where the node's step failed."""
    if "failed" in answer:
        raise StepError(
            f'client "{name}": {call.step.__name__} failed in round {call.round}:'
            f" {answer['failed']}; the node's log has the cause"
        )


def _weight(name: str, answer: Mapping[str, Any]) -> float:
    weight = answer.get("weight")
    if not isinstance(weight, float) or not (np.isfinite(weight) and weight > 0):
        raise FederationError(f'client "{name}": weighs {weight!r}, expected a number above 0')
    return weight


class NetworkEngine(Engine):
    """The engine with its clients on a network.

    Args:
        clients: placeholders that carry the names.
        options: checked.
        line: to the nodes.
        more: what they are told with every step, beside the call.
    """

    _repeats = False

    def __init__(
        self,
        clients: tuple[Client, ...],
        options: Options,
        line: Requester,
        more: Mapping[str, Any],
    ) -> None:
        super().__init__(clients, options, 1)
        self._requester = line
        self._setups = SetUps()
        # Tells nodes a server that repeats a round from one that goes on.
        self._epoch = secrets.token_hex(8)
        self._more = more
        self._runtime = _Remote(line, self._epoch, self._weights, more)

    def _told(self, call: Call) -> Mapping[str, Any]:
        return {**describe_call(call, self._epoch), **self._more}

    def features(self) -> int:
        """See `NetworkFederation.features`."""
        hello = {"do": "hello", **self._more}
        answers = self._requester.request(dict.fromkeys(self.names, hello))
        if not answers:
            raise QuorumError(f"none of the {len(self.names)} clients answers; start their nodes")
        widths = {name: answer.get("features") for name, answer in answers.items()}
        width = next(iter(widths.values()))
        if not isinstance(width, int) or len(set(widths.values())) != 1:
            raise FederationError(f"clients differ in their features: {widths}")
        return width

    def restore(self, found: Snapshot, source: Path) -> None:
        """As `Engine.restore`, under a new session: what was interrupted is never repeated."""
        super().restore(found, source)
        self._setups = SetUps()
        self.stages = self.make_stages(os.urandom(SESSION), {}, found.sums)

    def total(
        self,
        step: Callable[..., Tree],
        broadcast: tuple[Any, ...],
        over: Sequence[str] | None,
        *,
        weighted: bool,
    ) -> tuple[Structure, list[Array], float]:
        """See `Engine.total`; a masked sum takes five exchanges, or three after another one."""
        if self._options.aggregation is None:
            return super().total(step, broadcast, over, weighted=weighted)
        call, asked = self.open_call(step, broadcast, over, weighted=weighted)
        asked.check_participants()
        vector = self.stages.vector
        assert vector is not None
        parameters, setup = self._setups.next(asked, vector)
        first, structure = self._begin(call, asked, parameters, vector)
        size = sum(int(np.prod(shape)) for _, shape in leaf_shapes(structure))
        coding = vector.coding
        if isinstance(coding, Private):
            # Nothing that is masked can be opened yet.
            coding.book(asked, size)
        server = self._masked_sum(parameters, first, setup)
        self._setups.keep(server.setup, parameters, server.survivors)
        total = server.total()
        extra = int(asked.weighted and not isinstance(coding, Private))
        if server.structure != structure.text() or len(total) != size + extra:
            raise FederationError(
                f"round {asked.round}: masked vectors of {len(total)} entries for"
                f" {server.structure}, expected {structure.text()}"
            )
        values, weight = coding.decode(asked, total)
        self.close_call(server.survivors, asked)
        return structure, split_leaves(structure, values), weight

    def _begin(
        self, call: Call, asked: Asked, parameters: Parameters, vector: VectorSum
    ) -> tuple[dict[str, bytes], Structure]:
        """Has the step run everywhere; first messages of those whose update can be used."""
        request = {
            "do": "begin",
            "protocol": PROTOCOL,
            **asked.told,
            "sum": describe_parameters(parameters),
            "coding": vector.coding.describe(asked),
        }
        messages: dict[str, bytes] = {}
        structures: dict[str, Structure] = {}
        for name, answer in self._requester.request(dict.fromkeys(asked.names, request)).items():
            raise_failure(name, call, answer)
            if "refused" in answer:
                self.refuse(name, call)
                continue
            try:
                check_version(answer.get("protocol", 1), f'client "{name}"')
            except ProtocolError as error:
                log.warning("%s; it counts as dropped out", error)
                continue
            structures[name] = structure_of(answer.get("structure"))
            messages[name] = _message(answer)
        if len(messages) < asked.threshold:
            self.close_call(tuple(messages), asked)
        first, structure = next(iter(structures.items()))
        for name, each in structures.items():
            if each != structure:
                raise FederationError(
                    f'client "{name}": its step returned {each.text()}, client "{first}" returned'
                    f" {structure.text()}; a step must return one structure everywhere"
                )
        return messages, structure

    def _masked_sum(
        self, parameters: Parameters, first: Mapping[str, bytes], setup: ServerSetUp | None
    ) -> ProtocolServer:
        """The sum, from what each node said first: advertisements, or masked vectors."""
        server = ProtocolServer(parameters, setup=setup)
        up = {name: len(message) for name, message in first.items()}
        down = dict.fromkeys(first, 0)
        for name, message in first.items():
            server.receive(name, message)
        for step in ("share", "mask", "confirm", "unmask")[0 if setup is None else 2 :]:
            replies = server.close_step()
            requests = {
                name: {"do": step, "message": as_array(message)}
                for name, message in replies.items()
            }
            for name, message in replies.items():
                down[name] += len(message)
            for name, answer in self._requester.request(requests).items():
                message = _message(answer)
                up[name] += len(message)
                server.receive(name, message)
        sent = set(server.survivors)
        for name in first:
            floats = server.entries if name in sent else 0
            self.meter.add(self._places[name], Traffic(down[name], up[name], 0, floats))
        return server


def _message(answer: Mapping[str, Any]) -> bytes:
    # What is no message is refused by the protocol's server, as its sender's.
    found = answer.get("message")
    return found.tobytes() if isinstance(found, np.ndarray) else b""
