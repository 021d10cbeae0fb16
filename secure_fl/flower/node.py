"""A client on its own machine: one request in, one answer out, everything kept on its disk.

The server is not trusted with more than it is asked to be: what the owner of the data insists on
(`NodePolicy`) is checked here, errors leave the machine without their text, and a protocol message
is answered once even if two processes are asked at the same time (a lock on the node's folder).
"""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dp import BudgetError, StorageError
from secure_fl.crypto.keys import KEY, Directory, Identity, Member
from secure_fl.errors import (
    FederationError,
    InputError,
    ProtocolError,
    QuorumError,
    StepError,
)
from secure_fl.federation import wire
from secure_fl.federation.agreement import agreement
from secure_fl.federation.client import Client
from secure_fl.federation.executor import Call, InProcess
from secure_fl.federation.secagg.messages import check_version
from secure_fl.federation.secagg.parameters import PROTOCOL, Parameters
from secure_fl.federation.secagg.setup import SetUp
from secure_fl.federation.steps import find_step
from secure_fl.federation.trees import Tree, flatten, is_finite
from secure_fl.flower.descriptions import as_array, describe, parameters_of
from secure_fl.flower.heads import HeadKeeper
from secure_fl.flower.kept_client import KeptClient
from secure_fl.flower.memory import Memory
from secure_fl.flower.policy import NodePolicy
from secure_fl.flower.scaled import Scaled, scaling_in
from secure_fl.flower.transport import ANSWER, REQUEST, dropped
from secure_fl.flower.vectors import codes_of, under_noise, vector_of

log = logging.getLogger(__name__)

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
        description: of the federation as this node was told, a value of the wire encoding; masked
            sums come about only among parties that have the same.
        scaled: has the records in place of `load`, where the plan scales them by moments.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Client],
        folder: Path,
        *,
        identity: Identity | None = None,
        directory: Directory | None = None,
        terms: NodePolicy | None = None,
        heads: HeadKeeper | None = None,
        description: Any = None,
        scaled: Scaled | None = None,
    ) -> None:
        self.name = name
        self._load = load
        self._memory = Memory(name, folder)
        self._identity = identity
        self._directory = directory
        self._terms = terms or NodePolicy()
        self._heads = heads
        self._description = description
        self._scaled = scaled

    def answer(self, request: bytes, message: str = "") -> bytes:
        """The answer to one request; what fails here is told by its kind alone.

        Args:
            request: of the server.
            message: name of what carried it. The last message that comes again, also to another
                process after this one was killed, gets the answer that it got, and an older one
                none; neither does anything. A message that was killed while it may have spent of
                the ledger is not begun anew. "" is a request without a name, always done.

        Raises:
            InputError: the folder cannot be used; nothing was answered.
            StorageError: its disk is full; nothing was answered.
        """
        memory = self._memory
        with memory.locked():
            kept = memory.load()
            known = memory.known(message, kept)
            if known is not None:
                return known
            # Before anything is booked: what was answered must be kept, so it must be possible.
            memory.prove_room()
            answer = dropped("Unexpected")
            try:
                answer = self._found(request, message, kept)
            finally:
                # Before the answer leaves: whoever asks again must find that it was given.
                memory.note(kept, message, answer)
                memory.keep(kept)
        return answer

    def kept_answer(self, message: str) -> bytes | None:
        """The answer that a message got, where it was the last one; None of others."""
        with self._memory.locked():
            kept = self._memory.load()
            last = kept["messages"][-1:] == [message]
            return self._memory.known(message, kept) if last or kept["begun"] == message else None

    def _found(self, request: bytes, message: str, kept: dict[str, Any]) -> bytes:
        """The answer of what the request asks for, done on what is kept."""
        try:
            asked = wire.decode(request, kind=REQUEST, source="server")
            if self._terms.ledger is not None and _may_book(asked):
                self._memory.begin(kept, message)
            found = self._answer(asked, kept)
        except StepError as error:
            log.error("%s", error)
            cause = error.__cause__
            found = {"failed": type(cause if cause is not None else error).__name__}
        except (InputError, ProtocolError, QuorumError, BudgetError, StorageError) as error:
            log.error('client "%s": %s', self.name, error)
            found = {"dropped": type(error).__name__}
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            log.error('client "%s": not a request of this version: %r', self.name, error)
            found = {"dropped": type(error).__name__}
        return wire.encode(found, kind=ANSWER)

    def _answer(self, request: Mapping[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "hello":
                client = self._client(request, kept)
                return {"name": self.name, "features": int(client.features.shape[1])}
            case "name":
                return {"name": self.name}
            case "run":
                self._terms.check_bare()
                client = self._client(request, kept)
                tree = self._run(request, kept, client)
                return {"tree": tree, "weight": client.weight}
            case "begin":
                return self._begin(request, kept)
            case "share" | "mask" | "confirm" | "unmask":
                return self._go_on(request, kept)
            case "facts" if self._heads is not None:
                return self._heads.facts()
            case "head" if self._heads is not None:
                return self._head(self._heads, request["federation"], kept)
            case "confirm head" if self._heads is not None and self._directory is not None:
                found = request["federation"], request["signatures"]
                return self._heads.confirm(*found, self._directory)
        raise FederationError(f"server: asks for {request['do']!r}, which this node does not do")

    def _head(
        self, heads: HeadKeeper, federation: Mapping[str, Any], kept: dict[str, Any]
    ) -> dict[str, Any]:
        signs = None if self._directory is None else self._identity
        if self._scaled is None:
            return heads.train(federation, signs)
        taken = self._scaled.take(scaling_in(federation), kept)
        return heads.train(federation, signs, taken)

    def _client(self, asked: Mapping[str, Any], kept: dict[str, Any]) -> Client:
        """With its records as a request, or the sum that is running, wants them."""
        if self._scaled is not None:
            return self._scaled.client(asked, kept)
        if asked.get("scaling") is not None:
            raise ProtocolError("server: tells a scaling, the plan has none by moments")
        return self._load()

    def _told(self, asked: Mapping[str, Any]) -> Any:
        """The federation's description, as far as the server has told it."""
        if self._scaled is None:
            return self._description
        return self._scaled.described(self._description, asked)

    def _insists(self, asked: Mapping[str, Any]) -> NodePolicy:
        return self._terms if self._scaled is None else self._scaled.terms(self._terms, asked)

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
        check_version(request.get("protocol", 1), "server")
        coding = request["coding"]
        # Of what was really told, and what follows is computed with; never taken from the server.
        description, terms = self._told(request), self._insists(request)
        agreed = agreement(request, coding, description)
        parameters = parameters_of(request["sum"], agreed, wire.fingerprint(description))
        if self._directory is not None and not set(parameters.names) <= set(self._directory):
            raise ProtocolError("server: a sum with clients that are not in the directory")
        terms.check_cohort(parameters, kept["cohorts"])
        terms.check_unfinished(kept["unfinished"])
        terms.check_masked(parameters, coding, kept["private_sums"])
        member = self._member(parameters.session, kept)
        setup = self._enter(parameters, member, kept)
        client = self._client(request, kept)
        asked = request["step"], tuple(request["broadcast"])
        price = terms.price(asked[0], client, parameters, coding, asked[1])
        if price is not None and terms.ledger is not None:
            later = () if self._scaled is None else self._scaled.later(request, client)
            terms.ledger.check(price, *later)
        tree = self._run(request, kept, client)
        structure, leaves = flatten(tree)
        if not all(map(is_finite, leaves)):
            return {"refused": True, "protocol": PROTOCOL}
        vector = vector_of(leaves)
        terms.check_masked(parameters, coding, kept["private_sums"], len(vector))
        protocol = KeptClient(member, parameters, setup=setup)
        running = {
            "sum": request["sum"],
            "agreed": as_array(agreed),
            "structure": structure.text(),
            "codes": codes_of(self.name, coding, client.weight, vector),
            "coding": coding,
            "step": request["step"],
            "scaling": request.get("scaling"),
            "asked": None if price is None else asked,
            "paid": False,
        }
        if setup is None:
            message = protocol.advertise()
        else:
            message, running = self._mask(protocol, None, running, parameters, kept)
        self._keep_sum(protocol, parameters, running, kept)
        return {
            "message": as_array(message),
            "structure": describe(structure),
            "protocol": PROTOCOL,
        }

    def _enter(self, parameters: Parameters, member: Member, kept: dict[str, Any]) -> SetUp | None:
        """Begins a sum, once; the set-up that it goes on with, None where it begins one.

        Raises:
            ProtocolError: it was begun before, or its set-up is not this node's.
        """
        contexts = {parameters.context.hex()}
        if parameters.place == 0:
            contexts.add(parameters.setup_context.hex())
        if contexts & set(kept["sums"]):
            raise ProtocolError(f'client "{self.name}": was asked twice for one sum; not answered')
        kept["sums"] = [*kept["sums"], *sorted(contexts)]
        if parameters.place == 0:
            return None
        setup = self._setup(parameters, member, kept)
        # Taken out until the vector is masked: after an error the set-up is not used again.
        kept["setup"] = None
        return setup

    def _setup(self, parameters: Parameters, member: Member, kept: Mapping[str, Any]) -> SetUp:
        found = kept["setup"]
        if found is None or found["context"] != parameters.setup_context.hex():
            raise ProtocolError(f'client "{self.name}": has no keys of this set-up')
        return SetUp.load(member, parameters, found["state"])

    def _keep_sum(
        self,
        client: KeptClient,
        parameters: Parameters,
        running: Mapping[str, Any],
        kept: dict[str, Any],
    ) -> None:
        kept["sum"] = {**running, "client": client.dump()}
        kept["setup"] = {
            "context": parameters.setup_context.hex(),
            "state": client.setup.dump(),
        }

    def _mask(
        self,
        client: KeptClient,
        message: bytes | None,
        running: Mapping[str, Any],
        parameters: Parameters,
        kept: dict[str, Any],
    ) -> tuple[bytes, dict[str, Any]]:
        """The masked vector, paid for; and what is running then."""
        codes = under_noise(running["coding"], running["codes"], parameters)
        masked = client.mask(message, codes, running["structure"])
        paid = self._pay(running, parameters, kept)
        return masked, {**running, "codes": None, "paid": paid}

    def _go_on(self, request: Mapping[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        running = kept["sum"]
        if running is None:
            raise ProtocolError(f'client "{self.name}": no sum is running')
        common = wire.fingerprint(self._told(running))
        parameters = parameters_of(running["sum"], running["agreed"].tobytes(), common)
        member = self._member(parameters.session, kept)
        setup = self._setup(parameters, member, kept)
        # Taken out first: after an error the client is silent for the rest of the set-up.
        kept["sum"] = kept["setup"] = None
        client = KeptClient.load(member, parameters, setup, running["client"])
        message = request["message"].tobytes()
        match request["do"]:
            case "share":
                answer = client.share(message)
            case "mask":
                answer, running = self._mask(client, message, running, parameters, kept)
            case "confirm":
                answer = client.confirm(message)
                self._insists(running).check_survivors(client.survivors, kept["cohorts"])
            case _:
                answer = client.unmask(message)
                if self._insists(running).check_survivors(client.survivors, kept["cohorts"]):
                    kept["cohorts"] = [*kept["cohorts"], list(client.survivors)]
                kept["unfinished"] -= int(running["paid"])
        self._keep_sum(client, parameters, running, kept)
        return {"message": as_array(answer)}

    def _pay(
        self, running: Mapping[str, Any], parameters: Parameters, kept: dict[str, Any]
    ) -> bool:
        """Books a sum before its masked vector leaves; True where it was paid for.

        From then on the others can end the sum without this client. Before, nothing that depends
        on the records has left, and a server must have brought others to seal their shares first:
        for this sum, or for the set-up that it is one of.
        """
        price = None
        if running["asked"] is not None and self._terms.ledger is not None:
            step, broadcast = running["asked"]
            asked = self._client(running, kept), parameters, running["coding"], tuple(broadcast)
            price = self._terms.price(step, *asked)
            assert price is not None
            self._terms.ledger.spend(price)
        elif "sigma" in running["coding"]:
            kept["private_sums"] += 1
        if self._scaled is not None:
            self._scaled.gave(running, kept, self._terms.honest(parameters), price)
        paid = price is not None or "sigma" in running["coding"]
        kept["unfinished"] += int(paid)
        return paid

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


def _may_book(request: Mapping[str, Any]) -> bool:
    """Whether a request may spend of the ledger, which cannot be taken back."""
    return request["do"] in {"mask", "head"} or (
        request["do"] == "begin" and request["sum"]["place"] != 0
    )
