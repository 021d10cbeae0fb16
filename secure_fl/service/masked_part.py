"""A contributor's part in a masked sum: five messages, or three with keys of an earlier batch.

The batch is in the contributor's memory before its first message leaves, so a contributor that is
killed has dropped out of the batch and never takes part in it again; its secrets of the sum, and
all set-ups that it held, are gone with it. A batch that comes to nothing counts against the daily
limits too.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from secure_fl.crypto.keys import Member as SumMember
from secure_fl.errors import InputError
from secure_fl.federation.secagg import ProtocolClient
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.masked import coding_of
from secure_fl.masked import Told
from secure_fl.masked.rows import Ints
from secure_fl.service.channel import Channel, Reply
from secure_fl.service.exchange_store import ROWS, STEPS
from secure_fl.service.held_setups import HeldSetUps
from secure_fl.service.masked_offer import Keys
from secure_fl.service.masked_words import seal_shares, sum_parameters
from secure_fl.service.members import Member, signature_keys
from secure_fl.service.sealed_query import Facts

WAIT = 20.0
"""Seconds that one call waits for the end of a step."""
SENDING = "sending a message of a sum"


class DroppedOut(Exception):  # noqa: N818  # a state of the sum, not a defect
    """This contributor is not in the sum any more; the message says why."""


class MaskedPart:
    """One contributor in one masked sum.

    Args:
        member: the contributor.
        manifest: of the federation.
        facts: of the batch, signed by the querier.
        codes: of the queries, known ones among them, shape (queries, classes).
        told: what this contributor was told.
        held: its set-ups.
        keys: of the sum, as the evaluator says; None for new ones.

    Attributes:
        coding: of its row.

    Raises:
        InputError: the digest in the facts is not that of what this contributor was told, a quorum
            or degree that no sum has, or keys that this contributor does not hold or used before.
    """

    def __init__(
        self,
        member: Member,
        manifest: Manifest,
        facts: Facts,
        codes: Ints,
        told: Told,
        held: HeldSetUps,
        keys: Keys | None = None,
    ) -> None:
        self._member, self._manifest = member, manifest
        self._batch, self._codes, self._expires = facts.batch, codes, facts.expires
        self._querier = facts.querier
        self.coding = coding_of(manifest, facts.quorum)
        # Its own digest counts; the one in the facts is what the evaluator goes by.
        agreed = told.agreed(self.coding, 0, facts.queries)
        if agreed.hex() != facts.public:
            raise InputError("sealed query: not what the other contributors are told")
        self._held, self._keys = held, keys or Keys(facts.batch, 0)
        rest: Any = {"setup": self._keys.setup, "place": self._keys.place}
        terms = facts.quorum, agreed, facts.degree
        parameters = sum_parameters(manifest, facts.batch, *terms, **rest)
        self._new = self._keys.new(facts.batch)
        if self._new:
            known = signature_keys(manifest)
            directory = {name: known[name] for name in manifest.clients}
            self._own = SumMember(member.name, member.identity, directory, parameters.session)
            self._client = ProtocolClient(self._own, parameters)
        else:
            self._own, setup = held.of(self._keys.setup, parameters)
            self._client = ProtocolClient(self._own, parameters, setup=setup)

    def run(self, channel: Channel, stop: threading.Event) -> None:
        """Exchanges all messages.

        Args:
            channel: to the evaluator.
            stop: set to leave the sum.

        Raises:
            DroppedOut: the sum goes on or ends without this contributor.
            ProtocolError: the evaluator said what an honest one would not.
            QuorumError: too few contributors are left.
            ServiceError: the evaluator cannot be reached.
        """
        say: tuple[Callable[[bytes], bytes], ...] = (
            lambda _: self._client.advertise(),
            self._client.share,
            self._mask,
            self._client.confirm,
            self._open,
        )
        heard, first = b"", 1 if self._new else ROWS
        for step in range(first, STEPS + 1):
            message = say[step - 1](heard)
            if step < STEPS:
                heard = self._exchange(channel, step, message, stop)
            else:
                self._taken(channel.heard("PUT", self._path(step), message, what=SENDING), step)

    def _mask(self, heard: bytes) -> bytes:
        rows = self.coding.rows(self._codes)
        masked = self._client.mask(heard if self._new else None, rows, "rows")
        if self._new:
            self._held.keep(self._batch, self._own, self._client.setup)
        self._held.release(self._keys.setup)
        return masked

    def _open(self, heard: bytes) -> bytes:
        shares = self._client.unmask(heard)
        return seal_shares(self._member, self._manifest, self._batch, self._querier, shares)

    def _path(self, step: int) -> str:
        return f"/batches/{self._batch}/exchange/{step}"

    def _exchange(
        self, channel: Channel, step: int, message: bytes, stop: threading.Event
    ) -> bytes:
        """Sends a message of a step; what the evaluator says at the step's end."""
        path = f"{self._path(step)}?wait={WAIT:.0f}"
        found = channel.heard("PUT", path, message, what=SENDING)
        while self._taken(found, step) == 202:
            if stop.is_set() or time.time() >= self._expires:
                reason = "this client was stopped" if stop.is_set() else "the batch expired"
                raise DroppedOut(f"step {step} of {STEPS}: {reason}")
            # An evaluator that does not wait must not be asked in a hurry.
            time.sleep(0.05)
            found = channel.heard("GET", path, what="waiting for the others of a sum")
        return found.content

    def _taken(self, found: Reply, step: int) -> int:
        """The status of a reply, if it is no refusal."""
        if found.status >= 300:
            raise DroppedOut(f"step {step} of {STEPS}: the evaluator refused ({found.status})")
        return found.status
