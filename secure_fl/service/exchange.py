"""The evaluator's side of masked sums: it takes messages, closes steps, adds, and opens nothing.

A batch of a federation whose rule is masked is one secure sum of five steps, or of the last three
with the keys of an earlier batch. A step is closed when everybody's message is there, or the
threshold's and nobody else will come in time: in the first step the querier's patience counts, in
the others `Limits.step`. Whoever is not in then has dropped out. The last messages are sealed to
the querier; with the masked sum they are the answer, which the querier alone opens.

Every message is on the disk before it is acknowledged, and the state of a sum follows from them: a
sum goes on after a kill.
"""

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from secure_fl.errors import InputError, ProtocolError, QuorumError
from secure_fl.federation import wire
from secure_fl.federation.secagg import ProtocolServer
from secure_fl.federation.secagg.parameters import PROTOCOL
from secure_fl.heads.masked import coding_of
from secure_fl.service.batch import Batch
from secure_fl.service.exchange_store import ROWS, STEPS, ExchangeStore, Sent
from secure_fl.service.gate import Refusal
from secure_fl.service.masked_offer import Keys
from secure_fl.service.masked_words import ANSWER, check_shares, sum_parameters
from secure_fl.service.registry import Federation
from secure_fl.service.setup_store import SetUpStore
from secure_fl.service.store import Store

log = logging.getLogger("securefl.service")


class Exchange:
    """One batch's sum.

    Args:
        batch: at work.
        federation: its own.
        kept: its messages.
        setups: of keys.
        seconds: that contributors have for a message from the second on.

    Attributes:
        ended: the last step that was closed, and what each client gets at its end.

    Raises:
        ProtocolError: the set-up that it goes on with, or its rows, are gone or altered.
        Refusal: a message of an earlier release.
    """

    def __init__(
        self,
        batch: Batch,
        federation: Federation,
        kept: ExchangeStore,
        setups: SetUpStore,
        seconds: float,
    ) -> None:
        self._seconds, self._setups = seconds, setups
        self.batch, self._manifest, self._kept = batch, federation.manifest, kept
        self._keys = Keys(batch.setup or batch.name, batch.place)
        new = self._keys.new(batch.name)
        self._first = 1 if new else ROWS
        terms = batch.quorum, bytes.fromhex(batch.agreed), batch.degree
        where: Any = {"setup": self._keys.setup, "place": self._keys.place}
        parameters = sum_parameters(self._manifest, batch.name, *terms, **where)
        self._quorum = parameters.threshold
        setup = None if new else setups.load(batch, parameters)
        entries = batch.queries * coding_of(self._manifest).words
        self._server = ProtocolServer(parameters, entries, setup)
        self.ended: tuple[int, Mapping[str, bytes]] = 0, {}
        self._opened: dict[str, bytes] = {}
        self._until = batch.patient_until
        for step, messages, closed in kept.history(batch, self._first):
            for client, message in messages.items():
                self._receive(step, client, message)
            if closed:
                self._close()

    @property
    def keys(self) -> Keys:
        """Of the sum."""
        return self._keys

    @property
    def step(self) -> int:
        """That messages are taken for."""
        return self._server.step

    @property
    def arrived(self) -> frozenset[str]:
        """Clients whose message of this step is here."""
        return frozenset(self._opened) if self.step == STEPS else self._server.arrived

    @property
    def complete(self) -> bool:
        """Whether the message of everybody who may still send one is here."""
        return not self._coming

    @property
    def _coming(self) -> frozenset[str]:
        # Who was not asked is no part of the batch, and none of its sum.
        asked = {name for name, state in self.batch.clients.items() if state != "declined"}
        return (self._server.members & asked) - self.arrived

    def take(self, client: str, step: int, message: bytes) -> int:
        """Takes a message; 201, which is to be kept then, or 200 where it was there before.

        Raises:
            Refusal: it comes too late, again with other content, or cannot be used.
        """
        awaited = step == self.step and client in self._server.members - self.arrived
        if not awaited:
            # What was taken stands on the disk; of what is awaited there is nothing.
            taken = self._kept.taken(self.batch, step, client, message)
            if taken:
                return 200
            if taken is False:
                raise Refusal(409, "state", "another message of this step was taken before")
        if client not in self.batch.clients:
            raise Refusal(409, "state", "this client was not asked")
        if not awaited:
            raise Refusal(409, "state", "too late: this client counts as dropped out")
        self._receive(step, client, message)
        return 201

    def reply(self, client: str, step: int) -> bytes | None:
        """What a client gets at the end of a step; None while it is not closed.

        Raises:
            Refusal: it is not in any more.
        """
        if client not in self._server.members:
            raise Refusal(409, "state", "this client counts as dropped out")
        ended, replies = self.ended
        return replies.get(client) if step == ended == self.step - 1 else None

    def advance(self, now: float) -> bool:
        """Closes the step if it is time; whether it did.

        Raises:
            QuorumError: too few contributors are left, or the batch expired.
        """
        there, coming = self.arrived, self._coming
        if len(there) + len(coming) < self._quorum:
            raise QuorumError(
                f"{len(there) + len(coming)} contributors are left in step {self.step} of"
                f" {STEPS}, {self._quorum} are needed; nothing is revealed"
            )
        if coming and not (now >= self._until and len(there) >= self._quorum):
            if now >= self.batch.expires:
                raise QuorumError(
                    f"it expired in step {self.step} of {STEPS} with {len(there)} contributors"
                )
            if self.step > self._first and now >= self._until:
                raise QuorumError(
                    f"{len(there)} contributors are left in step {self.step} of {STEPS},"
                    f" {self._quorum} are needed; nothing is revealed"
                )
            return False
        if self.step == STEPS:
            self._finish(now)
        else:
            self._kept.close(self.batch, self.step)
            self._close()
        return True

    def wait_longer(self, seconds: float) -> None:
        """Moves the end of the step that is at work."""
        self._until += seconds

    def _close(self) -> None:
        step = self.step
        # Both at once, for who looks without the lock.
        self.ended = step, self._server.close_step()
        self._until = time.time() + self._seconds

    def _receive(self, step: int, client: str, message: bytes) -> None:
        """Hands a message to the sum.

        Raises:
            Refusal: it cannot be used; the client has dropped out.
        """
        if step == STEPS:
            try:
                check_shares(message, self._manifest, self.batch.name, client)
            except InputError as error:
                raise Refusal(422, "invalid", str(error)) from None
            self._opened[client] = message
            return
        self._server.receive(client, message)
        if client not in self._server.arrived:
            raise Refusal(422, "invalid", self._server.rejected.get(client, "not used"))

    def _finish(self, now: float) -> None:
        found = {
            "protocol": PROTOCOL,
            "setup": self._keys.setup,
            "place": self._keys.place,
            "sum": self._server.masked_sum(),
            "clients": list(self._opened),
            "shares": [message.hex() for message in self._opened.values()],
        }
        answer = wire.encode(found, kind=ANSWER)

        def keep(db: sqlite3.Connection) -> None:
            self._setups.keep(db, self.batch, self._server.setup)

        self._kept.finish(self.batch, self._server.survivors, answer, now, keep)


class Exchanges:
    """All masked sums at work.

    Args:
        store: of the batches.
        setups: of keys, in the same database.
        federations: by fingerprint.
        seconds: that contributors have for a message from the second on.
        folder: of masked rows, made where absent.
    """

    def __init__(
        self,
        store: Store,
        setups: SetUpStore,
        federations: Mapping[str, Federation],
        seconds: float,
        folder: Path,
    ) -> None:
        self._seconds, self._setups = seconds, setups
        self._store, self._federations = store, federations
        self._kept = ExchangeStore(store, folder)
        self._lock = threading.Lock()
        self._sent: deque[Sent] = deque()
        self._in_hand: set[Sent] = set()
        self._found: dict[int, Exchange] = {}

    def take(self, batch: Batch, client: str, step: int, message: bytes) -> tuple[int, bool]:
        """As `Exchange.take`, if the batch is at work; and whether others have news of it.

        The last message closes the step. Of the others nobody need hear: a hundred that wait would
        each look in vain a hundred times.
        """
        sent = Sent(batch, client, step, message, arrived=time.time())
        self._in_hand.add(sent)
        try:
            # Beside each other: forcing megabytes to the disk takes longer than all that follows.
            self._kept.write(batch, step, client, message)
            self._sent.append(sent)
            with self._lock:
                if not sent.status and sent.error is None:
                    sent.moved = self._take_all()
        finally:
            self._in_hand.discard(sent)
        if sent.error is not None:
            self._kept.discard(batch, step, client, message)
            raise sent.error
        return sent.status, sent.moved

    def _take_all(self) -> bool:
        """Takes what has come while the lock was held elsewhere; whether a batch moved."""
        taken: dict[tuple[int, str, int], Sent] = {}
        while self._sent:
            each = self._sent.popleft()
            try:
                self._take(each, taken)
            except Exception as error:  # Its sender's; the others' messages are taken.
                each.error = error
        if not taken:
            return False
        try:
            self._kept.keep(list(taken.values()))
        except Exception as error:  # The disk's: what is in memory alone is forgotten.
            for each in taken.values():
                each.status, each.error = 0, error
                self._found.pop(each.batch.id, None)
            return False
        moved = False
        for batch in {each.batch.id: each.batch for each in taken.values()}.values():
            moved |= self._of(batch).complete and self._move(batch, time.time())
        return moved

    def _take(self, sent: Sent, taken: dict[tuple[int, str, int], Sent]) -> None:
        twin = taken.get(sent.place)
        if twin is None:
            exchange = self._of(sent.batch)
            status = exchange.take(sent.client, sent.step, sent.content)
            if status == 201:
                taken[sent.place] = sent
            sent.status = status
        elif twin.content == sent.content:
            sent.status = 200
        else:
            raise Refusal(409, "state", "another message of this step was taken before")

    def reply(self, batch: Batch, client: str, step: int) -> bytes | None:
        """As `Exchange.reply`, if the batch is at work."""
        with self._lock:
            return self._of(batch).reply(client, step)

    def look(self, batch: Batch, client: str, step: int) -> tuple[bool, bytes | None]:
        """Whether memory knows of a step, and what a client gets at its end; None before that.

        A look that does not wait for the disk, so that many may wait for one step.
        """
        found = self._found.get(batch.id)
        if found is None:
            return False, None
        if found.step == step:
            return True, None
        ended, replies = found.ended
        return ended == step and client in replies, replies.get(client)

    def advance(self, now: float, missed: float = 0.0) -> bool:
        """Closes the steps on whose turn it is; whether one was, or a batch has ended.

        Args:
            now: seconds since 1970.
            missed: seconds until then in which this process could hear nobody.
        """
        with self._lock:
            for exchange in self._found.values():
                exchange.wait_longer(missed)
            waiting = self._kept.waiting()
            moved = self._drop(waiting)
            for number in waiting:
                batch = self._store.by_number(number)
                if batch is None:
                    continue
                moved |= self._move(batch, self._heard_until(batch, now))
        return moved

    def _heard_until(self, batch: Batch, now: float) -> float:
        """Until when all that came is taken: what is on its way to the disk is not yet.

        So no step is closed over a message that came in time, however long the disk takes.
        """
        exchange = self._found.get(batch.id)
        if exchange is None:
            return now
        awaited = (
            each.arrived
            for each in tuple(self._in_hand)
            if each.batch.id == batch.id and each.step == exchange.step
        )
        return min((now, *awaited))

    def _move(self, batch: Batch, now: float) -> bool:
        try:
            moved = self._of(batch).advance(now)
        except (QuorumError, ProtocolError, InputError, Refusal) as error:
            self._store.fail(batch, str(error))
            moved = True
        if moved:
            self._drop(self._kept.waiting())
        return moved

    def _drop(self, waiting: Collection[int]) -> bool:
        """Forgets what is not at work any more; whether there was any."""
        ended = self._found.keys() - set(waiting)
        for number in ended:
            del self._found[number]
        self._kept.sweep(waiting)
        return bool(ended)

    def _of(self, batch: Batch) -> Exchange:
        if batch.state != "collecting" or not batch.agreed:
            raise Refusal(409, "state", "no masked sum is at work for this batch")
        if batch.federation not in self._federations:
            raise Refusal(409, "state", "its federation is not served any more")
        found = self._found.get(batch.id)
        if found is None or found.keys != Keys(batch.setup or batch.name, batch.place):
            federation = self._federations[batch.federation]
            try:
                found = Exchange(batch, federation, self._kept, self._setups, self._seconds)
            except ProtocolError as error:
                raise Refusal(409, "state", str(error)) from None
            self._found[batch.id] = found
        # Who declined since is news to it.
        found.batch = batch
        return found
