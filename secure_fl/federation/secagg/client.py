"""A client's side of one secure sum (Bonawitz et al. 2017, figure 4; Bell et al. 2020 for rings).

Five messages out, four in, each method once and in order; after any error the client is silent for
the rest of the sum. What it never does: reveal anything before enough neighbours confirmed the same
list of survivors, reveal both kinds of share for one client, or answer twice.
"""

import hmac
import os
from collections.abc import Mapping

from secure_fl.crypto.keys import (
    KEY,
    OVERHEAD,
    SIGNATURE,
    Entropy,
    KeyPair,
    Member,
    PairKeys,
    authenticate,
    derive,
    digest,
    names_digest,
    seal,
    unseal,
)
from secure_fl.errors import ProtocolError, QuorumError
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg import shares
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.masks import add_masks
from secure_fl.federation.secagg.parameters import Parameters

SEALED = 2 * shares.SECRET + OVERHEAD
"""Bytes of two shares for one neighbour, encrypted and authenticated."""
CONFIRMATION = 32
"""Bytes of a confirmation."""


class ProtocolClient:
    """One client in one sum.

    Args:
        member: the client in its session.
        parameters: of the sum, of that session.
        entropy: where secrets come from; the operating system in production.

    Raises:
        ProtocolError: it was not asked to take part, or took part in this sum already.
    """

    def __init__(
        self, member: Member, parameters: Parameters, entropy: Entropy = os.urandom
    ) -> None:
        self.name = member.name
        if self.name not in parameters.names or member.session != parameters.session:
            raise ProtocolError(f'client "{self.name}": was not asked to take part in this sum')
        member.enter(parameters.context)
        self._member = member
        self._p = parameters
        self._context = parameters.context
        self._step = 0
        self._self_seed = entropy(shares.SECRET)
        self._mask_seed = entropy(shares.SECRET)
        self._mask_key = KeyPair.from_seed(self._mask_seed, self._context)
        self._holders: dict[str, int] = {}
        self._near: tuple[str, ...] = ()
        self._mask_keys: dict[str, bytes] = {}
        self._pairs: dict[str, PairKeys] = {}
        self._listed = b""
        self._own_share = b""
        self._held: dict[str, tuple[bytes, bytes] | None] = {}
        self._survivors: tuple[str, ...] = ()

    # ------------------------------------------------------------------------------- messages

    def advertise(self) -> bytes:
        """Step 1: its signed key of this session, and a fresh one for the masks of this sum."""
        self._enter(1)
        fields = {
            "session_key": m.blob(self._member.public),
            "signature": m.blob(self._member.signature),
            "mask_key": m.blob(self._mask_key.public),
        }
        return self._leave(1, m.pack(m.ADVERTISE, self._context, fields))

    def share(self, message: bytes) -> bytes:
        """Step 2: for every neighbour a share of both secrets, sealed for it alone.

        The seal is also what vouches for the mask keys, for the list of those who advertised and
        for all that was agreed on: it opens only for who was told the same.

        Args:
            message: the advertisements.

        Raises:
            ProtocolError: a key without its owner's signature, or a list that cannot be.
            QuorumError: fewer clients advertised than the threshold.
        """
        self._enter(2)
        found = self._read(m.ADVERTISED, message)
        names = self._members(found.names("names"))
        self._listed = names_digest(names)
        graph = Graph(names, self._p.degree, self._context)
        self._holders = graph.holders(self.name)
        self._near = near = graph.neighbours(self.name)
        session_keys = found.byte_rows("session_keys", len(near), KEY)
        mask_keys = found.byte_rows("mask_keys", len(near), KEY)
        signatures = found.byte_rows("signatures", len(near), SIGNATURE)
        for other, key, signature in zip(near, session_keys, signatures, strict=True):
            secret = self._member.secret_with(other, key, signature)
            self._pairs[other] = PairKeys.of_sum(secret, self._context, self.name, other)
        self._mask_keys = dict(zip(near, mask_keys, strict=True))
        if len({*session_keys, *mask_keys}) != 2 * len(near):
            raise ProtocolError(f"{self._server}: two clients advertise one key")
        if len(self._holders) < self._p.share_threshold:
            raise self._too_few(len(self._holders), "neighbours")
        return self._leave(2, self._sealed_shares(near))

    def mask(self, message: bytes, vector: Words, structure: str = "") -> bytes:
        """Step 3: the vector under the masks.

        Args:
            message: the neighbours' sealed shares.
            vector: shape (d,), uint32 or uint64 by the parameters' bits; left as it is.
            structure: public description of what the vector stands for; equal at all clients.

        Raises:
            ProtocolError: shares of somebody who is no neighbour.
            QuorumError: fewer neighbours shared than the threshold.
        """
        self._enter(3)
        found = self._read(m.SHARED, message)
        senders = found.names("names")
        if not set(senders) <= set(self._near):
            raise ProtocolError(f"{self._server}: shares of a client that is no neighbour")
        for other, sealed in zip(
            senders, found.byte_rows("shares", len(senders), SEALED), strict=True
        ):
            self._held[other] = self._opened(other, sealed)
        good = 1 + sum(pair is not None for pair in self._held.values())
        if good < self._p.share_threshold:
            raise self._too_few(good, "neighbours with good shares")
        masked = vector.copy()
        plus, minus = self._pair_keys()
        add_masks(masked, [self_mask_key(self._self_seed, self._context, self.name), *plus], minus)
        fields = {"masked": masked, "structure": structure}
        return self._leave(3, m.pack(m.MASK, self._context, fields))

    def confirm(self, message: bytes) -> bytes:
        """Step 4: for every neighbour a confirmation of the list of survivors.

        Raises:
            ProtocolError: a list that cannot be.
            QuorumError: fewer survivors than the threshold, among all or among the neighbours.
        """
        self._enter(4)
        survivors = self._members(self._read(m.MASKED, message).names("names"))
        if not set(survivors) & set(self._near) <= set(self._held):
            raise ProtocolError(f"{self._server}: a survivor never sent its shares")
        near = len(set(survivors) & set(self._holders))
        if near < self._p.share_threshold:
            raise self._too_few(near, "surviving neighbours")
        self._survivors = survivors
        said = self._context, names_digest(survivors)
        rows = [authenticate(self._pairs[other].confirm_out, *said) for other in self._near]
        fields = {"confirmations": m.blobs(rows, CONFIRMATION)}
        return self._leave(4, m.pack(m.CONFIRM, self._context, fields))

    def unmask(self, message: bytes) -> bytes:
        """Step 5: a share of every survivor's self mask, and of every lost client's pair key.

        Which kind a client gets follows from the signed list alone, so it cannot get both.

        Raises:
            ProtocolError: a confirmation of another list.
            QuorumError: fewer confirmations among the neighbours than the threshold.
        """
        self._enter(5)
        found = self._read(m.CONFIRMED, message)
        others = found.names("names")
        rows = found.byte_rows("confirmations", len(others), CONFIRMATION)
        if not set(others) <= set(self._near) & set(self._survivors):
            raise ProtocolError(f"{self._server}: a confirmation of who is no surviving neighbour")
        said = self._context, names_digest(self._survivors)
        for other, row in zip(others, rows, strict=True):
            expected = authenticate(self._pairs[other].confirm_in, *said)
            if not hmac.compare_digest(row, expected):
                raise ProtocolError(f'client "{other}": confirmed another list of survivors')
        if len(others) + 1 < self._p.share_threshold:
            raise self._too_few(len(others) + 1, "confirmations")
        opened: dict[bool, dict[str, bytes]] = {True: {self.name: self._own_share}, False: {}}
        for other, pair in self._held.items():
            if pair is not None:
                alive = other in self._survivors
                opened[alive][other] = pair[1] if alive else pair[0]
        self._held = {}
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

    def _members(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Checks a list that the server made: in the fixed order, of those asked, with itself."""
        listed = set(names)
        if names != tuple(name for name in self._p.names if name in listed):
            raise ProtocolError(f"{self._server}: a list with clients that were not asked")
        if self.name not in listed:
            raise ProtocolError(f"{self._server}: a list without the client itself")
        if len(names) < self._p.threshold:
            raise self._too_few(len(names), "clients")
        return names

    def _too_few(self, found: int, what: str) -> QuorumError:
        self._step = -1
        needed = self._p.threshold if what == "clients" else self._p.share_threshold
        return QuorumError(
            f'client "{self.name}": {found} {what} are left in round {self._p.round}, the'
            f" threshold is {needed}; it reveals nothing"
        )

    def _sealed_shares(self, near: tuple[str, ...]) -> bytes:
        t, n = self._p.share_threshold, len(self._holders)
        of_mask = shares.split(self._mask_seed, t, n)
        of_self = shares.split(self._self_seed, t, n)
        self._own_share = of_self[self._holders[self.name] - 1]
        sealed = []
        for other in near:
            number = self._holders[other] - 1
            pair = of_mask[number] + of_self[number]
            keys = self._sealed_for(self._mask_key.public, self._mask_keys[other])
            sealed.append(seal(self._pairs[other].seal_out, pair, keys))
        fields = {
            "shares": m.blobs(sealed, SEALED),
            "commitment": m.blob(self_commitment(self._self_seed, self._context, self.name)),
        }
        return m.pack(m.SHARE, self._context, fields)

    def _opened(self, sender: str, sealed: bytes) -> tuple[bytes, bytes] | None:
        keys = self._sealed_for(self._mask_keys[sender], self._mask_key.public)
        plain = unseal(self._pairs[sender].seal_in, sealed, keys)
        # Without this share the others still open the secret, where they are enough.
        return None if plain is None else (plain[: shares.SECRET], plain[shares.SECRET :])

    def _sealed_for(self, sender: bytes, receiver: bytes) -> bytes:
        """What a seal binds: the sum, who advertised, and both mask keys."""
        return self._context + self._listed + sender + receiver

    def _pair_keys(self) -> tuple[list[bytes], list[bytes]]:
        plus: list[bytes] = []
        minus: list[bytes] = []
        for other in self._held:
            key = pair_mask_key(
                self._mask_key, self._mask_keys[other], self._context, self.name, other
            )
            (plus if self.name < other else minus).append(key)
        return plus, minus


def pair_mask_key(own: KeyPair, public: bytes, context: bytes, name: str, other: str) -> bytes:
    """The key of the mask that two clients share; the first by name adds it."""
    first, second = sorted((name, other))
    return derive(own.agree(public), context, b"pair mask", first.encode(), second.encode())


def self_mask_key(seed: bytes, context: bytes, name: str) -> bytes:
    """The key of a client's own mask."""
    return derive(seed, context, b"self mask", name.encode())


def self_commitment(seed: bytes, context: bytes, name: str) -> bytes:
    """By which the server knows the right self seed when it has put one together."""
    return digest(b"self seed", context, name.encode(), seed)


def _opened_fields(opened: Mapping[bool, Mapping[str, bytes]]) -> dict[str, object]:
    return {
        "alive": list(opened[True]),
        "alive_shares": m.blobs(list(opened[True].values()), shares.SECRET),
        "lost": list(opened[False]),
        "lost_shares": m.blobs(list(opened[False].values()), shares.SECRET),
    }
