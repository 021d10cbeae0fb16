"""The server's side of one secure sum: it passes messages on, adds, and takes the masks away.

Messages come in one at a time (`receive`), in any order; `close_step` ends a step with those that
came, and gives the replies. A message that cannot be read counts as a drop-out of its sender.
"""

import itertools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from secure_fl.crypto.keys import KEY, KeyPair
from secure_fl.errors import ProtocolError, QuorumError
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg import shares
from secure_fl.federation.secagg.client import CONFIRMATION, pair_mask_key, self_mask_key
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.letters import Letters
from secure_fl.federation.secagg.masks import add_masks
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.federation.secagg.setup import self_commitment
from secure_fl.federation.secagg.setup_server import COMMITMENT, Advert, ServerSetUp, passed_on

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 100
"""Choices of shares tried to open a secret of which some holder sent a wrong share."""


class ProtocolServer:
    """The server in one sum.

    Args:
        parameters: of the sum.
        expected: length of the vectors, where the server knows it; else the first one's counts.
        setup: of an earlier sum, where this one's place is not the first: it begins with step 3.

    Attributes:
        setup: of this sum; the next ones may use it too.
        survivors: whose vectors are in the sum, once step 3 is closed.
        rejected: why a client's message was not used.
    """

    def __init__(
        self,
        parameters: Parameters,
        expected: int | None = None,
        setup: ServerSetUp | None = None,
    ) -> None:
        self.survivors: tuple[str, ...] = ()
        self.rejected: dict[str, str] = {}
        self.structure = ""
        self._p = parameters
        self._expected = expected
        self._context = parameters.context
        self.setup = ServerSetUp(parameters) if setup is None else setup
        self._step = 1 if setup is None else 3
        self._members = set(parameters.names if setup is None else setup.members)
        self._arrived: set[str] = set()
        self._total: Words | None = None
        self._confirmations: Letters | None = None
        self._opened: dict[bool, dict[str, dict[str, bytes]]] = {True: {}, False: {}}

    @property
    def entries(self) -> int:
        """Length of the masked vectors; 0 before the first has come."""
        return 0 if self._total is None else len(self._total)

    def receive(self, name: str, message: bytes) -> None:
        """Takes one client's message of the current step.

        A second message of a step, or one of a client that is no longer in, changes nothing.
        """
        if name not in self._members or name in self._arrived:
            self._reject(name, "sent a message out of turn")
            return
        setup = self.setup
        first = setup.take_advert, setup.take_shares
        take = (*first, self._masked, self._confirmation, self._opening)
        try:
            take[self._step - 1](name, message)
        except ProtocolError as error:
            self._reject(name, str(error))
        else:
            self._arrived.add(name)

    def close_step(self) -> dict[str, bytes]:
        """Ends steps 1 to 4; what to send to each client that is still in.

        Raises:
            QuorumError: fewer clients are left than the threshold.
        """
        self._members = set(self._arrived)
        self._arrived = set()
        left = tuple(name for name in self._p.names if name in self._members)
        if len(left) < self._p.threshold:
            raise self._too_few(len(left))
        first = self.setup.advertisements, self.setup.deliveries
        reply = (*first, self._survivor_list, self._confirmed)
        replies = reply[self._step - 1](left)
        self._step += 1
        return replies

    def total(self) -> Words:
        """Ends step 5: the sum of the survivors' vectors modulo 2^bits, shape (d,).

        Raises:
            QuorumError: too few shares of some secret came in.
            ProtocolError: the shares of a client do not open its secret; names it.
        """
        assert self._total is not None
        total = self._total.copy()
        self_keys = [
            self_mask_key(self._self_seed(name), self._context, name) for name in self.survivors
        ]
        plus, minus = self._pair_keys_of_the_lost()
        add_masks(total, plus, [*self_keys, *minus])
        return total

    # ------------------------------------------------- where another party opens than the one adds

    @property
    def step(self) -> int:
        """That messages are taken for now, from 1."""
        return self._step

    @property
    def members(self) -> frozenset[str]:
        """Clients whose message of this step is taken."""
        return frozenset(self._members)

    @property
    def arrived(self) -> frozenset[str]:
        """Clients whose message of this step was taken."""
        return frozenset(self._arrived)

    def masked_sum(self) -> dict[str, Any]:
        """After step 4, what another party needs beside the opened shares, to take the masks off.

        A value of the wire encoding: public keys, commitments, and the sum of masked vectors, which
        says nothing to who has fewer shares than open the secrets.
        """
        assert self._total is not None
        setup, place = self.setup, self._p.place
        assert setup.addresses is not None
        advertised = [name for name in self._p.names if name in setup.adverts]
        shared = [name for name in self._p.names if name in setup.commitments]
        commitments = [setup.commitment(name, place) for name in shared]
        return {
            "listed": list(setup.addresses.names),
            "mask_keys": m.blobs([setup.mask_key(name, place) for name in advertised], KEY),
            "advertised": advertised,
            "shared": shared,
            "commitments": m.blobs(commitments, COMMITMENT),
            "survivors": list(self.survivors),
            "masked": self._total,
        }

    @classmethod
    def opener(cls, parameters: Parameters, masked_sum: Any, expected: int) -> "ProtocolServer":
        """At step 5, from what `masked_sum` gave: it takes the survivors' openings.

        Args:
            parameters: of the sum, as this party knows them.
            masked_sum: of whoever added; nothing of it is believed.
            expected: length of the vectors.

        Raises:
            ProtocolError: it cannot be of this sum.
            QuorumError: fewer survivors than the threshold.
        """
        if not isinstance(masked_sum, dict):
            raise ProtocolError("masked sum: not one")
        found = m.Fields(masked_sum, "masked sum")
        server = cls(parameters, expected)
        listed, advertised = found.names("listed"), found.names("advertised")
        shared, survivors = found.names("shared"), found.names("survivors")
        for inner, outer in (
            (survivors, shared),
            (shared, listed),
            (listed, advertised),
            (advertised, parameters.names),
        ):
            if inner != tuple(name for name in outer if name in set(inner)):
                raise ProtocolError("masked sum: lists of clients that were not asked")
        if len(survivors) < parameters.threshold:
            raise server._too_few(len(survivors))
        setup = server.setup
        # Only this sum's part of the set-up came: it stands where this sum's stands.
        before, behind = parameters.place, parameters.sums - parameters.place - 1
        keys = found.byte_rows("mask_keys", len(advertised), KEY)
        for name, key in zip(advertised, keys, strict=True):
            setup.adverts[name] = Advert(b"", bytes(KEY * before) + key + bytes(KEY * behind), b"")
        rows = found.byte_rows("commitments", len(shared), COMMITMENT)
        for name, row in zip(shared, rows, strict=True):
            setup.commitments[name] = bytes(COMMITMENT * before) + row
        setup.graph = Graph(listed, parameters.degree, parameters.setup_context)
        server._total = found.vector("masked", parameters.bits)
        if len(server._total) != expected:
            raise ProtocolError(f"masked sum: of {len(server._total)} entries, expected {expected}")
        server.survivors, server._members, server._step = survivors, set(survivors), 5
        return server

    # ---------------------------------------------------------------------------- what comes in

    def _masked(self, name: str, message: bytes) -> None:
        found = self._read(m.MASK, name, message)
        vector, structure = found.vector("masked", self._p.bits), found.text("structure")
        if self._expected is not None and len(vector) != self._expected:
            raise ProtocolError(
                f'client "{name}": its vector has {len(vector)} entries, expected {self._expected}'
            )
        if self._total is None:
            self._total, self.structure = vector.copy(), structure
            return
        if vector.shape != self._total.shape or structure != self.structure:
            raise ProtocolError(
                f'client "{name}": its vector has {len(vector)} entries for {structure or "?"},'
                f" the first had {len(self._total)} for {self.structure or '?'}"
            )
        np.add(self._total, vector, out=self._total)

    def _confirmation(self, name: str, message: bytes) -> None:
        found = self._read(m.CONFIRM, name, message)
        assert self._confirmations is not None
        each = self._confirmations.each
        self._confirmations.put(name, found.rows("confirmations", each, CONFIRMATION))

    def _opening(self, name: str, message: bytes) -> None:
        found = self._read(m.UNMASK, name, message)
        for alive, kind in ((True, "alive"), (False, "lost")):
            owners = found.names(kind)
            rows = found.byte_rows(f"{kind}_shares", len(owners), shares.SECRET)
            for owner, share in zip(owners, rows, strict=True):
                self._opened[alive].setdefault(owner, {})[name] = share

    # --------------------------------------------------------------------------- what goes out

    def _survivor_list(self, left: tuple[str, ...]) -> dict[str, bytes]:
        assert self.setup.addresses is not None
        self.survivors = left
        self._confirmations = Letters(self.setup.addresses, CONFIRMATION)
        return dict.fromkeys(left, m.pack(m.MASKED, self._context, {"names": list(left)}))

    def _confirmed(self, left: tuple[str, ...]) -> dict[str, bytes]:
        assert self._confirmations is not None
        rest = self._confirmations, left, self._members
        return passed_on(m.CONFIRMED, self._context, "confirmations", *rest)

    # ----------------------------------------------------------------------- taking masks away

    def _self_seed(self, name: str) -> bytes:
        said = self.setup.commitment(name, self._p.place)
        return self._secret(
            name,
            alive=True,
            right=lambda seed: self_commitment(seed, self._p.setup_context, name) == said,
        )

    def _pair_keys_of_the_lost(self) -> tuple[list[bytes], list[bytes]]:
        plus: list[bytes] = []
        minus: list[bytes] = []
        alive = set(self.survivors)
        for name in self.setup.commitments:
            near = [other for other in self._graph.neighbours(name) if other in alive]
            if name in alive or not near:
                continue
            pair = self._lost_key(name)
            for other in near:
                public = self.setup.mask_key(other, self._p.place)
                key = pair_mask_key(pair, public, self._context, name, other)
                # The survivor's half is in the sum: added if it is the first by name.
                (minus if other < name else plus).append(key)
        return plus, minus

    def _lost_key(self, name: str) -> KeyPair:
        context, public = self._p.setup_context, self.setup.mask_key(name, self._p.place)

        def right(seed: bytes) -> bool:
            return KeyPair.from_seed(seed, context).public == public

        return KeyPair.from_seed(self._secret(name, alive=False, right=right), context)

    def _secret(self, name: str, *, alive: bool, right: Callable[[bytes], bool]) -> bytes:
        numbers = self._graph.holders(name)
        opened = self._opened[alive].get(name, {})
        found = {numbers[holder]: s for holder, s in opened.items() if holder in numbers}
        t = self._p.share_threshold
        if len(found) < t:
            raise QuorumError(
                f'round {self._p.round}: {len(found)} shares of client "{name}" came in, {t} are'
                " needed; nothing is revealed, run the round again"
            )
        choices = itertools.combinations(sorted(found), t)
        for chosen in itertools.islice(choices, MOST_ATTEMPTS):
            seed = shares.combine({number: found[number] for number in chosen}, t)
            if right(seed):
                return seed
        raise ProtocolError(
            f'client "{name}": its shares do not open its secret in round {self._p.round}; leave'
            " it out of the next round"
        )

    # ------------------------------------------------------------------------------- internals

    @property
    def _graph(self) -> Graph:
        assert self.setup.graph is not None
        return self.setup.graph

    def _read(self, kind: str, name: str, message: bytes) -> m.Fields:
        return m.unpack(kind, self._context, message, f'client "{name}"')

    def _reject(self, name: str, reason: str) -> None:
        self.rejected.setdefault(name, reason)
        log.warning("round %d: %s; it counts as dropped out", self._p.round, reason)

    def _too_few(self, left: int) -> QuorumError:
        return QuorumError(
            f"round {self._p.round}: {left} clients are left of {len(self._p.names)}, the"
            f" threshold is {self._p.threshold}; nothing is revealed, run the round again"
        )
