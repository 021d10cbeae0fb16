"""Contributors of a masked sum that are there for those that are measured, at little cost.

A sum of a thousand contributors who all mask with all has half a million pairs, and what each of
them does is the same work. So some are measured, and the others do what those, the evaluator and
the querier need of them: the same messages, of the same size, with real keys, shares and masks
towards whoever is measured. What two of the others would have between them is left out: their
masks cancel in the sum, and nobody reads the letters.
"""

import os
from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from secure_fl.crypto.keys import (
    KEY,
    SIGNATURE,
    KeyPair,
    Member,
    PairKeys,
    authenticate,
    names_digest,
    seal,
    unseal,
)
from secure_fl.federation.secagg import Parameters, shares
from secure_fl.federation.secagg import messages as m
from secure_fl.federation.secagg.client import (
    CONFIRMATION,
    pair_mask_key,
    self_mask_key,
)
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.masks import add_masks
from secure_fl.federation.secagg.setup import sealed_bytes, self_commitment

SEALED = sealed_bytes(1)


class Secrets:
    """A seed and its shares, dealt once for all unmeasured contributors: each names its own mask.

    Args:
        threshold: shares that open its secret.
        holders: of them.
    """

    def __init__(self, threshold: int, holders: int) -> None:
        self.seed = os.urandom(shares.SECRET)
        self.shares = shares.split(self.seed, threshold, holders)


class Unmeasured:
    """One of the others in one sum of which nobody is lost.

    Args:
        member: the contributor in its session.
        secrets: of all unmeasured contributors.
        parameters: of the sum.
        graph: of it.
        holders: of each contributor's secrets, with their numbers.
        measured: who is.
    """

    def __init__(
        self,
        member: Member,
        secrets: Secrets,
        parameters: Parameters,
        graph: Graph,
        holders: Callable[[str], Mapping[str, int]],
        measured: Collection[str],
    ) -> None:
        self._member, self._secrets, self._holders = member, secrets, holders
        self._names, self._context = parameters.names, parameters.context
        self._measured = measured
        self._near = graph.neighbours(member.name)
        self._key = KeyPair.from_seed(os.urandom(shares.SECRET), self._context)
        self._pairs: dict[str, PairKeys] = {}
        self._keys: dict[str, bytes] = {}
        self._held: dict[str, bytes] = {}

    def advertise(self) -> bytes:
        """Step 1."""
        fields = {
            "session_key": m.blob(self._member.public),
            "signature": m.blob(self._member.signature),
            "mask_keys": m.blob(self._key.public),
        }
        return m.pack(m.ADVERTISE, self._context, fields)

    def share(self, message: bytes) -> bytes:
        """Step 2: real shares for who is measured."""
        found = m.unpack(m.ADVERTISED, self._context, message, "server")
        columns = (("session_keys", KEY), ("mask_keys", KEY), ("signatures", SIGNATURE))
        rows = [found.rows(name, len(self._near), size) for name, size in columns]
        sealed = np.frombuffer(os.urandom(len(self._near) * SEALED), np.uint8)
        sealed = sealed.reshape(-1, SEALED).copy()
        dealt, own = self._secrets, self._holders(self._member.name)
        for place, other in enumerate(self._near):
            if other not in self._measured:
                continue
            session, mask, signature = (each[place].tobytes() for each in rows)
            secret = self._member.secret_with(other, session, signature)
            pair = PairKeys.of_sum(secret, self._context, self._member.name, other)
            self._pairs[other], self._keys[other] = pair, mask
            both = os.urandom(shares.SECRET) + dealt.shares[own[other] - 1]
            bound = self._bound(self._key.public, mask)
            sealed[place] = m.blob(seal(pair.seal_out, both, bound))
        commitment = self_commitment(dealt.seed, self._context, self._member.name)
        fields = {"shares": sealed, "commitments": m.blob(commitment)}
        return m.pack(m.SHARE, self._context, fields)

    def mask(self, message: bytes, rows: Words) -> bytes:
        """Step 3: the masks that do not cancel among the unmeasured."""
        found = m.unpack(m.SHARED, self._context, message, "server")
        senders = found.names("names")
        letters = found.rows("shares", len(senders), SEALED)
        for sender, sealed in zip(senders, letters, strict=True):
            if sender in self._pairs:
                bound = self._bound(self._keys[sender], self._key.public)
                plain = unseal(self._pairs[sender].seal_in, sealed.tobytes(), bound)
                assert plain is not None
                self._held[sender] = plain[shares.SECRET :]
        name, seed = self._member.name, self._secrets.seed
        plus, minus = [self_mask_key(seed, self._context, name)], list[bytes]()
        for other, public in self._keys.items():
            key = pair_mask_key(self._key, public, self._context, name, other)
            (plus if name < other else minus).append(key)
        add_masks(rows, plus, minus)
        return m.pack(m.MASK, self._context, {"masked": rows, "structure": "rows"})

    def confirm(self, _: bytes) -> bytes:
        """Step 4: all are there."""
        said = self._context, names_digest(self._names)
        blank = bytes(CONFIRMATION)
        rows = [
            authenticate(self._pairs[other].confirm_out, *said) if other in self._pairs else blank
            for other in self._near
        ]
        return m.pack(m.CONFIRM, self._context, {"confirmations": m.blobs(rows, CONFIRMATION)})

    def unmask(self, _: bytes) -> bytes:
        """Step 5: a share of everybody's self mask."""
        owners = [self._member.name, *self._near]
        opened = [self._share_of(owner) for owner in owners]
        nothing: NDArray[np.uint8] = np.empty((0, shares.SECRET), np.uint8)
        fields = {
            "alive": owners,
            "alive_shares": m.blobs(opened, shares.SECRET),
            "lost": [],
            "lost_shares": nothing,
        }
        return m.pack(m.UNMASK, self._context, fields)

    def _share_of(self, owner: str) -> bytes:
        if owner in self._measured:
            return self._held[owner]
        return self._secrets.shares[self._holders(owner)[self._member.name] - 1]

    def _bound(self, sender: bytes, receiver: bytes) -> bytes:
        return self._context + names_digest(self._names) + sender + receiver
