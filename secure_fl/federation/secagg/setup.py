"""A client's keys and shares for the sums of one cohort: two messages, for one sum or for several.

Every sum has a place, with secrets of its own that are shared once and opened once (the shares of
Bonawitz et al. 2017, figure 4, steps 0 and 1; several sums by one set-up as in Ma et al. 2023,
"Flamingo"). So what holds for a sum holds for each of them: a holder opens one kind of share for a
place, by one list of survivors, whatever else the other places were used for.
"""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeAlias

from attrs import frozen

from secure_fl.crypto.keys import (
    KEY,
    OVERHEAD,
    SIGNATURE,
    Entropy,
    KeyPair,
    Member,
    PairKeys,
    digest,
    names_digest,
    seal,
    unseal,
)
from secure_fl.errors import ProtocolError, QuorumError
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg import shares
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.parameters import Parameters

_PAIR = 2 * shares.SECRET

Held: TypeAlias = Mapping[str, tuple[bytes, bytes] | None]
"""Neighbour to its shares of mask key and self mask; None where its seal did not open."""


def sealed_bytes(sums: int) -> int:
    """Bytes of the shares for one neighbour, two a sum, encrypted and authenticated."""
    return sums * _PAIR + OVERHEAD


@frozen
class Secrets:
    """What a client has for one sum; used once.

    Attributes:
        self_seed: of its own mask.
        mask_key: for the masks that it shares with neighbours.
        mask_keys: the neighbours', their public halves.
        own_share: its own share of its self seed.
        held: shares of those neighbours that sent any.
    """

    self_seed: bytes
    mask_key: KeyPair
    mask_keys: Mapping[str, bytes]
    own_share: bytes
    held: Held

    @property
    def to_open(self) -> "Shares":
        """What is left of them once the vector is masked."""
        return Shares(self.own_share, self.held)


@frozen
class Shares:
    """What a client may open of one sum, by the list of survivors.

    Attributes:
        own: its own share of its self seed.
        held: those neighbours' that sent any.
    """

    own: bytes
    held: Held

    def dump(self) -> dict[str, Any]:
        """A value of the wire encoding."""
        held = {
            name: None if pair is None else m.blob(b"".join(pair))
            for name, pair in self.held.items()
        }
        return {"own": m.blob(self.own), "held": held}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "Shares":
        """From what `dump` gave."""
        held: dict[str, tuple[bytes, bytes] | None] = {}
        for name, pair in state["held"].items():
            whole = None if pair is None else pair.tobytes()
            held[name] = whole and (whole[: shares.SECRET], whole[shares.SECRET :])
        return cls(state["own"].tobytes(), held)


class SetUp:
    """One client in one set-up: `advertise`, `share` and `open` once each, in this order.

    Args:
        member: the client in its session.
        parameters: of a sum of the set-up.
        entropy: where secrets come from; the operating system in production.

    Attributes:
        holders: of shares of its secrets, itself among them, with their numbers; once shared.
        near: its neighbours, in the fixed order; once shared.
        pairs: what it uses between itself and each of them; once shared.

    Raises:
        ProtocolError: it was not asked to take part, or took part in this set-up already.
    """

    def __init__(
        self, member: Member, parameters: Parameters, entropy: Entropy = os.urandom
    ) -> None:
        self.name = member.name
        check_asked(member, parameters)
        member.enter(parameters.setup_context)
        self.holders: dict[str, int] = {}
        self.near: tuple[str, ...] = ()
        self.pairs: dict[str, PairKeys] = {}
        self._member = member
        self._p = parameters
        self._context = parameters.setup_context
        self._self_seeds: list[bytes] = []
        self._mask_seeds: list[bytes] = []
        for _ in range(parameters.sums):
            self._self_seeds.append(entropy(shares.SECRET))
            self._mask_seeds.append(entropy(shares.SECRET))
        self._theirs: dict[str, bytes] = {}
        self._listed = b""
        self._own_shares: list[bytes] = []
        self._held: dict[str, bytes | None] = {}
        self._taken: set[int] = set()

    def advertise(self) -> bytes:
        """Its signed key of this session, and fresh ones for the masks of every sum."""
        fields = {
            "session_key": m.blob(self._member.public),
            "signature": m.blob(self._member.signature),
            "mask_keys": m.blob(self._public),
        }
        return m.pack(m.ADVERTISE, self._context, fields)

    def share(self, message: bytes) -> bytes:
        """For every neighbour a share of both secrets of every sum, sealed for it alone.

        The seal is also what vouches for the mask keys, for the list of those who advertised and
        for all that the set-up is bound to: it opens only for who was told the same.

        Args:
            message: the advertisements.

        Raises:
            ProtocolError: a key without its owner's signature, or a list that cannot be.
            QuorumError: fewer clients advertised than the threshold.
        """
        found = m.unpack(m.ADVERTISED, self._context, message, self._server)
        names = members(self._p, self.name, found.names("names"))
        self._listed = names_digest(names)
        graph = Graph(names, self._p.degree, self._context)
        self.holders = graph.holders(self.name)
        self.near = near = graph.neighbours(self.name)
        size = self._p.sums * KEY
        session_keys = found.byte_rows("session_keys", len(near), KEY)
        mask_keys = found.byte_rows("mask_keys", len(near), size)
        signatures = found.byte_rows("signatures", len(near), SIGNATURE)
        for other, key, signature in zip(near, session_keys, signatures, strict=True):
            secret = self._member.secret_with(other, key, signature)
            self.pairs[other] = PairKeys.of_sum(secret, self._context, self.name, other)
        self._theirs = dict(zip(near, mask_keys, strict=True))
        fresh = [row[at : at + KEY] for row in mask_keys for at in range(0, size, KEY)]
        if len({*session_keys, *fresh}) != len(session_keys) + len(fresh):
            raise ProtocolError(f"{self._server}: two clients advertise one key")
        if len(self.holders) < self._p.share_threshold:
            raise too_few(self._p, self.name, len(self.holders), "neighbours")
        return self._sealed_shares()

    def open(self, message: bytes) -> None:
        """Takes the neighbours' shares; the set-up is ready then.

        Args:
            message: the sealed shares for this client.

        Raises:
            ProtocolError: shares of somebody who is no neighbour.
            QuorumError: fewer neighbours shared than the threshold.
        """
        found = m.unpack(m.SHARED, self._context, message, self._server)
        senders = found.names("names")
        if not set(senders) <= set(self.near):
            raise ProtocolError(f"{self._server}: shares of a client that is no neighbour")
        rows = found.byte_rows("shares", len(senders), sealed_bytes(self._p.sums))
        for other, sealed in zip(senders, rows, strict=True):
            keys = self._sealed_for(self._theirs[other], self._public)
            # Without these shares the others still open the secrets, where they are enough.
            self._held[other] = unseal(self.pairs[other].seal_in, sealed, keys)
        good = 1 + sum(pair is not None for pair in self._held.values())
        if good < self._p.share_threshold:
            raise too_few(self._p, self.name, good, "neighbours with good shares")

    def serves(self, parameters: Parameters) -> bool:
        """Whether a sum is one of this set-up's."""
        return parameters.setup_context == self._context

    def took(self, place: int) -> bool:
        """Whether a place was taken."""
        return place in self._taken

    @property
    def spent(self) -> bool:
        """Whether every place was taken."""
        return len(self._taken) == self._p.sums

    def take(self, place: int) -> Secrets:
        """What the sum of a place needs, and forgets it.

        Raises:
            ProtocolError: it was taken before: a mask that serves twice hides nothing.
        """
        if place in self._taken:
            raise ProtocolError(
                f'client "{self.name}": was asked twice for sum {place} of a set-up; not answered'
            )
        self._taken.add(place)
        key, pair = slice(place * KEY, (place + 1) * KEY), slice(place * _PAIR, (place + 1) * _PAIR)
        held: dict[str, tuple[bytes, bytes] | None] = {}
        for other, whole in self._held.items():
            if whole is None:
                held[other] = None
                continue
            held[other] = whole[pair][: shares.SECRET], whole[pair][shares.SECRET :]
            self._held[other] = whole[: pair.start] + bytes(_PAIR) + whole[pair.stop :]
        found = Secrets(
            self._self_seeds[place],
            KeyPair.from_seed(self._mask_seeds[place], self._context),
            {other: keys[key] for other, keys in self._theirs.items()},
            self._own_shares[place],
            held,
        )
        nothing = bytes(shares.SECRET)
        self._self_seeds[place] = self._mask_seeds[place] = self._own_shares[place] = nothing
        return found

    def dump(self) -> dict[str, Any]:
        """All of its state, secrets included, as a value of the wire encoding."""
        return {
            "self_seeds": m.blobs(self._self_seeds, shares.SECRET),
            "mask_seeds": m.blobs(self._mask_seeds, shares.SECRET),
            "public": m.blob(self._public),
            "holders": dict(self.holders),
            "near": list(self.near),
            "listed": m.blob(self._listed),
            "theirs": {name: m.blob(keys) for name, keys in self._theirs.items()},
            "pairs": {name: keys.dump() for name, keys in self.pairs.items()},
            "own_shares": m.blobs(self._own_shares, shares.SECRET),
            "held": {
                name: None if whole is None else m.blob(whole) for name, whole in self._held.items()
            },
            "taken": sorted(self._taken),
        }

    @classmethod
    def load(cls, member: Member, parameters: Parameters, state: Mapping[str, Any]) -> "SetUp":
        """The set-up that `dump` described.

        Args:
            member: of the same session, which does not know of this set-up in this process.
            parameters: of a sum of the set-up.
            state: from `dump`.
        """
        found = cls(member, parameters, bytes)
        found._self_seeds = [row.tobytes() for row in state["self_seeds"]]
        found._mask_seeds = [row.tobytes() for row in state["mask_seeds"]]
        found._public = state["public"].tobytes()
        found.holders = dict(state["holders"])
        found.near = tuple(state["near"])
        found._listed = state["listed"].tobytes()
        found._theirs = {name: keys.tobytes() for name, keys in state["theirs"].items()}
        found.pairs = {name: PairKeys.load(keys) for name, keys in state["pairs"].items()}
        found._own_shares = [row.tobytes() for row in state["own_shares"]]
        found._held = {
            name: None if whole is None else whole.tobytes()
            for name, whole in state["held"].items()
        }
        found._taken = set(state["taken"])
        return found

    @cached_property
    def _public(self) -> bytes:
        """Of the mask keys; made when they are advertised, since a set-up that is read has them."""
        keys = (KeyPair.from_seed(seed, self._context) for seed in self._mask_seeds)
        return b"".join(key.public for key in keys)

    @property
    def _server(self) -> str:
        return f'server to client "{self.name}"'

    def _sealed_shares(self) -> bytes:
        t, n = self._p.share_threshold, len(self.holders)
        dealt = [
            (shares.split(mask, t, n), shares.split(own, t, n))
            for mask, own in zip(self._mask_seeds, self._self_seeds, strict=True)
        ]
        number = self.holders[self.name] - 1
        self._own_shares = [of_self[number] for _, of_self in dealt]
        sealed = []
        for other in self.near:
            number = self.holders[other] - 1
            pairs = b"".join(of_mask[number] + of_self[number] for of_mask, of_self in dealt)
            keys = self._sealed_for(self._public, self._theirs[other])
            sealed.append(seal(self.pairs[other].seal_out, pairs, keys))
        commitments = [self_commitment(seed, self._context, self.name) for seed in self._self_seeds]
        fields = {
            "shares": m.blobs(sealed, sealed_bytes(self._p.sums)),
            "commitments": m.blob(b"".join(commitments)),
        }
        return m.pack(m.SHARE, self._context, fields)

    def _sealed_for(self, sender: bytes, receiver: bytes) -> bytes:
        """What a seal binds: the set-up, who advertised, and the mask keys of both."""
        return self._context + self._listed + sender + receiver


def self_commitment(seed: bytes, context: bytes, name: str) -> bytes:
    """By which the server knows the right self seed when it has put one together."""
    return digest(b"self seed", context, name.encode(), seed)


def check_asked(member: Member, parameters: Parameters) -> None:
    """Raises ProtocolError where a client was not asked for this sum, or in another session."""
    if member.name not in parameters.names or member.session != parameters.session:
        raise ProtocolError(f'client "{member.name}": was not asked to take part in this sum')


def members(parameters: Parameters, name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """A list that the server made: in the fixed order, of those asked, with the client itself.

    Raises:
        ProtocolError: it is none.
        QuorumError: it is shorter than the threshold.
    """
    listed, server = set(names), f'server to client "{name}"'
    if names != tuple(each for each in parameters.names if each in listed):
        raise ProtocolError(f"{server}: a list with clients that were not asked")
    if name not in listed:
        raise ProtocolError(f"{server}: a list without the client itself")
    if len(names) < parameters.threshold:
        raise too_few(parameters, name, len(names), "clients")
    return names


def too_few(parameters: Parameters, name: str, found: int, what: str) -> QuorumError:
    """The error of a client that sees too few others."""
    needed = parameters.threshold if what == "clients" else parameters.share_threshold
    return QuorumError(
        f'client "{name}": {found} {what} are left in round {parameters.round}, the'
        f" threshold is {needed}; it reveals nothing"
    )
