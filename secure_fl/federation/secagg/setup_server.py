"""The server's side of a set-up: it passes keys and shares on, and keeps what opens a sum."""

from collections.abc import Set
from typing import Any, Self

from attrs import Factory, define

from secure_fl.crypto.keys import KEY, SIGNATURE
from secure_fl.errors import ProtocolError
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.letters import Addresses, Letters
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.federation.secagg.setup import sealed_bytes

COMMITMENT = 32
"""Bytes of a commitment."""


@define
class Advert:
    """What a client advertised: keys for the masks of every sum, one after another."""

    session_key: bytes
    mask_keys: bytes
    signature: bytes


@define(slots=False)
class ServerSetUp:
    """What the server has of a set-up; the sums of it share this.

    Attributes:
        parameters: of a sum of the set-up.
        adverts: of the clients that advertised.
        graph: of those that were in at the end of step 1; None before.
        addresses: of the same.
        commitments: to their self seeds, of the clients that shared, one after another.
        members: clients that are ready to mask, once step 2 is closed.
    """

    parameters: Parameters
    adverts: dict[str, Advert] = Factory(dict)
    graph: Graph | None = None
    addresses: Addresses | None = None
    commitments: dict[str, bytes] = Factory(dict)
    members: frozenset[str] = frozenset()
    _sealed: Letters | None = None

    @property
    def _context(self) -> bytes:
        return self.parameters.setup_context

    def take_advert(self, name: str, message: bytes) -> None:
        """Raises ProtocolError where it is none."""
        found = m.unpack(m.ADVERTISE, self._context, message, f'client "{name}"')
        self.adverts[name] = Advert(
            found.fixed("session_key", KEY),
            found.fixed("mask_keys", self.parameters.sums * KEY),
            found.fixed("signature", SIGNATURE),
        )

    def take_shares(self, name: str, message: bytes) -> None:
        """Raises ProtocolError where they are none."""
        found = m.unpack(m.SHARE, self._context, message, f'client "{name}"')
        assert self._sealed is not None
        commitments = found.fixed("commitments", self.parameters.sums * COMMITMENT)
        size = sealed_bytes(self.parameters.sums)
        self._sealed.put(name, found.rows("shares", self._sealed.each, size))
        self.commitments[name] = commitments

    def advertisements(self, left: tuple[str, ...]) -> dict[str, bytes]:
        """Ends step 1: what to send to each client that is left."""
        self.graph = Graph(left, self.parameters.degree, self._context)
        self.addresses = Addresses(left, self.graph)
        self._sealed = Letters(self.addresses, sealed_bytes(self.parameters.sums))
        adverts = [self.adverts[name] for name in left]
        told = {
            "session_keys": m.blobs([each.session_key for each in adverts], KEY),
            "mask_keys": m.blobs([each.mask_keys for each in adverts], self.parameters.sums * KEY),
            "signatures": m.blobs([each.signature for each in adverts], SIGNATURE),
        }
        replies = {}
        for name, near in zip(left, self.addresses.near, strict=True):
            fields = {key: rows[near] for key, rows in told.items()}
            fields["names"] = list(left)
            replies[name] = m.pack(m.ADVERTISED, self._context, fields)
        return replies

    def deliveries(self, left: tuple[str, ...]) -> dict[str, bytes]:
        """Ends step 2: what to send to each client that is left."""
        assert self._sealed is not None
        self.members = frozenset(left)
        found = passed_on(m.SHARED, self._context, "shares", self._sealed, left, self.members)
        self._sealed = None
        return found

    def dump(self) -> dict[str, Any]:
        """What later sums need of it, once step 2 is closed, as a value of the wire encoding."""
        assert self.addresses is not None
        listed = list(self.addresses.names)
        shared = list(self.commitments)
        keys = [self.adverts[name].mask_keys for name in listed]
        said = [self.commitments[name] for name in shared]
        return {
            "listed": listed,
            "mask_keys": m.blobs(keys, self.parameters.sums * KEY),
            "shared": shared,
            "commitments": m.blobs(said, self.parameters.sums * COMMITMENT),
            "members": [name for name in listed if name in self.members],
        }

    @classmethod
    def load(cls, parameters: Parameters, state: Any) -> Self:
        """The set-up that `dump` described.

        Args:
            parameters: of a sum of the set-up.
            state: from `dump`.

        Raises:
            ProtocolError: it cannot be of this set-up.
        """
        source = "a set-up that was kept"
        if not isinstance(state, dict):
            raise ProtocolError(f"{source}: not one")
        found = m.Fields(state, source)
        listed, shared = found.names("listed"), found.names("shared")
        members = found.names("members")
        if not set(members) <= set(shared) <= set(listed) <= set(parameters.names):
            raise ProtocolError(f"{source}: lists of clients that were not asked")
        made = cls(parameters)
        keys = found.byte_rows("mask_keys", len(listed), parameters.sums * KEY)
        for name, row in zip(listed, keys, strict=True):
            made.adverts[name] = Advert(b"", row, b"")
        said = found.byte_rows("commitments", len(shared), parameters.sums * COMMITMENT)
        made.commitments = dict(zip(shared, said, strict=True))
        made.graph = Graph(listed, parameters.degree, parameters.setup_context)
        made.addresses = Addresses(listed, made.graph)
        made.members = frozenset(members)
        return made

    def mask_key(self, name: str, place: int) -> bytes:
        """Of a client, for the sum of a place."""
        return self.adverts[name].mask_keys[place * KEY : (place + 1) * KEY]

    def commitment(self, name: str, place: int) -> bytes:
        """To a client's self seed, for the sum of a place."""
        return self.commitments[name][place * COMMITMENT : (place + 1) * COMMITMENT]


def passed_on(
    kind: str, context: bytes, field: str, letters: Letters, to: tuple[str, ...], senders: Set[str]
) -> dict[str, bytes]:
    """To each client what the others wrote to it."""
    replies = {}
    for member in to:
        there, rows = letters.to(member, senders)
        replies[member] = m.pack(kind, context, {"names": there, field: rows})
    return replies
