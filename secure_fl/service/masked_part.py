"""A contributor's part in a masked sum: five messages, and nothing kept that could serve twice.

The batch is in the contributor's memory before its first message leaves, so a contributor that is
killed has dropped out of the batch and never takes part in it again; its secrets of the sum are
gone with it. A batch that comes to nothing counts against the daily limits too.
"""

import threading
import time
from collections.abc import Callable

from secure_fl.crypto.keys import Member as SumMember
from secure_fl.errors import InputError
from secure_fl.federation.secagg import ProtocolClient
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.masked import coding_of
from secure_fl.masked import Told
from secure_fl.masked.rows import Ints
from secure_fl.service.channel import Channel
from secure_fl.service.exchange_store import STEPS
from secure_fl.service.masked_words import seal_shares, sum_parameters
from secure_fl.service.members import Member, signature_keys
from secure_fl.service.sealed_query import Facts

WAIT = 20.0
"""Seconds that one call waits for the end of a step."""


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

    Attributes:
        coding: of its row.

    Raises:
        InputError: the digest in the facts is not that of what this contributor was told, or a
            quorum or degree that no sum has.
    """

    def __init__(
        self, member: Member, manifest: Manifest, facts: Facts, codes: Ints, told: Told
    ) -> None:
        self._member, self._manifest = member, manifest
        self._batch, self._codes, self._expires = facts.batch, codes, facts.expires
        self._querier = facts.querier
        self.coding = coding_of(manifest, facts.quorum)
        # Its own digest counts; the one in the facts is what the evaluator goes by.
        agreed = told.agreed(self.coding, 0, facts.queries)
        if agreed.hex() != facts.public:
            raise InputError("sealed query: not what the other contributors are told")
        terms = facts.quorum, agreed, facts.degree
        parameters = sum_parameters(manifest, facts.batch, *terms)
        keys = signature_keys(manifest)
        directory = {name: keys[name] for name in manifest.clients}
        own = SumMember(member.name, member.identity, directory, parameters.session)
        self._client = ProtocolClient(own, parameters)

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
        heard = b""
        for step, answer in enumerate(say, start=1):
            self._send(channel, step, answer(heard))
            if step < STEPS:
                heard = self._wait(channel, step, stop)

    def _mask(self, heard: bytes) -> bytes:
        return self._client.mask(heard, self.coding.rows(self._codes), "rows")

    def _open(self, heard: bytes) -> bytes:
        shares = self._client.unmask(heard)
        return seal_shares(self._member, self._manifest, self._batch, self._querier, shares)

    def _path(self, step: int) -> str:
        return f"/batches/{self._batch}/exchange/{step}"

    def _send(self, channel: Channel, step: int, message: bytes) -> None:
        sent = channel.heard("PUT", self._path(step), message, what="sending a message of a sum")
        if sent.status >= 300:
            raise DroppedOut(f"step {step} of {STEPS}: the evaluator refused ({sent.status})")

    def _wait(self, channel: Channel, step: int, stop: threading.Event) -> bytes:
        while not stop.is_set() and time.time() < self._expires:
            path = f"{self._path(step)}?wait={WAIT:.0f}"
            found = channel.heard("GET", path, what="waiting for the others of a sum")
            if found.status == 200:
                return found.content
            if found.status != 202:
                raise DroppedOut(f"step {step} of {STEPS}: the evaluator refused ({found.status})")
            # An evaluator that does not wait must not be asked in a hurry.
            time.sleep(0.05)
        reason = "this client was stopped" if stop.is_set() else "the batch expired"
        raise DroppedOut(f"step {step} of {STEPS}: {reason}")
