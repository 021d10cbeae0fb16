"""A client's side of one secure sum (Bonawitz et al. 2017, figure 4; Bell et al. 2020 for rings).

Five messages out, four in; with a set-up of an earlier sum three out and two in, from the masked
vector on. Each method once and in order; after any error the client is silent for the rest of the
sum. What it never does: reveal anything before enough neighbours confirmed the same list of
survivors of the same sum, reveal both kinds of share for one client, or answer twice.

By a set-up of several sums a masked vector may leave a client whose neighbours were told something
else. Its masks are bound to what it was told itself, so they do not cancel with theirs, and their
confirmations do not agree: it stays masked.
"""

import hmac
import os
from collections.abc import Mapping

from secure_fl.crypto.keys import Entropy, KeyPair, Member, authenticate, derive, names_digest
from secure_fl.errors import ProtocolError
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg import shares
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.masks import add_masks
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.federation.secagg.setup import (
    Secrets,
    SetUp,
    Shares,
    check_asked,
    members,
    too_few,
)

CONFIRMATION = 32
"""Bytes of a confirmation."""


class ProtocolClient:
    """One client in one sum.

    Args:
        member: the client in its session.
        parameters: of the sum, of that session.
        entropy: where secrets come from; the operating system in production.
        setup: of this client, that it shared and opened, where the sum's place is not its first;
            the sum begins with `mask` then.

    Raises:
        ProtocolError: it was not asked to take part, or took part in this sum already.
    """

    def __init__(
        self,
        member: Member,
        parameters: Parameters,
        entropy: Entropy = os.urandom,
        setup: SetUp | None = None,
    ) -> None:
        self.name = member.name
        check_asked(member, parameters)
        if setup is None and parameters.place > 0:
            raise ProtocolError(
                f'client "{self.name}": has no keys for sum {parameters.place} of this set-up'
            )
        if setup is not None and not setup.serves(parameters):
            raise ProtocolError(
                f'client "{self.name}": sum {parameters.place} is of another set-up than its keys'
            )
        self.setup = SetUp(member, parameters, entropy) if setup is None else setup
        if parameters.sums > 1:
            member.enter(parameters.context)
        self._p = parameters
        self._context = parameters.context
        self._step = 0 if setup is None else 2
        self._shares: Shares | None = None
        self._survivors: tuple[str, ...] = ()

    # ------------------------------------------------------------------------------- messages

    def advertise(self) -> bytes:
        """Step 1, see `SetUp.advertise`."""
        self._enter(1)
        return self._leave(1, self.setup.advertise())

    def share(self, message: bytes) -> bytes:
        """Step 2, see `SetUp.share`."""
        self._enter(2)
        return self._leave(2, self.setup.share(message))

    def mask(self, message: bytes | None, vector: Words, structure: str = "") -> bytes:
        """Step 3: the vector under the masks.

        Args:
            message: the neighbours' sealed shares; None where the set-up has them.
            vector: shape (d,), uint32 or uint64 by the parameters' bits; left as it is.
            structure: public description of what the vector stands for; equal at all clients.

        Raises:
            ProtocolError: shares of somebody who is no neighbour, or none where there should be.
            QuorumError: fewer neighbours shared than the threshold.
        """
        self._enter(3)
        if (message is None) != (self._p.place > 0):
            raise ProtocolError(f"{self._server}: shares of another set-up, or none")
        if message is not None:
            self.setup.open(message)
        secrets = self.setup.take(self._p.place)
        self._shares = secrets.to_open
        masked = vector.copy()
        plus, minus = self._pair_keys(secrets)
        own = self_mask_key(secrets.self_seed, self._context, self.name)
        add_masks(masked, [own, *plus], minus)
        fields = {"masked": masked, "structure": structure}
        return self._leave(3, m.pack(m.MASK, self._context, fields))

    def confirm(self, message: bytes) -> bytes:
        """Step 4: for every neighbour a confirmation of the list of survivors.

        Raises:
            ProtocolError: a list that cannot be.
            QuorumError: fewer survivors than the threshold, among all or among the neighbours.
        """
        self._enter(4)
        assert self._shares is not None
        setup = self.setup
        survivors = members(self._p, self.name, self._read(m.MASKED, message).names("names"))
        if not set(survivors) & set(setup.near) <= set(self._shares.held):
            raise ProtocolError(f"{self._server}: a survivor never sent its shares")
        near = len(set(survivors) & set(setup.holders))
        if near < self._p.share_threshold:
            raise too_few(self._p, self.name, near, "surviving neighbours")
        self._survivors = survivors
        said = self._context, names_digest(survivors)
        rows = [authenticate(setup.pairs[other].confirm_out, *said) for other in setup.near]
        fields = {"confirmations": m.blobs(rows, CONFIRMATION)}
        return self._leave(4, m.pack(m.CONFIRM, self._context, fields))

    def unmask(self, message: bytes) -> bytes:
        """Step 5: a share of every survivor's self mask, and of every lost client's pair key.

        Which kind a client gets follows from the confirmed list alone, so it cannot get both.

        Raises:
            ProtocolError: a confirmation of another list, or of another sum.
            QuorumError: fewer confirmations among the neighbours than the threshold.
        """
        self._enter(5)
        assert self._shares is not None
        found = self._read(m.CONFIRMED, message)
        others = found.names("names")
        rows = found.byte_rows("confirmations", len(others), CONFIRMATION)
        if not set(others) <= set(self.setup.near) & set(self._survivors):
            raise ProtocolError(f"{self._server}: a confirmation of who is no surviving neighbour")
        said = self._context, names_digest(self._survivors)
        for other, row in zip(others, rows, strict=True):
            expected = authenticate(self.setup.pairs[other].confirm_in, *said)
            if not hmac.compare_digest(row, expected):
                raise ProtocolError(
                    f'client "{other}": confirmed another list of survivors, or was told otherwise'
                )
        if len(others) + 1 < self._p.share_threshold:
            raise too_few(self._p, self.name, len(others) + 1, "confirmations")
        opened: dict[bool, dict[str, bytes]] = {
            True: {self.name: self._shares.own},
            False: {},
        }
        for other, pair in self._shares.held.items():
            if pair is not None:
                alive = other in self._survivors
                opened[alive][other] = pair[1] if alive else pair[0]
        self._shares = None
        return self._leave(5, m.pack(m.UNMASK, self._context, _opened_fields(opened)))

    # ------------------------------------------------------------------------------- internals

    @property
    def _server(self) -> str:
        return f'server to client "{self.name}"'

    def _enter(self, step: int) -> None:
        if self._step != step - 1:
            self._step = -1
            raise ProtocolError(
                f'client "{self.name}": step {step} was asked for out of order or again; it takes'
                " no further part in this sum"
            )
        # Until the step is done, so that an error in it is the end.
        self._step = -1

    def _leave(self, step: int, message: bytes) -> bytes:
        self._step = step
        return message

    def _read(self, kind: str, message: bytes) -> m.Fields:
        return m.unpack(kind, self._context, message, self._server)

    def _pair_keys(self, secrets: Secrets) -> tuple[list[bytes], list[bytes]]:
        plus: list[bytes] = []
        minus: list[bytes] = []
        for other in secrets.held:
            theirs = secrets.mask_keys[other]
            key = pair_mask_key(secrets.mask_key, theirs, self._context, self.name, other)
            (plus if self.name < other else minus).append(key)
        return plus, minus


def pair_mask_key(own: KeyPair, public: bytes, context: bytes, name: str, other: str) -> bytes:
    """The key of the mask that two clients share; the first by name adds it."""
    first, second = sorted((name, other))
    return derive(own.agree(public), context, b"pair mask", first.encode(), second.encode())


def self_mask_key(seed: bytes, context: bytes, name: str) -> bytes:
    """The key of a client's own mask."""
    return derive(seed, context, b"self mask", name.encode())


def _opened_fields(opened: Mapping[bool, Mapping[str, bytes]]) -> dict[str, object]:
    return {
        "alive": list(opened[True]),
        "alive_shares": m.blobs(list(opened[True].values()), shares.SECRET),
        "lost": list(opened[False]),
        "lost_shares": m.blobs(list(opened[False].values()), shares.SECRET),
    }
